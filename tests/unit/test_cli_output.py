"""The command line as a process, and what it prints of foreign characters."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.checkpoint.store.metadata_file import publish_metadata_file
from dstl_core.cli.output import ProgressLines, to_json
from dstl_core.codec.serializers import Types
from dstl_core.display import printable
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    KeyGroupsSavepointStateHandle,
)
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.backends.backend import HashMapKeyedStateBackend
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from dstl_core.testing import ManualClock
from tests.command_line import run
from tests.golden_files import snapshot
from tests.warm_commands import CALLERS, OF_DSTL, VARIABLE, warm_commands

CANONICAL = str(snapshot("a-hashmap-canonical"))
__all__ = ["run"]
Terminal = Callable[..., tuple[int, str]]


# ------------------------------------------------------------------------ foreign characters

CONTROLS = "".join(map(chr, (*range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, 0x2028, 0x2029)))
CONTROLS += "".join(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF, 0xE0001)))
"""What steers a terminal beside the controls of ASCII, which JSON escapes, and turns its text."""
EVIL = CONTROLS + "[red]x[/red] :smile: [/] \x1b[2Jwipe\r\n\u202eevil \ud800"


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A snapshot whose names, keys and values are as bad as they can be."""
    state = KeyedState(KeyGroupRange(0, 127), 128)
    backend = HashMapKeyedStateBackend(state, Types.STRING)
    backend.set_current_key(EVIL)
    backend.get_value_state(ValueStateDescriptor(EVIL, Types.STRING)).update(EVIL)
    backend.get_value_state(ValueStateDescriptor("float", Types.DOUBLE)).update(float("nan"))
    raw, offsets = state.write_canonical()
    handle = KeyGroupsSavepointStateHandle(offsets, ByteStreamStateHandle("h", raw))
    subtask = OperatorSubtaskState(0, managed_keyed_state=handle)
    operator = OperatorState(OperatorID.for_uid("evil"), 1, 128, (subtask,), name=EVIL, uid=EVIL)
    properties = Snapshot.load(CANONICAL).metadata.properties
    folder = Location.parse(tmp_path / "evil")
    metadata = CheckpointMetadata(6, 1, (operator,), properties=properties)
    publish_metadata_file(open_file_io(folder), folder, metadata, {"note": EVIL})
    return tmp_path / "evil"


def test_json_is_valid_whatever_stands_in_it(run: Any, evil: Path) -> None:
    ran = run("inspect", str(evil), "--json")
    assert (ran.code, ran.err) == (0, "")
    summary = json.loads(ran.out)
    [operator] = summary["operators"]
    assert operator["uid"] == operator["name"] == EVIL
    assert summary["written_by_dstl"]["note"] == EVIL
    ran.out.encode("utf-8")

    ran = run("dump", str(evil))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count("\n") == 2
    by_state = {line["state"]: line for line in map(json.loads, ran.out.split("\n")[:-1])}
    assert by_state[EVIL]["key"] == by_state[EVIL]["value"] == by_state[EVIL]["op"] == EVIL
    assert by_state["float"]["value"] == "NaN"
    ran.out.encode("utf-8")


def test_text_is_printed_as_it_is_and_steers_no_terminal(run: Any, evil: Path) -> None:
    ran = run("inspect", str(evil))
    assert (ran.code, ran.err) == (0, "")
    assert (
        "\\udb40\\udc01[red]x[/red] :smile: [/] \\u001b[2Jwipe\\u000d\\u000a\\u202eevil \\ud800"
        in ran.out
    )
    assert "\x1b" not in ran.out
    ran.out.encode("utf-8")


def test_lone_surrogates_are_escaped_and_pairs_are_not() -> None:
    text = to_json({"a": "\ud83d x \ude00 😀"})
    assert text == '{"a": "\\ud83d x \\ude00 😀"}'
    assert json.loads(text) == {"a": "\ud83d x \ude00 😀"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b é 日本 😀", "a b é 日本 😀"),
        ("\x00\x7f\x9b", "\\u0000\\u007f\\u009b"),
        ("a\tb", "a\\u0009b"),
        ("\U000e0001", "\\udb40\\udc01"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


# ------------------------------------------------------------------------------ as a process


def process(*arguments: str | bytes, **options: Any) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, "-m", "dstl_core.cli", *arguments],
        capture_output=options.pop("capture_output", True),
        env=environment,
        timeout=60,
        check=False,
        **options,
    )


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"set -o pipefail; {sys.executable} -m dstl_core.cli dump {CANONICAL} | head -n 1"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert len(ran.stdout.splitlines()) == 1


