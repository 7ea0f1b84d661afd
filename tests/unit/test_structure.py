"""The shape of the code: no circles, no halls. Imports inside functions count."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("dstl_core", "dstl_dagster")
MOST_MODULES = 20
"""Modules of one folder, without its ``__init__``."""


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for each in PACKAGES for path in (ROOT / each).rglob("*.py")}


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module: several tests go through them, and none changes one."""
    return tuple(ast.walk(ast.parse(path.read_text())))


@functools.cache
def imported(path: Path) -> frozenset[str]:
    """Our own modules that a file imports, wherever in it the import stands."""
    return frozenset(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                if below in MODULES or node.module in MODULES:
                    yield below if below in MODULES else node.module


def circle_in(graph: Mapping[str, Collection[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_a_circle_is_found() -> None:
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}})


@pytest.mark.parametrize("package", PACKAGES)
def test_no_modules_import_each_other_in_a_circle(package: str) -> None:
    own = {name for name in MODULES if name.split(".")[0] == package}
    # A front door imports what is behind it, and nothing behind it comes in by the front door.
    graph = {name: imported(MODULES[name]) & own - {name} for name in own}
    assert circle_in(graph) == []


def test_no_folder_is_a_hall() -> None:
    modules = Counter(path.parent for path in MODULES.values() if path.name != "__init__.py")
    halls = {str(folder): count for folder, count in modules.items() if count > MOST_MODULES}
    assert halls == {}


def test_one_class_reads_the_commit_log() -> None:
    """``CompletedCheckpointStore``, with the modules of its room. All others ask the store."""
    log = {"dstl_core.storage.commit_log", "dstl_core.storage.log_record"}
    readers = {name for name, path in MODULES.items() if log & imported(path)}
    rooms = {name.rpartition(".")[0] for name in readers}
    assert rooms == {"dstl_core.storage", "dstl_core.checkpoint.store"}
    holders = {name for name, path in MODULES.items() if "CommitLog(" in path.read_text()}
    assert holders == {"dstl_core.checkpoint.store.completed_store"}


SAME_STEMS = {
    "subtask": "one is the subtask of an operator, the other runs it in a Spark task",
}


def test_a_module_of_dstl_core_has_a_name_of_its_own() -> None:
    paths = [path for name, path in MODULES.items() if name.startswith("dstl_core.")]
    stems = Counter(path.stem for path in paths if path.stem not in ("__init__", "__main__"))
    assert {stem for stem, count in stems.items() if count > 1} == set(SAME_STEMS)
    assert len(SAME_STEMS) <= 3


def test_no_two_classes_have_one_name() -> None:
    names = Counter(
        node.name
        for path in MODULES.values()
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} == set()


SMALL_LINES = 80
KERNELS = "kernels stand apart from what calls them"
COMMAND = "a command, which is loaded when it is called"
COMPILER = "loads the compiler, which its caller needs for some state only"
FACE = "users import it"
SMALL = {
    "dstl_core.checkpoint.coordination.periodic": "times alone: the coordinator has the rest",
    "dstl_core.cli.browse.browse_command": COMMAND,
    "dstl_core.cli.gc_command": COMMAND,
    "dstl_core.cli.verify_command": COMMAND,
    "dstl_core.cli.warm_command": COMMAND,
    "dstl_core.codec.classfile.case_classes": "class files are read in their room",
    "dstl_core.codec.columnar.kernels.join": KERNELS,
    "dstl_core.codec.columnar.keyed.spill": "calls a kernel, and its caller none",
    "dstl_core.codec.connectors.pulsar_source": "each connector is a module",
    "dstl_core.job.coordination.micro_batches": "ids alone: its tests need no job",
    "dstl_core.job.coordination.exclusive_use": "a lock, which knows no job",
    "dstl_core.job.coordination.stored_output": "reads what others wrote: a job has verbs alone",
    "dstl_core.prometheus": FACE,
    "dstl_core.savepoint.access.record_lookup": COMPILER,
    "dstl_core.savepoint.columns.job_columns": "reads jars, which its caller does not know",
    "dstl_core.savepoint.columns.shown_columns": "chooses for its caller, which knows no forms",
    "dstl_core.savepoint.connectors.position_table": "loads Arrow; positions are shown without",
    "dstl_core.savepoint.report.growth": COMPILER,
    "dstl_core.sinks": FACE,
    "dstl_core.state.tables.rescale": "tables alone: its tests know no savepoint",
    "dstl_core.storage.range_reader": "an object of Python's io, which knows no store",
}
"""Modules below ``SMALL_LINES`` that at most one other imports, and why they are not in it."""


def test_a_small_module_for_one_other_has_a_reason() -> None:
    importers: dict[str, set[str]] = {name: set() for name in MODULES}
    for name, path in MODULES.items():
        for used in imported(path) - {name}:
            importers[used].add(name)
    small = {
        name
        for name, path in MODULES.items()
        if not path.name.startswith("__")
        and len(importers[name]) <= 1
        and len(path.read_text().splitlines()) < SMALL_LINES
    }
    assert small == set(SMALL)


WIDE = {"DstlError", "Exception", "BaseException"}
SILENT = {
    "dstl_core.job.task.column_state": "a local copy: the restore reads the store itself",
    "dstl_core.job.task.warm_backend": "a local copy: the restore reads the store itself",
    "dstl_core.state.backends.rocksdb_store": "the database that is closed is deleted",
    "dstl_core.storage.file_io": "a second error, while the first one is raised",
    "dstl_core.storage.multipart": "a second error, while the first one is raised",
    "dstl_core.storage.publish_once": "a second error, after the first one",
    "dstl_core.storage.signed_reads": "the file system reads the same, and its error says why",
    "dstl_dagster.resources.spark_resource": "the question is whether the session answers",
}
"""Modules that catch any error and do not pass it on, and why it is no answer to a question."""


ANSWERED = {
    "dstl_core.savepoint.access.unit_pool": "raised in the thread that waits for the processes",
    "dstl_core.spark.savepoints.spark_units": "raised again on the driver",
    "dstl_core.cli.browse.browsed_entries": "raised at the next page, after the entries before it",
    "dstl_core.cli.browse.browser": "the screen says it, and goes on",
    "dstl_core.changelog.inbox": "a callback of the user: the writer goes on, and logs it",
    "dstl_core.changelog.persist": "a callback of the user",
    "dstl_core.changelog.upload.retry": "the waiting tasks get the error",
    "dstl_core.changelog.upload.scheduler": "the task gets the error; a callback of the user",
    "dstl_core.changelog.upload.task": "raised when all tasks were told",
    "dstl_core.checkpoint.coordination.action_runner": "the protocol declines or doubts",
    "dstl_core.checkpoint.store.cleaner": "a file stays for gc",
    "dstl_core.checkpoint.store.completed_store": "a file stays for gc",
    "dstl_core.cli.dump_lines": "the command prints it, and its exit code says so",
    "dstl_core.cli.ls_command": "the row of the snapshot shows it",
    "dstl_core.savepoint.folders.listing": "the row of the snapshot shows it",
    "dstl_core.scheduling": "a thread that others wait for goes on",
    "dstl_core.state.backends.materialization": "the future gets the error",
    "dstl_core.testing.manual": "the test gets the error",
    "dstl_dagster.checks.store_checks": "raised when the other checks are done",
    "dstl_dagster.pipelines.epoch_metadata": "the metadata of the commit says so",
    "dstl_dagster.pipelines.epochs": "a warning of the run; the epoch is committed, its log stays",
}
"""Modules that catch any error, do not raise it again, and tell it: whom, and why that is enough.

What answers whether state can be read catches ``errors.DAMAGED`` instead.
"""


def names_in(node: ast.AST | None) -> set[str]:
    return set() if node is None else {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def is_silent(node: ast.AST) -> bool:
    """Whether code catches any error of dstl and loses it: the error is neither raised again, nor
    used as a value, nor logged with its traceback.
    """
    if isinstance(node, ast.Call) and names_in(node.func) == {"suppress"}:
        return any(names_in(argument) & WIDE for argument in node.args)
    if not isinstance(node, ast.ExceptHandler):
        return False
    if node.type is not None and not names_in(node.type) & WIDE:
        return False
    body = [below for part in node.body for below in ast.walk(part)]
    logs = any(isinstance(each, ast.Attribute) and each.attr == "exception" for each in body)
    used = any(isinstance(each, ast.Name) and each.id == node.name for each in body)
    return not (logs or used or isinstance(node.body[-1], ast.Raise))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("with suppress(DstlError): pass", True),
        ("with suppress(NotInColumnsError): pass", False),
        ("try: pass\nexcept DstlError: x = None", True),
        ("try: pass\nexcept (OSError, Exception): pass", True),
        ("try: pass\nexcept: pass", True),
        ("try: pass\nexcept DstlError as e: x = None", True),
        ("try: pass\nexcept DstlError as e: x = str(e)", False),
        ("try: pass\nexcept DstlError: raise", False),
        ("try: pass\nexcept FormatError: pass", False),
    ],
)
def test_a_silent_catch_is_recognized(text: str, expected: bool) -> None:
    assert any(map(is_silent, ast.walk(ast.parse(text)))) is expected


