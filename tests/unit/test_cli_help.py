"""The command line explains itself: help, examples, version, completion; and starts fast."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dstl_core import AggregateOperator, LocalEngine, StatefulJob, __version__, aggregates
from dstl_core.cli.app import app
from dstl_core.cli.examples import EXAMPLES
from tests.command_line import run
from tests.golden_files import CHANGED_JOBS, CONNECTORS, GOLDEN, UPGRADE_JOBS, snapshot

__all__ = ["run"]

SINGLE = [each.callback.__name__ for each in app.registered_commands if each.callback]
COMMANDS = SINGLE + [
    f"{group.info.name} {registered_command.callback.__name__}"
    for group in (each.typer_instance for each in app.registered_groups)
    if group is not None
    for registered_command in group.registered_commands
    if registered_command.callback
]

PROGRESS = re.compile(r"\(\d+ %\)")
"""In a line that says how far a command is; a busy machine takes long enough for one."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the examples."""
    shutil.copytree(snapshot("a-hashmap-canonical"), tmp_path / "savepoint")
    shutil.copytree(snapshot("e-ttl-hashmap"), tmp_path / "newer")
    shutil.copytree(snapshot("a-hashmap-changelog-multi").parent, tmp_path / "checkpoints")
    shutil.copytree(GOLDEN / "a-hashmap-changelog-multi" / "dstl", tmp_path / "dstl")
    shutil.copytree(CONNECTORS / "c-kafka" / "savepoint", tmp_path / "kafka")
    shutil.copytree(snapshot("a-hashmap-canonical-flink1.20.5"), tmp_path / "flink-1")
    shutil.copyfile(UPGRADE_JOBS / "orders" / "job.jar", tmp_path / "job.jar")
    shutil.copytree(CHANGED_JOBS / "agg-reorder", tmp_path / "changed-job")
    (tmp_path / "changed-job.yaml").write_text(
        "migration: 1\nfrom: changed-job/old\nto_template: changed-job/new\n"
        "plans: {old: changed-job/old.plan.json, new: changed-job/new.plan.json}\n"
    )
    (tmp_path / "declared.yaml").write_text(
        "migration: 1\nfrom: changed-job/old\nto_template: changed-job/new\n"
        "operators: {3_group-aggregate: {states: {accState: {columns: [f1, f0, f2]}}}}\n"
    )
    operator = AggregateOperator("totals", "k", {"n": aggregates.count()}, "string")
    job = StatefulJob(LocalEngine(), "job", str(tmp_path / "jobs"), operator)
    job.run(pa.table({"k": ["key-4", "key-5"]}), 1)
    shutil.copytree(job.path.removeprefix("file:"), tmp_path / "pipeline")
    (tmp_path / "keys.txt").write_text("key-4\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_has_examples() -> None:
    assert len(COMMANDS) >= 8
    assert set(EXAMPLES) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_two_names_and_shows_the_examples(run: Any, command: str) -> None:
    ran = run(*command.split(), "-h")
    assert (ran.code, ran.err) == (0, "")
    assert run(*command.split(), "--help").out == ran.out
    assert ran.out.startswith(f"Usage: dstl {command} ")
    lines = [line.strip() for line in ran.out.splitlines()]
    for example, purpose in EXAMPLES[command]:
        assert any(line.startswith(f"{example} ") and line.endswith(purpose) for line in lines)


def test_the_summary_of_a_command_is_a_whole_sentence(run: Any) -> None:
    listed = run("-h").out
    listed = listed[listed.index("Commands:") :]
    for command in [*SINGLE, "migrate"]:
        [line] = [each for each in listed.splitlines() if each.split()[:1] == [command]]
        assert line.endswith(".")
        assert not line.endswith("..")


@pytest.mark.slow
@pytest.mark.parametrize(
    "example",
    [
        example
        for command, group in EXAMPLES.items()
        for example, _ in group
        if command
        not in ("browse", "warm")  # test_browse has a terminal; test_warm calls the other
    ],
)
def test_every_example_runs(run: Any, folder: Path, example: str) -> None:
    name, *arguments = shlex.split(example)
    assert name == "dstl"
    ran = run(*arguments)
    assert ran.code in (0, 1)
    assert ran.out
    complaints = [line for line in ran.err.splitlines() if not PROGRESS.search(line)]
    assert not any(line.startswith("dstl: ") for line in complaints)


def test_the_version_is_printed(run: Any) -> None:
    ran = run("--version")
    assert (ran.code, ran.out, ran.err) == (0, f"dstl {__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "position", "expected"),
    [("dstl ins", 1, "inspect"), ("dstl gc --older", 2, "--older-than")],
)
def test_a_shell_completes_commands_and_options(words: str, position: int, expected: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "dstl_core.cli"],
        env={
            **os.environ,
            "_DSTL_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(position),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout.split() == [expected]


def test_help_loads_nothing_that_takes_time() -> None:
    slow = ("rich", "fsspec", "pydantic", "numpy", "dstl_core.savepoint", "dstl_core.storage")
    code = (
        "import sys\nfrom dstl_core.cli import main\ntry:\n    main(['-h'])\nexcept SystemExit:\n"
        f"    print(sorted(set({slow!r}) & set(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.startswith("Usage: dstl ")
    assert ran.stderr == "[]\n"
