"""Every command over every golden snapshot: it answers, or says in one sentence why it does not.

What the answers say is for the tests of each command. Here no command may end with the error of a
parser or of a library, whatever real Flink has written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import typer

from dstl_core.cli.app import app
from dstl_core.errors import flags_in_messages
from tests.golden_files import ALL_SNAPSHOTS, GOLDEN, PIPELINE, SNAPSHOTS

DSTL = typer.main.get_command(app)
"""The commands, which are asked for their options, too."""


FINE, FINDINGS = frozenset({0}), frozenset({0, 1})


class Command(NamedTuple):
    """A call of the command line; ``PATH`` stands for the snapshot, ``OUT`` for a new place.

    Args:
        arguments: What is called.
        codes: The exit codes of an answer: 0 for fine, 1 for findings.
        refusals: What the sentence of exit code 2 may say.
        reads: ``json``, ``lines`` of JSON, or ``text``.
    """

    arguments: tuple[str, ...]
    codes: frozenset[int] = FINE
    refusals: tuple[str, ...] = ()
    reads: str = "text"


NOT_OF_FLINK_1 = ("The snapshot is of Flink 2.x already",)
RUNNING_JOB = ("only that job knows which files it still uses",)
IN_FLIGHT = ("has in-flight data of an unaligned checkpoint",)
ELSEWHERE = ("A state handle is refused",)
"""Only the snapshot of a pipeline that was moved names files in another folder."""

HEADERS = [
    Command(("inspect", "PATH")),
    Command(("inspect", "PATH", "--json"), reads="json"),
    Command(("ls", "PATH")),
    Command(("check", "PATH", "--expect", "PATH", "--to", "2.2"), FINDINGS),
    Command(("upgrade", "PATH", "--plan"), FINDINGS, NOT_OF_FLINK_1),
    Command(("rewrite", "PATH", "OUT", "--dry-run"), refusals=IN_FLIGHT),
    Command(("rewrite", "PATH", "OUT", "--dry-run", "--json"), FINE, IN_FLIGHT, "json"),
    Command(("offsets", "PATH"), FINDINGS),
    Command(("offsets", "PATH", "--json"), FINDINGS, reads="lines"),
    Command(("committables", "PATH"), FINDINGS),
    Command(("committables", "PATH", "--json"), FINDINGS, reads="lines"),
    Command(("gc", "PATH"), refusals=RUNNING_JOB),
    Command(("report", "PATH", "--headers-only", "--json"), reads="json"),
]
"""Those that read metadata, headers and operator state."""
CHECKED_ELSEWHERE = [
    Command(("dump", "PATH", "--opaque"), reads="lines"),
    Command(("verify", "PATH", "--json"), reads="json"),
    Command(("changelog", "PATH"), reads="lines"),
]
OTHERS = [
    Command(("verify", "PATH")),
    Command(("diff", "PATH", "PATH", "--json"), reads="lines"),
    Command(("report", "PATH", "--show-keys", "-o", "OUT.html")),
]
CONTENTS = [*CHECKED_ELSEWHERE, *OTHERS]
"""Those that read every record."""
CHECKED = {fixture.snapshot for fixture in SNAPSHOTS}
"""For these, ``test_cli_formats.py`` calls the first three commands and looks at the answers."""


def called(arguments: list[str]) -> int:
    with flags_in_messages(), pytest.raises(SystemExit) as ended:
        DSTL.main(args=arguments, prog_name="dstl", obj={"debug": False})
    return int(ended.value.code or 0)


def options_of_others(command: Command, text: str) -> set[str]:
    """Options in sentences that are neither the command's nor those of a command named there."""
    own = {option for each in DSTL.commands[command.arguments[0]].params for option in each.opts}
    without_calls = re.sub(r"dstl [a-z]+ [^;,]*", "", text)
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", without_calls)) - own


def problem(command: Command, is_moved: bool, code: int, out: str, err: str) -> str | None:
    """What is wrong with an answer; None if nothing is."""
    notes = err.splitlines()
    if any(not line.startswith("dstl: ") for line in notes) or "Traceback" in err:
        return f"stderr is not in sentences: {err[:500]}"
    unknown = options_of_others(command, err + (out if command.reads == "text" else ""))
    if unknown:
        return f"the advice names options that the command does not have: {unknown}"
    refusals = command.refusals + (ELSEWHERE if is_moved else ())
    if code == 2:
        is_known = any(refusal in notes[-1] for refusal in refusals) if notes else False
        return None if is_known else f"refused: {err[:500]}"
    if code not in command.codes and not is_moved:
        return f"exit code {code}: {err[:500]}"
    readers: dict[str, Callable[[str], object]] = {
        "json": json.loads,
        "lines": lambda text: [json.loads(line) for line in text.splitlines()],
        "text": str,
    }
    readers[command.reads](out)
    return None


def problems(
    commands: list[Command], path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    texts = []
    places = {"PATH": str(path), "OUT": str(out), "OUT.html": f"{out}.html"}
    for command in commands:
        code = called([places.get(each, each) for each in command.arguments])
        captured = capsys.readouterr()
        wrong = problem(command, PIPELINE in path.parents, code, captured.out, captured.err)
        if wrong is not None:
            texts.append(f"dstl {' '.join(command.arguments)}: {wrong}")
    return texts


def name(path: Path) -> str:
    folder = path.relative_to(GOLDEN)
    return "-".join(folder.parts[:2]) if len(folder.parts) > 1 else folder.name


EVERY = pytest.mark.parametrize("path", ALL_SNAPSHOTS, ids=name)


@pytest.mark.slow
@EVERY
def test_every_command_that_reads_headers_answers(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert problems(HEADERS, path, tmp_path / "out", capsys) == []


@pytest.mark.slow
@EVERY
def test_every_command_that_reads_records_answers(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = OTHERS if path in CHECKED else CONTENTS
    assert problems(commands, path, tmp_path / "out", capsys) == []


def test_every_command_is_called() -> None:
    called_here = {command.arguments[0] for command in HEADERS + CONTENTS}
    # A migration needs a declaration of two jobs: tests of migrations have them. To warm the
    # kernels takes no snapshot, and the browser needs a terminal: test_browse has one. Keys are
    # erased from a pipeline with its log: test_erasure has some.
    assert called_here | {"migrate", "warm", "browse", "erase"} == set(
        DSTL.list_commands(typer.Context(DSTL))
    )
