"""Rules that a reviewer should not have to look for."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden_files import GOLDEN

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path for package in ("dstl_core", "dstl_dagster") for path in (ROOT / package).rglob("*.py")
)
MAX_FILE_LINES = 600
"""Lines of code: docstrings, comments and empty lines do not count."""
MAX_FUNCTION_LINES = 70
# One switch over all instructions, or one loop over records, each step a few lines: the compiler
# keeps their variables in registers.
KERNEL_LOOPS = {
    "dstl_core/codec/columnar/kernels/decode.py:_make",
    "dstl_core/codec/columnar/kernels/decode.py:decode_rows",
    "dstl_core/codec/columnar/kernels/encode.py:_make",
    "dstl_core/codec/columnar/kernels/encode.py:encode_rows",
    "dstl_core/codec/columnar/kernels/scan.py:scan_sections",
}


def test_there_is_something_to_look_at() -> None:
    assert len(SOURCES) > 60


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text())))


def lines_of_code(path: Path) -> int:
    numbered = enumerate(path.read_text().splitlines(), 1)
    lines = {number for number, line in numbered if line.strip()[:1] not in ("", "#")}
    for node in nodes_of(path):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_no_file_is_too_long() -> None:
    lengths = {str(path.relative_to(ROOT)): lines_of_code(path) for path in SOURCES}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_no_function_is_too_long() -> None:
    lengths = {
        f"{path.relative_to(ROOT)}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    too_long = {name for name, lines in lengths.items() if lines > MAX_FUNCTION_LINES}
    assert too_long == KERNEL_LOOPS


@pytest.mark.parametrize("word", ["NotImplementedError", "TODO", "FIXME", "XXX"])
def test_nothing_is_left_for_later(word: str) -> None:
    pattern = re.compile(rf"\b{word}\b")
    assert [str(path) for path in SOURCES if pattern.search(path.read_text())] == []


# Who deletes files of a store by itself, and which. All others go through the guard.
DELETES = {
    "dstl_core/checkpoint/store/guard.py": "the guard",
    "dstl_core/checkpoint/store/sharing.py": "notes and signs beside the files",
    "dstl_core/changelog/discarder.py": "segments that no checkpoint has named yet",
    "dstl_core/spark/savepoints/column_stages.py": "runs that its own tasks have written",
    "dstl_core/checkpoint/store/pipeline_store.py": "leases, and what killed migrations wrote",
    "dstl_core/savepoint/write/folder.py": "what a run that did not end has written",
    "dstl_core/savepoint/write/work_record.py": "the record of a rewriting",
    "dstl_core/job/coordination/job_migration.py": "what a migration has written before its commit",
}


def test_every_deletion_of_state_goes_through_the_guard() -> None:
    pattern = re.compile(r"(file_io|files|file_ios\[.*\]|fs)\.(delete|delete_folder|rm|rm_file)\(")
    deleting = {str(path.relative_to(ROOT)) for path in SOURCES if pattern.search(path.read_text())}
    own = ("dstl_core/storage/", "dstl_core/testing/")
    assert {name for name in deleting if not name.startswith(own)} == set(DELETES)


HEAVY = ("pyarrow", "pyspark", "dagster", "numba", "pandas")
PRINT_LOADED = f"import sys; print(sorted(set({HEAVY!r}) & set(sys.modules)))"


@pytest.mark.parametrize(
    ("imports", "loaded"),
    [
        ("import dstl_core", "[]"),
        ("import dstl_core.savepoint, dstl_core.changelog, dstl_core.checkpoint", "[]"),
        ("import dstl_core.cli", "[]"),
    ],
)
def test_looking_into_a_snapshot_loads_nothing_heavy(imports: str, loaded: str) -> None:
    code = f"{imports}; {PRINT_LOADED}"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert ran.stdout.strip() == loaded


# ----------------------------------------------------------------------------- golden files

FOLDERS = sorted(path for path in GOLDEN.iterdir())


def test_golden_files_lie_in_folders() -> None:
    assert [path.name for path in FOLDERS if not path.is_dir()] == []
    assert len(FOLDERS) >= 36


def files_below(folder: Path) -> list[Path]:
    """Those behind links, too: some jobs are examples for readers as well."""
    walk = os.walk(folder, followlinks=True)
    return [Path(inside, name) for inside, _, names in walk for name in names]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_golden_file_is_in_its_manifest(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    sums = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files_below(folder)
        if path.name != "manifest.json"
    }
    # A new file goes in with the sum that this shows.
    assert manifest["sha256"] == sums
    if "dstl" in manifest:
        assert set(manifest) == {"dstl", "made", "sha256"}
        assert re.fullmatch("[0-9a-f]{7}", manifest["dstl"])
    else:
        assert set(manifest) == {"flink", "made", "sha256"}
        assert re.fullmatch(r"[12]\.\d+\.\d+", manifest["flink"])
    assert manifest["made"].endswith(".")