@pytest.mark.slow
def test_a_full_disk_is_one_sentence() -> None:
    with open("/dev/full", "wb") as full:
        ran = process("dump", CANONICAL, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert ran.returncode == 2
    assert ran.stderr == b"dstl: The output cannot be written: No space left on device.\n"


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_another_locale_changes_nothing_in_json(evil: Path, encoding: str) -> None:
    ran = process("dump", CANONICAL, env={"PYTHONIOENCODING": encoding})
    assert (ran.returncode, ran.stderr) == (0, b"")
    keys = {json.loads(line)["key"] for line in ran.stdout.decode("utf-8").splitlines()}
    assert "日本語" in keys
    ran = process("inspect", str(evil), env={"PYTHONIOENCODING": encoding})
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.slow
def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    ran = process("inspect", folder)
    assert ran.returncode == 2
    assert b"There is no snapshot" in ran.stderr
    assert b"Traceback" not in ran.stderr
    with open(folder + b"/_metadata", "wb") as file:
        file.write(Path(CANONICAL, "_metadata").read_bytes())
    for more in ((), ("--json",)):
        ran = process("inspect", folder, *more)
        assert (ran.returncode, ran.stderr) == (0, b"")
        assert b"\\udcff" in ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("position", [0, 1, 2])
def test_debug_shows_the_traceback_wherever_it_stands(tmp_path: Path, position: int) -> None:
    arguments = ["inspect", str(tmp_path / "missing")]
    arguments.insert(position, "--debug")
    ran = process(*arguments)
    assert ran.returncode == 2
    assert b"Traceback" in ran.stderr
    assert b"StateFileNotFoundError: There is no snapshot" in ran.stderr


@pytest.mark.slow
def test_a_state_is_on_one_line_however_narrow_the_terminal_is() -> None:
    ran = process("inspect", CANONICAL, env={"COLUMNS": "40"})
    [line] = [each for each in ran.stdout.decode().splitlines() if "processing_user-timers" in each]
    assert line.split()[:2] == ["_timer_state/processing_user-timers", "proc-timer"]
    assert line.endswith("Timer<String, VoidNamespace>")


@pytest.mark.parametrize("arguments", [("-h",), ("dump", "-h"), ("--version",)])
def test_help_into_a_closed_pipe_is_no_error(arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ran = process(*arguments, capture_output=False, stdout=writer, stderr=subprocess.PIPE)
    finally:
        os.close(writer)
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.slow
@pytest.mark.parametrize(("environment", "styled"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_only_a_terminal_that_wants_colours_gets_them(
    terminal: Terminal, environment: dict[str, str], styled: bool
) -> None:
    env = {"TERM": "xterm-256color", "NO_COLOR": "", **environment}
    code, shown = terminal("inspect", CANONICAL, env=env)
    assert code == 0
    assert ("\x1b[1m" in shown) is styled
    assert "_timer_state/processing_user-timers" in shown


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    """Calls commands on a terminal, in forks of one process: each would load for seconds."""
    with warm_commands(OF_DSTL) as path:
        yield partial(on_a_terminal, {VARIABLE: path})


def on_a_terminal(warm: dict[str, str], *arguments: str, env: dict[str, str]) -> tuple[int, str]:
    """Exit code, and what a terminal gets on both streams. It turns ``\\n`` into ``\\r\\n``."""
    command = [str(CALLERS / "dstl"), *arguments]
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            command, env={**os.environ, **warm, **env}, stdout=theirs, stderr=theirs
        ) as ran:
            os.close(theirs)
            shown = b""
            with suppress(OSError):  # the other end is closed: all is read
                while part := os.read(ours, 65536):
                    shown += part
    finally:
        os.close(ours)
    return ran.returncode, shown.decode().replace("\r\n", "\n")


EVIL_COMMANDS = [
    *(("dump",), ("inspect",), ("inspect", "--json"), ("report", "--json"), ("report",)),
    *(("verify",), ("verify", "--json"), ("offsets",), ("dump", "--op=x")),
    *(("dump", "--op=x", "--debug"), ("committables",), ("rewrite", "OUT"), ("diff", CANONICAL)),
    *(("rewrite", "OUT", "--json"), ("diff", CANONICAL, "--json"), ("upgrade", "OUT", "--to=2.2")),
    *(("check", "--expect", CANONICAL), ("check", "--expect", CANONICAL, "--json")),
]


@pytest.mark.slow
@pytest.mark.parametrize("command", EVIL_COMMANDS, ids=" ".join)
def test_a_terminal_gets_nothing_that_steers_it(
    terminal: Terminal, command: tuple[str, ...], evil: Path, tmp_path: Path
) -> None:
    name, *rest = command
    arguments = [str(tmp_path / "out") if each == "OUT" else each for each in rest]
    _, shown = terminal(name, str(evil), *arguments, env={"NO_COLOR": "1", "TERM": "dumb"})
    assert shown
    shown = shown.removesuffix("\x1b[0m")  # colorama, which numba loads, writes it at the exit
    assert [char for char in shown if char != "\n" and not char.isprintable()] == []


@pytest.mark.slow
@pytest.mark.parametrize("command", [("dump",), ("inspect", "--json"), ("report", "--json")])
def test_a_pipe_gets_the_bytes_of_the_values(
    terminal: Terminal, command: tuple[str, ...], evil: Path
) -> None:
    """A terminal and a pipe get the same values, and the pipe gets no escape that JSON spares."""
    name, *rest = command
    piped = process(name, str(evil), *rest).stdout.decode()
    _, shown = terminal(name, str(evil), *rest, env={"TERM": "dumb"})
    assert CONTROLS in piped
    documents = [[text] if rest else text.split("\n")[:-1] for text in (piped, shown)]
    of_pipe, of_terminal = ([json.loads(each) for each in texts] for texts in documents)
    assert of_terminal == of_pipe


def test_a_log_gets_a_line_of_progress_every_30_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = ManualClock()
    advance = ProgressLines("checking", 100 << 20, clock)
    for _ in range(10):
        advance(5 << 20)
        clock.advance(9_000)
    advance(20 << 20)
    clock.advance(30_000)
    advance(28 << 20)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "dstl: checking: 25.0 MiB of 100 MiB (25 %), about 2 min left",
        "dstl: checking: 45.0 MiB of 100 MiB (45 %), about 1 min left",
        "dstl: checking: 98.0 MiB of 100 MiB (98 %), less than a minute left",
    ]
