"""What users import: the names of ``dstl_core``, and nothing below it."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dstl_core
from dstl_core import functions

ROOT = Path(__file__).parents[2]

NAMES = [
    "StatefulJob",
    "KeyedOperator",
    "ProcessOperator",
    "AggregateOperator",
    "ChangelogOptions",
    "HashMapStateBackend",
    "EmbeddedRocksDBStateBackend",
    "KeyedProcessFunction",
    "ProcessFunction",
    "RichMapFunction",
    "BroadcastFunction",
    "CheckpointedFunction",
    "KeyedColumnFunction",
    "ColumnResult",
    "WindowFunction",
    "ProcessWindowFunction",
    "KeyedStateReaderFunction",
    "WindowReaderFunction",
    "KeyedStateBootstrapFunction",
    "StateBootstrapFunction",
    "BroadcastStateBootstrapFunction",
    "ValueStateDescriptor",
    "ListStateDescriptor",
    "MapStateDescriptor",
    "ReducingStateDescriptor",
    "AggregatingStateDescriptor",
    "StateTtlConfig",
    "Types",
    "ColumnOptions",
    "Snapshot",
    "OperatorIdentifier",
    "OperatorTransformation",
    "SavepointReader",
    "SavepointWriter",
    "register",
    "rewrite_savepoint",
    "edit_savepoint",
    "SavepointUpgrade",
    "report_snapshot",
    "Migration",
    "propose_file",
    "SavepointMigration",
    "verify_snapshot",
    "plan_restore",
    "check_restore",
    "check_jar",
    "JobDescription",
    "JobOperator",
    "JobState",
    "aggregates",
    "changelog",
    "errors",
    "functions",
    "testing",
    "windows",
]
PUBLIC = {"dstl_core", "dstl_core.errors", "dstl_core.testing", "dstl_dagster"}
EXPORTED = {
    "changelog": [
        "ChangelogOptions",
        "FsStateChangelogStorage",
        "FsStateChangelogStorageForRecovery",
        "FsStateChangelogWriter",
        "InMemoryStateChangelogStorage",
        "InMemoryStateChangelogWriter",
        "JobID",
        "KeyGroupRange",
        "LocalChangelogRegistry",
        "LocalRecoveryConfig",
        "PersistFuture",
        "SnapshotResult",
        "StateChangelogHandleReader",
        "StateChangelogStorageLoader",
        "TaskChangelogRegistry",
    ],
    "changelog.upload": [
        "AvailabilityProvider",
        "BatchingStateChangeUploadScheduler",
        "DirectUploadScheduler",
        "DuplicatingStateChangeFsUploader",
        "RetriableAction",
        "RetryPolicy",
        "RetryingExecutor",
        "StateChangeFsUploader",
        "StateChangeUploadScheduler",
        "StateChangeUploader",
        "UploadResult",
        "UploadTask",
        "UploadTasksResult",
        "UploadThrottle",
    ],
    "cli": ["main"],
    "testing": [
        "CheckpointSimulation",
        "Fault",
        "FaultyFileIO",
        "ManualClock",
        "ManualScheduler",
        "MemoryFileIO",
        "SimulationError",
        "scripted_faults",
        "seeded_faults",
    ],
}
"""What packages export. The reference shows all of it; ``cli.main`` is the command ``dstl``."""
BASE_CLASSES = {name for name in NAMES if name.endswith("Function")} | {"RawStateOperator"}


def test_the_names_are_these() -> None:
    assert sorted(dstl_core.__all__) == sorted(NAMES)
    assert set(NAMES) <= set(dir(dstl_core))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_there_and_is_called_so(name: str) -> None:
    found = getattr(dstl_core, name)
    assert found.__name__.rpartition(".")[2] == name


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(dstl_core.__file__).read_text())
    (block,) = (each for each in tree.body if isinstance(each, ast.If))
    seen = [
        alias.name
        for each in block.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    ]
    assert sorted(seen) == sorted(NAMES)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'dstl_core' has no attribute 'KeyedState'"):
        dstl_core.KeyedState  # noqa: B018  # the access is what is tested


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after ``code``."""
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return set(ran.stdout.split())


def test_the_import_loads_nothing_of_ours_and_nothing_heavy() -> None:
    loaded = loaded_by("import dstl_core")
    assert {name for name in loaded if name.startswith("dstl_core")} == {"dstl_core"}
    assert (
        loaded & {"numpy", "pyarrow", "numba", "pandas", "pyspark", "pydantic", "fsspec"} == set()
    )


def test_looking_into_a_savepoint_loads_no_spark_and_no_arrow() -> None:
    loaded = loaded_by("from dstl_core import Snapshot, Types, KeyedProcessFunction, windows")
    assert "dstl_core.savepoint.read.snapshot" in loaded
    assert loaded & {"pyarrow", "numba", "pandas", "pyspark"} == set()


def test_the_base_classes_stand_in_one_module() -> None:
    for name in BASE_CLASSES:
        assert getattr(functions, name).__module__ == "dstl_core.functions", name
    elsewhere = {
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in sorted((ROOT / "dstl_core").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name in BASE_CLASSES
        if path != ROOT / "dstl_core" / "functions.py"
    }
    assert elsewhere == set()


@pytest.mark.parametrize("package", EXPORTED)
def test_a_public_package_exports_these_and_the_reference_shows_it(package: str) -> None:
    module = importlib.import_module(f"dstl_core.{package}")
    assert module.__all__ == EXPORTED[package]
    reference = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    assert package == "cli" or f"::: dstl_core.{package}\n" in reference


PACKAGES = {
    ".".join(path.parent.relative_to(ROOT / "dstl_core").parts): path
    for path in (ROOT / "dstl_core").rglob("__init__.py")
}
INTERNALS = sorted(set(PACKAGES) - {"", "codec.serializers"} - set(EXPORTED))
"""``codec.serializers`` is internal, and holds the registry of all modules in it."""


@pytest.mark.parametrize("package", INTERNALS)
def test_a_package_of_internals_exports_nothing(package: str) -> None:
    tree = ast.parse(PACKAGES[package].read_text())
    assert [type(each) for each in tree.body] == [ast.Expr], "its docstring, and nothing else"


# ------------------------------------------------------------------------------- documents

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.py")),
    ROOT / "definitions.py",
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_imports_only_what_is_public(page: Path) -> None:
    text = page.read_text()
    imported = re.findall(r"^[ >.]*from (dstl_\w[\w.]*) import", text, re.MULTILINE)
    imported += re.findall(r"^[ >.]*import (dstl_\w[\w.]*)", text, re.MULTILINE)
    assert set(imported) - PUBLIC == set()


def test_pages_import_something() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert text.count("from dstl_core import") > 10