def test_no_error_of_a_store_is_lost_in_a_wide_catch() -> None:
    """Whoever has another way names the errors that lead there (``errors.UNREADABLE``)."""
    silent = {name for name, path in MODULES.items() if any(map(is_silent, nodes_of(path)))}
    assert silent == set(SILENT)


def catches_any(node: ast.AST) -> bool:
    """Whether code catches any error of dstl, and raises none for it."""
    if not isinstance(node, ast.ExceptHandler):
        return is_silent(node)
    if node.type is not None and not names_in(node.type) & WIDE:
        return False
    return not any(isinstance(below, ast.Raise) for part in node.body for below in ast.walk(part))


def test_what_catches_any_error_has_a_reason() -> None:
    catching = {name for name, path in MODULES.items() if any(map(catches_any, nodes_of(path)))}
    assert catching == set(SILENT) | set(ANSWERED)


OPTION = re.compile(r"(^|[\s('])(--[a-z-]+[ =]|dstl [a-z]+ ['\"]?)$")
UNQUOTED = {
    "dstl_core.savepoint.restores.flink_answers": "a constant",
    "dstl_core.model.job_vertex": "a number",
}
"""Modules that put a value behind an option, and why a shell cannot misread it."""


def puts_a_value_behind_an_option(node: ast.AST) -> bool:
    """Whether an f-string ends with an option, or with the name of a command, before a value."""
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    return any(
        isinstance(part, ast.Constant)
        and OPTION.search(str(part.value)) is not None
        and isinstance(value, ast.FormattedValue)
        and not names_in(value.value) & {"option_text", "command_text"}
        for part, value in pairwise(parts)
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('f"run dstl rewrite --rename {old}"', True),
        ('f"(--unchanged {label})"', True),
        ("f\"--type '{label}'\"", False),
        ('f"dstl dump {path}"', True),
        ('f"dstl rewrite {option_text(name, value)}"', False),
        ('f"give --jar; {what}"', False),
    ],
)
def test_a_value_behind_an_option_is_recognized(text: str, expected: bool) -> None:
    is_seen = any(map(puts_a_value_behind_an_option, ast.walk(ast.parse(text))))
    assert is_seen is expected


