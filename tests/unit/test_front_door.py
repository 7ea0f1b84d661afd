"""What users import: the names of ``dstl_core``, and nothing below it."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dstl_core
from dstl_core import functions
from tests.docs.fences import Block, blocks_of, name_of, pages

ROOT = Path(__file__).parents[2]

NAMES = [
    "StatefulJob",
    "KeyedOperator",
    "ProcessOperator",
    "AggregateOperator",
    "HashMapStateBackend",
    "EmbeddedRocksDBStateBackend",
    "ValueStateDescriptor",
    "ListStateDescriptor",
    "LocalEngine",
    "MapStateDescriptor",
    "ReducingStateDescriptor",
    "AggregatingStateDescriptor",
    "StateTtlConfig",
    "Types",
    "Snapshot",
    "OperatorIdentifier",
    "OperatorTransformation",
    "SavepointReader",
    "SavepointWriter",
    "register",
    "rewrite_savepoint",
    "edit_savepoint",
    "report_snapshot",
    "verify_snapshot",
    "check_restore",
    "aggregates",
    "errors",
    "functions",
    "savepoint",
    "windows",
]
MODULES = {
    "dstl_core",
    "dstl_core.errors",
    "dstl_core.functions",
    "dstl_core.sinks",
    "dstl_core.windows",
    "dstl_dagster",
    "dstl_dagster.checks",
    "dstl_dagster.pipelines",
    "dstl_dagster.resources",
    "dstl_dagster.snapshots",
}
"""Public modules besides the packages of ``EXPORTED``."""
EXPORTED = {
    "aggregates": [
        "Aggregate",
        "approx_count_distinct",
        "avg",
        "bool_and",
        "bool_or",
        "collect_list",
        "collect_set",
        "corr",
        "count",
        "count_null",
        "covar_samp",
        "decayed_sum",
        "first",
        "first_row",
        "histogram",
        "last",
        "last_row",
        "last_values",
        "max",
        "max_by",
        "min",
        "min_by",
        "quantiles",
        "stddev",
        "sum",
        "top",
        "value_counts",
        "variance",
    ],
    "changelog": [
        "ChangelogOptions",
        "ChangelogStateHandleStream",
        "FsStateChangelogStorage",
        "FsStateChangelogStorageForRecovery",
        "FsStateChangelogWriter",
        "InMemoryStateChangelogStorage",
        "InMemoryStateChangelogWriter",
        "JobID",
        "KeyGroupRange",
        "LocalChangelogRegistry",
        "LocalRecoveryConfig",
        "MetricGroup",
        "PersistFuture",
        "SequenceNumber",
        "SnapshotResult",
        "StateChange",
        "StateChangelogHandleReader",
        "StateChangelogStorage",
        "StateChangelogStorageFactory",
        "StateChangelogStorageLoader",
        "StateChangelogStorageView",
        "StateChangelogWriter",
        "TaskChangelogRegistry",
    ],
    "changelog.upload": [
        "AvailabilityProvider",
        "BatchingStateChangeUploadScheduler",
        "ChangelogStorageMetricGroup",
        "DirectUploadScheduler",
        "DuplicatingStateChangeFsUploader",
        "FileStateHandle",
        "RetriableAction",
        "RetryPolicy",
        "RetryingExecutor",
        "Scheduler",
        "StateChangeFsUploader",
        "StateChangeSet",
        "StateChangeUploadScheduler",
        "StateChangeUploader",
        "ThreadScheduler",
        "UploadResult",
        "UploadTask",
        "UploadTasksResult",
        "UploadThrottle",
    ],
    "checkpoint": [
        "AcknowledgeCheckpoint",
        "AcknowledgeCoordinatorState",
        "AcknowledgeMasterState",
        "Acknowledged",
        "Action",
        "BacklogChanged",
        "ByteStreamStateHandle",
        "ChangelogStateBackendHandle",
        "CheckpointCleaned",
        "CheckpointCommitted",
        "CheckpointConfig",
        "CheckpointCoordinator",
        "CheckpointCoordinatorGateway",
        "CheckpointFailureManager",
        "CheckpointFailureReason",
        "CheckpointIDCounter",
        "CheckpointInitialized",
        "CheckpointMetaData",
        "CheckpointMetadata",
        "CheckpointOptions",
        "CheckpointPlan",
        "CheckpointProperties",
        "CheckpointRetentionPolicy",
        "CheckpointStorage",
        "CheckpointTask",
        "CheckpointTasks",
        "ClaimLost",
        "Clock",
        "CommitCheckpoint",
        "CommitFailed",
        "CompleteRequest",
        "CompletedCheckpoint",
        "CompletedCheckpointStore",
        "DeclineCheckpoint",
        "DiscardState",
        "DiscardSubsumed",
        "EpochFacts",
        "Event",
        "FailJob",
        "FailRequest",
        "FileStateHandle",
        "FileSystemCheckpointStorage",
        "InitializationFailed",
        "InitializeCheckpoint",
        "JobID",
        "JobLayout",
        "JobStatus",
        "KeyGroupRangeOffsets",
        "KeyGroupsSavepointStateHandle",
        "KeyGroupsStateHandle",
        "MasterTriggerRestoreHook",
        "NotifyCheckpointAborted",
        "NotifyCheckpointComplete",
        "NotifyCheckpointSubsumed",
        "OperatorCoordinator",
        "OperatorID",
        "OperatorPlan",
        "OperatorState",
        "OperatorStreamStateHandle",
        "OperatorSubtaskState",
        "PendingCheckpoint",
        "RecordAbort",
        "RestoredState",
        "SavepointFormatType",
        "Shutdown",
        "StartCheckpointScheduler",
        "StopCheckpointScheduler",
        "SystemClock",
        "TaskAcknowledgeResult",
        "TaskFailed",
        "TasksChanged",
        "ThreadScheduler",
        "TimerScheduler",
        "TriggerCheckpoint",
        "TriggerMasterHooks",
        "TriggerOperatorCoordinators",
        "TriggerTasks",
    ],
    "cli": [
        "main",
    ],
    "savepoint": [
        "ColumnOptions",
        "FlinkInstallation",
        "JobDescription",
        "JobOperator",
        "JobState",
        "Migration",
        "OperatorIdentifier",
        "OperatorSnapshot",
        "SavepointEdit",
        "SavepointMigration",
        "SavepointUpgrade",
        "Snapshot",
        "SnapshotReport",
        "check_restore",
        "edit_savepoint",
        "propose_file",
        "report_snapshot",
        "rewrite_savepoint",
        "verify_snapshot",
    ],
    "state": [
        "BUILT_IN",
        "AggregatingStateDescriptor",
        "DataInput",
        "DataOutput",
        "EmbeddedRocksDBStateBackend",
        "HashMapStateBackend",
        "KeyedStateBackendParameters",
        "ListStateDescriptor",
        "MapStateDescriptor",
        "ReducingStateDescriptor",
        "SerializerRegistry",
        "SnapshotContext",
        "StateBackend",
        "StateBackendFactory",
        "StateTtlConfig",
        "TypeSerializer",
        "Types",
        "ValueStateDescriptor",
        "load_state_backend",
        "register_state_backend",
    ],
    "storage": [
        "FileIO",
        "FileStatus",
        "FsspecFileIO",
        "JobLayout",
        "Location",
        "open_file_io",
    ],
    "testing": [
        "Fault",
        "FaultyFileIO",
        "ManualClock",
        "ManualScheduler",
        "MemoryFileIO",
        "scripted_faults",
        "seeded_faults",
    ],
}
"""What packages export. The reference shows all of it; ``cli.main`` is the command ``dstl``."""
PUBLIC = MODULES | {f"dstl_core.{package}" for package in EXPORTED if package != "cli"}
"""What a page may import from."""
LAZY = ["checkpoint", "savepoint", "state", "storage"]
"""Packages that load the module of a name on its first use."""
PLUGIN = ["checks", "pipelines", "resources", "snapshots"]
"""The same, of the plugin."""
ONE_LIST = [
    "dstl_core",
    "dstl_dagster",
    *(f"dstl_core.{name}" for name in LAZY),
    *(f"dstl_dagster.{name}" for name in PLUGIN),
]
BASE_CLASSES = {
    name
    for name, value in vars(functions).items()
    if inspect.isclass(value)
    if name.endswith("Function") and value.__module__ == functions.__name__
} | {"RawStateOperator"}
"""The base classes of user functions."""


def test_the_names_are_these() -> None:
    assert sorted(dstl_core.__all__) == sorted(NAMES)
    assert set(NAMES) <= set(dir(dstl_core))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_there_and_is_called_so(name: str) -> None:
    member = getattr(dstl_core, name)
    assert member.__name__.rpartition(".")[2] == name


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


@pytest.mark.slow
def test_the_import_loads_nothing_of_ours_and_nothing_heavy() -> None:
    loaded = loaded_by("import dstl_core")
    assert {name for name in loaded if name.startswith("dstl_core")} == {
        "dstl_core",
        "dstl_core.lazy_names",
    }
    assert (
        loaded & {"numpy", "pyarrow", "numba", "pandas", "pyspark", "pydantic", "fsspec"} == set()
    )


def test_looking_into_a_savepoint_loads_no_spark_and_no_arrow() -> None:
    loaded = loaded_by("from dstl_core import Snapshot, Types, functions, windows")
    assert "dstl_core.savepoint.read.snapshot" in loaded
    assert loaded & {"pyarrow", "numba", "pandas", "pyspark"} == set()


def test_declaring_aggregates_loads_no_compiler() -> None:
    """Each process of Dagster loads the definitions of pipelines."""
    loaded = loaded_by("from dstl_core import aggregates as a; a.sum('v'); a.max_by('v', 't')")
    assert "dstl_core.aggregates.sums" in loaded
    assert loaded & {"numba", "llvmlite", "pandas", "pyspark"} == set()


@pytest.mark.slow
def test_the_base_classes_stand_in_one_module() -> None:
    assert len(BASE_CLASSES) >= 14
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
    assert sorted(module.__all__) == sorted(EXPORTED[package])
    reference = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    assert package == "cli" or f"::: dstl_core.{package}\n" in reference


@pytest.mark.parametrize("package", sorted(set(EXPORTED) - {"cli"}))
def test_every_name_of_a_public_package_is_there(package: str) -> None:
    module = importlib.import_module(f"dstl_core.{package}")
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert set(EXPORTED[package]) <= set(dir(module))
    with pytest.raises(AttributeError, match=f"module 'dstl_core.{package}' has no attribute 'No"):
        module.NoSuchName  # noqa: B018  # the access is what is tested


@pytest.mark.parametrize("package", LAZY)
def test_a_lazy_package_loads_nothing_of_its_own(package: str) -> None:
    loaded = loaded_by(f"import dstl_core.{package}")
    assert {name for name in loaded if name.startswith("dstl_core")} == {
        "dstl_core",
        "dstl_core.lazy_names",
        f"dstl_core.{package}",
    }


@pytest.mark.parametrize("package", ONE_LIST)
def test_type_checkers_see_the_names_of_a_lazy_package(package: str) -> None:
    """Only ``import X as X`` makes a name public for them."""
    module = importlib.import_module(package)
    assert module.__file__ is not None
    (block,) = (
        statement
        for statement in ast.parse(Path(module.__file__).read_text()).body
        if isinstance(statement, ast.If)
    )
    aliases = [
        alias
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    ]
    assert [alias.name for alias in aliases if alias.asname != alias.name] == []
    assert {alias.name for alias in aliases} - {"__version__"} == set(module.__all__)


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


Import = tuple[str, str | None]
"""A module, and the name that is imported from it."""


def imports_of(code: str) -> set[Import]:
    """The imports from our packages in a piece of code, wherever they stand in it."""
    imports: set[Import] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            imports |= {(alias.name, None) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            imports |= {(node.module, alias.name) for alias in node.names}
    return {(module, name) for module, name in imports if module.startswith("dstl_")}


def code_of(block: Block) -> str:
    """The Python of a block: all of it, or what a reader types at the prompt."""
    if block.language != "pycon":
        return block.text
    lines = [line for line in block.text.splitlines() if line[:3] in (">>>", "...")]
    return "".join(line[4:] + "\n" for line in lines)


def is_public(module: str, name: str | None) -> bool:
    if module not in PUBLIC:
        return False
    exported = getattr(importlib.import_module(module), "__all__", None)
    return name is None or exported is None or name in exported or f"{module}.{name}" in PUBLIC


CODE = [
    *(
        (block.place, code_of(block))
        for page in pages()
        for block in blocks_of(name_of(page), page.read_text())
        if block.language in ("python", "pycon")
    ),
    *((str(path.relative_to(ROOT)), path.read_text()) for path in PAGES if path.suffix == ".py"),
]


@pytest.mark.parametrize(("place", "code"), CODE, ids=[place for place, _ in CODE])
def test_code_that_a_reader_copies_imports_public_names_only(place: str, code: str) -> None:
    assert [pair for pair in imports_of(code) if not is_public(*pair)] == []


ABOUT_INTERNALS = ("docs/internals/", "docs/decisions/", "docs/flink-map.md", "CONTRIBUTING.md")


@pytest.mark.parametrize(
    "page",
    [page for page in pages() if not name_of(page).startswith(ABOUT_INTERNALS)],
    ids=name_of,
)
def test_a_page_for_users_names_public_modules_only(page: Path) -> None:
    named = re.findall(r"\bdstl_core(?:\.\w+)+", page.read_text())
    wrong = [name for name in named if name not in PUBLIC and not is_public(*name.rsplit(".", 1))]
    assert wrong == []


@pytest.mark.parametrize(
    "code",
    [
        "from dstl_core.checkpoint.store.properties import JobStatus",
        "def f():\n    import dstl_core.changelog.writer as w",
        "from dstl_core.checkpoint import RecordWriter",
        "from dstl_core import model",
        "import dstl_core.model.ids",
    ],
)
def test_internal_imports_are_seen(code: str) -> None:
    assert not all(is_public(*pair) for pair in imports_of(code))


OWN_PARTS = {
    "changelog.md": [
        "(StateChangeUploader)",
        "(StateChangeUploadScheduler)",
        "(FsspecFileIO)",
        "LocalRecoveryConfig(",
        "(TypeSerializer[int])",
    ],
    "coordinator.md": [
        "(CheckpointTasks)",
        "CheckpointCoordinatorGateway(",
        "CompletedCheckpointStore.from_config(",
        "CheckpointPlan.of_operators(",
        "DeclineCheckpoint(",
    ],
}
"""What a user may write instead of the product's own part, by the page that shows it."""


@pytest.mark.parametrize("page", OWN_PARTS)
def test_a_page_shows_each_part_that_a_user_may_write(page: str) -> None:
    code = "".join(text for place, text in CODE if place.startswith(f"docs/how-to/{page}:"))
    assert [part for part in OWN_PARTS[page] if part not in code] == []


def test_pages_import_something() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert text.count("from dstl_core import") > 10
