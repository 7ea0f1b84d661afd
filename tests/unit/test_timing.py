"""No test asserts how long something took: that depends on the machine. Benchmarks tell of speed.

A test says what makes the work slow instead: the modules loaded, the threads started, the requests
made, the jobs run. A limit of time that only ends what does not end is no assertion.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "tests").rglob("*.py"))
CLOCK = re.compile(r"\b(perf_counter|monotonic|process_time|thread_time|getrusage|timeit)(_ns)?\(")
"""Calls that tell seconds."""
DATE = re.compile(r"\btime\.time(_ns)?\(|\b(now|utcnow)\(")
"""Calls that tell a date. A date alone is what files have; a difference from it is seconds."""
ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def _reads_a_clock(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression holds seconds: a clock, a program that prints one, or such a name."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and CLOCK.search(f"{ast.unparse(part.func)}("):
            return True
        if isinstance(part, ast.BinOp) and _is_time_since(part):
            return True
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            if CLOCK.search(part.value):
                return True
        elif isinstance(part, ast.Name | ast.Attribute) and _name(part) in names:
            return True
    return False


def _is_time_since(node: ast.BinOp) -> bool:
    return isinstance(node.op, ast.Sub) and DATE.search(ast.unparse(node.left)) is not None


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _timed_names(tree: ast.Module) -> set[str]:
    """Names that hold seconds, and functions that return them, until nothing new is named."""
    names: set[str] = set()
    while True:
        new = {name for name in _newly_timed(tree, names) if name not in names}
        if not new:
            return names
        names |= new


def _newly_timed(tree: ast.Module, names: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _reads_a_clock(node.value, names):
            yield from (_name(part) for target in node.targets for part in ast.walk(target))
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr | ast.AugAssign):
            if node.value is not None and _reads_a_clock(node.value, names):
                yield _name(node.target)
        elif isinstance(node, ast.FunctionDef):
            returned = (part.value for part in ast.walk(node) if isinstance(part, ast.Return))
            if any(value is not None and _reads_a_clock(value, names) for value in returned):
                yield node.name


def timed_assertions(source: str) -> list[int]:
    """The lines of assertions that say how large or small a number of seconds is."""
    if not CLOCK.search(source) and not DATE.search(source):
        return []
    tree = ast.parse(source)
    names = _timed_names(tree) - {""}
    compared = (
        part
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
        for part in ast.walk(node.test)
        if isinstance(part, ast.Compare) and isinstance(part.ops[0], ORDERS)
    )
    return [part.lineno for part in compared if _reads_a_clock(part, names)]


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("start = time.perf_counter()\nwork()\nassert time.perf_counter() - start < 1", [3]),
        ("t = time.monotonic()\nwork()\ntook = time.monotonic() - t\nassert took < 1", [4]),
        ("def took():\n    return process_time()\nassert took() < 3", [3]),
        ("code = 'import time; print(time.process_time())'\ns = run(code)\nassert s < 3", [3]),
        ("start = time.time()\nwork()\nassert time.time() - start < 3", [3]),
        ("t = datetime.now()\ntook = datetime.now() - t\nassert took.seconds < 3", [3]),
        ("assert timeit(work, number=9) < 3", [1]),
        ("t = time.perf_counter_ns()\nassert 0 < time.perf_counter_ns() - t <= 10**9", [2]),
        ("assert facts.committed_at <= time.time()", []),
        ("while time.monotonic() < end:\n    assert work()", []),
        ("assert path.stat().st_mtime_ns == 1", []),
    ],
)
def test_a_timed_assertion_is_seen(source: str, lines: list[int]) -> None:
    assert timed_assertions(source) == lines


def test_no_test_asserts_seconds() -> None:
    timed = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in FILES
        if path != Path(__file__)
        for line in timed_assertions(path.read_text())
    }
    assert timed == set()