def test_names_in_advice_are_quoted_for_a_shell_in_one_place() -> None:
    """``display.option_text`` and ``display.command_text``: a name may hold any character."""
    unquoted = {
        name
        for name, path in MODULES.items()
        if any(map(puts_a_value_behind_an_option, nodes_of(path)))
    }
    assert unquoted == set(UNQUOTED)
    assert {name for name, path in MODULES.items() if "import shlex" in path.read_text()} == {
        "dstl_core.display"
    }


PICKLES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal", "joblib"}
LENT = {"dstl_core.spark.engine.session": {"PicklingError"}}
"""Modules that take a name of ``pickle`` which reads nothing."""


def test_no_module_can_run_a_pickle() -> None:
    """A pickle is a program. Stored and foreign ones are read by ``codec.pyflink`` alone."""
    taken: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        for node in nodes_of(path):
            if isinstance(node, ast.Import):
                names = {each.name for each in node.names if each.name.split(".")[0] in PICKLES}
            elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in PICKLES:
                names = {each.name for each in node.names}
            elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                is_off = isinstance(node.value, ast.Constant) and node.value.value is False
                names = set() if is_off else {"allow_pickle"}
            elif isinstance(node, ast.Attribute) and node.attr in ("read_pickle", "find_class"):
                names = {node.attr}
            else:
                continue
            if names:
                taken.setdefault(name, set()).update(names)
    assert taken == LENT
