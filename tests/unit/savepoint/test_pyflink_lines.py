"""State of PyFlink 1.20 goes on in PyFlink 2.2: ``upgrade`` keeps all of it.

``upgraded`` has savepoints of the job ``tests/integration/flink/pyflink_job.py``: ``given`` is of
PyFlink 1.20.5 after the numbers below 10, and ``after`` is what PyFlink 2.2.1 took after it had
restored the upgraded copy and got the numbers 10 to 15. What the states hold follows from the code
of the job.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.savepoint import SavepointUpgrade
from tests.command_line import run
from tests.golden_files import GOLDEN

__all__ = ["run"]

UPGRADED = GOLDEN / "pyflink-jobs" / "upgraded"
JOBS = {"process-pickle": "pickle", "thread-tuple": "tuple"}
"""Mode and type of keys."""
FIRST, NEXT = 10, 16
TYPES = {
    "last": "PICKLED",
    "numbers": "list[LONG]",
    "counts": "map[STRING, LONG]",
    "seen": "map[PICKLED, PICKLED]",
    "total": "reducing[LONG]",
    "mean": "aggregating[TUPLE[INT, DOUBLE]]",
    "row": "ROW[LONG, STRING, DOUBLE]",
    "kept": "STRING",
}
"""What the job declares."""
OF_KEY: dict[str, Callable[[int], Any]] = {
    "string": lambda key: f"key-{key}",
    "tuple": lambda key: [key, "k"],
    "pickle": lambda key: key,
}
"""Each type of keys, for the number that the job makes them of."""


def numbers_of(key: int, below: int) -> list[int]:
    return [n for n in range(below) if n % 3 == key]


def held(own: list[int]) -> dict[str, Any]:
    """What the states of a key hold behind its numbers, as a dump shows it."""
    return {
        "last": [own[-1], f"p{own[-1]}", None],
        "numbers": own,
        "counts": sorted([f"c{n % 2}", n * 11] for n in own[-2:]),
        "seen": sorted([["k", n], [n, "v"]] for n in own),
        "total": sum(own),
        "mean": [len(own), sum(own) * 1.5],
        "row": [own[-1], None if own[-1] % 2 else f"r{own[-1]}", own[-1] / 4],
        "kept": f"t{own[-1]}",
    }


def check_holds(path: str | Path, key: str, below: int) -> None:
    """A savepoint of the job holds what the numbers below one make of each state, and timers."""
    snapshot = Snapshot.load(path, state_types=TYPES)
    # Flink 1.20 keeps no uids in a savepoint.
    [operator] = [operator for operator in snapshot.operators if operator.keyed_handles]
    for name in TYPES:
        dumped = {json.dumps(line["key"]): line["value"] for line in operator.dump(name)}
        if name == "kept":
            dumped = {of_key: value["v"] for of_key, value in dumped.items()}
        if name == "seen":  # a dump has its pairs by the text of their keys
            dumped = {of_key: sorted(value) for of_key, value in dumped.items()}
        assert dumped == {
            json.dumps(OF_KEY[key](n)): held(numbers_of(n, below))[name] for n in range(3)
        }, name
    timers = [line for line in operator.dump() if line["kind"].endswith("timer")]
    assert len(timers) == 2 * below


@pytest.mark.parametrize("job", JOBS)
def test_pyflink_2_goes_on_with_what_upgrade_keeps(job: str, tmp_path: Path) -> None:
    source = Snapshot.load(UPGRADED / job / "given")
    assert source.metadata.version == 4
    upgrade = SavepointUpgrade(source, to="2.2")
    assert {step.action for step in upgrade.plan()} == {"keep"}
    out = upgrade.write(tmp_path / "out")
    assert Snapshot.load(out).metadata.version == 6
    check_holds(UPGRADED / job / "given", JOBS[job], FIRST)
    check_holds(out, JOBS[job], FIRST)
    check_holds(UPGRADED / job / "after", JOBS[job], NEXT)


def test_an_upgrade_changes_no_byte_of_an_entry(run: Any, tmp_path: Path) -> None:
    path, out = str(UPGRADED / "process-pickle" / "given"), str(tmp_path / "out")
    assert run("upgrade", path, out, "--to", "2.2").code == 0
    assert run("diff", path, out).code == 0
