"""The command line: what it prints, and one sentence with exit code 2 for whatever is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.checkpoint.store.metadata_file import publish_metadata_file
from dstl_core.model.checkpoint import OperatorState
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    FileStateHandle,
    KeyGroupsSavepointStateHandle,
    RelativeFileStateHandle,
)
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from tests.command_line import is_one_sentence, run
from tests.golden_files import SNAPSHOTS, Fixture, as_lines, snapshot
from tests.unprivileged import public_folder, unprivileged

CANONICAL = str(snapshot("a-hashmap-canonical"))
MISSING = f"{CANONICAL}-missing"
LOG = str(snapshot("a-hashmap-changelog-multi"))
UNTYPED_LOG = str(snapshot("o-ttl-maps-changelog"))
KRYO = str(snapshot("x-kryo-hashmap"))
__all__ = ["run"]


# --------------------------------------------------------------------------------- bad input


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Folders with one thing wrong each."""
    raw = Path(CANONICAL, "_metadata").read_bytes()
    for name, content in (
        ("empty", b""),
        ("cut", raw[:5000]),
        ("cut-in-front", raw[:10]),
        ("cut-at-the-end", raw[:-1]),
        ("not-flink", b"PAR1" + raw[4:]),
        ("future", raw[:4] + b"\0\0\0\x09" + raw[8:]),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "_metadata").write_bytes(content)
    (tmp_path / "no-metadata").mkdir()
    (tmp_path / "a-file").write_bytes(raw)
    (tmp_path / "state-file-cut").mkdir()
    for path in snapshot("a-hashmap-canonical-files").iterdir():
        content = path.read_bytes()
        target = tmp_path / "state-file-cut" / path.name
        target.write_bytes(content if path.name == "_metadata" else content[:-1])
    return tmp_path


@pytest.mark.parametrize("command", ["inspect", "dump"])
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("missing", "There is no snapshot: expected a file _metadata in file:"),
        ("no-metadata", "There is no snapshot: expected a file _metadata in file:"),
        ("a-file", "a-file' is a file, where a folder is expected; give the path of a folder."),
        ("empty", "The data ends too early: expected 4 more bytes, got 0, field magic number"),
        ("cut", "A count does not fit into the data"),
        ("cut-in-front", "The data ends too early: expected 8 more bytes, got 2"),
        ("cut-at-the-end", "The data ends too early"),
        ("not-flink", "Not a Flink _metadata file (wrong magic number"),
        ("future", "This version of _metadata cannot be read: expected 2 to 6, got 9"),
    ],
)
def test_a_bad_snapshot_is_one_sentence_that_names_it(
    run: Any, broken: Path, command: str, name: str, problem: str
) -> None:
    ran = run(command, str(broken / name))
    assert ran.code == 2
    assert is_one_sentence(ran.err), ran.err
    assert problem in ran.err
    assert str(broken / name) in ran.err
    assert ran.out == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["dump", CANONICAL, "--op", "nobody"], "Operator 'nobody' is not in the snapshot; it has"),
        (["dump", CANONICAL, "--op", ""], "Operator '' is not in the snapshot"),
        (["dump", CANONICAL, "--op", "\udcff"], "Operator '\\udcff' is not in the snapshot"),
        (["dump", CANONICAL, "--op", "a\nb"], "Operator 'a\\nb' is not in the snapshot"),
        (
            ["dump", CANONICAL, "--state", "x"],
            "State 'x' is in no operator of this snapshot; it has: "
            "'_timer_state/event_user-timers', '_timer_state/processing_user-timers', 'agg', 'cnt'",
        ),
        (
            ["dump", CANONICAL, "--op", "a-keyed", "--state", "x"],
            "State 'x' is not in operator 'a-keyed'; it has: '_timer_state/event_user-timers'",
        ),
        (["dump", CANONICAL, "--hide-expired", "soon"], "--hide-expired is wrong: expected e.g."),
        (["dump", CANONICAL, "--key-type", "a-keyed"], "--key-type is wrong: expected OP=TYPE"),
        (
            ["dump", CANONICAL, "--key-type", "a-keyed=text"],
            "Not a type: expected one of boolean, byte",
        ),
        (
            ["dump", CANONICAL, "--key-type", "nobody=long"],
            "Operator 'nobody' is not in the snapshot",
        ),
        (
            ["dump", CANONICAL, "--key-type", "a-keyed=long"],
            "The key type of operator 'a-keyed' is wrong: the files record String, got Long; leave",
        ),
        (
            ["dump", LOG, "--key-type", "a-keyed=long"],
            "The key type of operator 'a-keyed' is wrong: the files record String, got Long; leave",
        ),
        (
            ["dump", UNTYPED_LOG, "--key-type", "ttl-maps=long"],
            "The key type of operator 'ttl-maps' is wrong: keys in the changelog are not of type L",
        ),
        (
            ["dump", CANONICAL, "--op", "src", "--op", "sink", "--state", "cnt"],
            "State 'cnt' is in no operator of 'src', 'sink'; they have: none",
        ),
        (
            ["changelog", LOG, "--op", "a-keyed", "--op", "src", "--state", "x"],
            "State 'x' is in no operator of 'a-keyed'; they have: '_timer_state/event_user-timers'",
        ),
        (
            ["inspect", CANONICAL, "--relocate", "a"],
            "--relocate is wrong: expected OLD=NEW, got 'a'",
        ),
        (["inspect", CANONICAL, "--relocate", "=b"], "--relocate is wrong"),
        (["inspect", CANONICAL, "--relocate", "a="], "--relocate is wrong"),
        (["inspect", CANONICAL, "--relocate", "a::b=c"], "A path is not allowed"),
        (["inspect", CANONICAL, "--allow-root", "a::b"], "A path is not allowed"),
        (["inspect", "simplecache::s3://b/k"], "A path is not allowed"),
        (["inspect", "nosuch://b/k"], "No file system for the scheme 'nosuch'"),
        (["inspect", ""], "A path is empty"),
        (["gc", MISSING], "There is no such folder"),
        (["gc", f"{CANONICAL}/_metadata"], "There is no such folder"),
        (["gc", CANONICAL, "--also-referenced-from", MISSING], "There is no such folder"),
        *(
            ([command, MISSING, *more], "There is no snapshot: expected a file _metadata in")
            for command, *more in (
                ("changelog",),
                ("diff", CANONICAL),
                ("dump",),
                ("inspect",),
                ("rewrite", "/nowhere"),
                ("verify",),
            )
        ),
    ],
)
def test_a_bad_argument_is_one_sentence(run: Any, arguments: list[str], problem: str) -> None:
    ran = run(*arguments)
    assert ran.code == 2
    assert is_one_sentence(ran.err), ran.err
    assert problem in ran.err
    assert ran.out == ""


@pytest.mark.parametrize("arguments", [[], ["inspect"], ["nosuch"], ["inspect", CANONICAL, "--x"]])
def test_wrong_usage_is_exit_code_2(run: Any, arguments: list[str]) -> None:
    assert run(*arguments).code == 2


def test_damaged_state_behind_good_metadata(run: Any, broken: Path) -> None:
    ran = run("dump", str(broken / "state-file-cut"))
    assert ran.code == 2
    assert is_one_sentence(ran.err)
    assert "Operator 'a-keyed' cannot be dumped: A state file is shorter" in ran.err
    ran = run("inspect", str(broken / "state-file-cut"), "--json")
    assert ran.code == 0
    [operator] = [each for each in json.loads(ran.out)["operators"] if each["problem"]]
    assert operator["uid"] == "a-keyed"


def test_a_folder_without_permission(run: Any) -> None:
    with public_folder() as folder:
        closed = folder / "closed"
        closed.mkdir()
        (closed / "_metadata").write_bytes(Path(CANONICAL, "_metadata").read_bytes())
        closed.chmod(0o000)
        with unprivileged():
            ran = run("inspect", str(closed))
    assert ran.code == 2
    assert is_one_sentence(ran.err)
    assert f"file:{closed}/_metadata: Permission denied" in ran.err


def test_handles_that_lead_out_are_refused_and_can_be_allowed(run: Any, tmp_path: Path) -> None:
    source = snapshot("a-hashmap-canonical-files")
    metadata = Snapshot.load(source).metadata
    moved = tmp_path / "files"
    moved.mkdir()
    for path in source.iterdir():
        if path.name != "_metadata":
            (moved / path.name).write_bytes(path.read_bytes())
    folder = Location.parse(tmp_path / "snapshot")
    operators = tuple(absolute(operator, "file:/elsewhere") for operator in metadata.operators)
    publish_metadata_file(open_file_io(folder), folder, replace(metadata, operators=operators), {})
    ran = run("dump", str(tmp_path / "snapshot"))
    assert ran.code == 2
    assert "lies outside the folders of this snapshot" in ran.err
    assert "--relocate" in ran.err
    ran = run("dump", str(tmp_path / "snapshot"), "--relocate", f"file:/elsewhere={moved}")
    assert (ran.code, ran.err) == (0, "")
    assert as_lines(ran.lines) == as_lines(run("dump", str(source)).lines)


def absolute(operator: OperatorState, root: str) -> OperatorState:
    """The operator with its relative files named by absolute paths below ``root``."""
    subtasks = []
    for subtask in operator.subtasks:
        handle = subtask.managed_keyed_state
        if isinstance(handle, KeyGroupsSavepointStateHandle) and isinstance(
            handle.stream, RelativeFileStateHandle
        ):
            stream = FileStateHandle(f"{root}/{handle.stream.relative_path}", handle.state_size)
            subtask = replace(subtask, managed_keyed_state=replace(handle, stream=stream))
        subtasks.append(subtask)
    return replace(operator, subtasks=tuple(subtasks))


# ------------------------------------------------------------------------------------- dump


@pytest.mark.slow
@pytest.mark.parametrize("fixture", SNAPSHOTS, ids=str)
def test_dump_prints_what_real_flink_restored(run: Any, fixture: Fixture) -> None:
    ran = run("dump", str(fixture.snapshot))
    assert ran.code == 0
    assert as_lines(ran.lines) == as_lines(fixture.truth)
    reported = {(each["op"], each["state"]) for each in fixture.unreadable}
    # A log without a base may have to guess the type of its keys, and says so.
    remarks = [
        line for line in ran.err.splitlines() if "no file says the type of the key" not in line
    ]
    assert len(remarks) == len(reported)
    for operator, state in reported:
        assert f"dstl: not readable: operator {operator!r}" in ran.err
        assert f"state {state!r}" in ran.err


def test_dump_of_one_operator_and_one_state(run: Any) -> None:
    everything = run("dump", CANONICAL).lines
    assert run("dump", CANONICAL, "--op", "a-keyed").lines == everything
    counts = [line for line in everything if line.get("state") == "cnt"]
    assert run("dump", CANONICAL, "--state", "cnt").lines == counts
    assert run("dump", CANONICAL, "--state", "cnt", "--op", "a-keyed").lines == counts
    assert run("dump", CANONICAL, "--op", "src").lines == []


HASH = "51397532e2d9c7a21097a30d590b3114"


def test_dump_of_several_operators(run: Any) -> None:
    path = str(snapshot("f-two-ops-hashmap"))
    everything = run("dump", path).lines
    own = {uid: [line for line in everything if line["op"] == uid] for uid in ("f-uid", HASH)}
    assert all(own.values())
    both = run("dump", path, "--op", "f-uid", "--op", HASH, "--op", "f-uid")
    assert (both.code, both.err) == (0, "")
    assert both.lines == own["f-uid"] + own[HASH]


@pytest.fixture
def half_damaged(tmp_path: Path) -> Path:
    """Two operators; the keyed state of ``with-kryo`` has lost its header."""
    metadata = Snapshot.load(KRYO).metadata
    operators = []
    for operator in metadata.operators:
        if operator.uid == "with-kryo":
            subtasks = [
                replace(subtask, managed_keyed_state=damaged(subtask.managed_keyed_state))
                for subtask in operator.subtasks
            ]
            operator = replace(operator, subtasks=tuple(subtasks))
        operators.append(operator)
    folder = Location.parse(tmp_path / "half")
    damaged_metadata = replace(metadata, operators=tuple(operators))
    publish_metadata_file(open_file_io(folder), folder, damaged_metadata, {})
    return tmp_path / "half"


def damaged(handle: Any) -> Any:
    raw = bytes(10) + handle.stream.data[10:]
    return replace(handle, stream=ByteStreamStateHandle("h", raw))


def test_an_operator_that_cannot_be_read_keeps_no_other_from_being_printed(
    run: Any, half_damaged: Path
) -> None:
    ran = run("dump", str(half_damaged))
    assert ran.code == 2
    assert is_one_sentence(ran.err)
    assert "Operator 'with-kryo' cannot be dumped: " in ran.err
    assert ran.lines == run("dump", KRYO, "--op", "clean").lines
    assert {line["op"] for line in ran.lines} == {"clean"}


def test_values_that_only_java_can_read_are_printed_on_demand(run: Any) -> None:
    plain = run("dump", KRYO, "--op", "with-kryo", "--state", "mixed")
    assert (plain.code, plain.lines) == (0, [])
    assert is_one_sentence(plain.err)
    assert "value state 'mixed', 9 entries" in plain.err
    ran = run("dump", KRYO, "--op", "with-kryo", "--state", "mixed", "--opaque")
    assert (ran.code, ran.err, len(ran.lines)) == (0, "", 9)
    for line in ran.lines:
        assert line["value"]["$class"] == "Tuple2<Long, Kryo<h3.Opaque>>"
        # The Long in front, and the class that Kryo wrote.
        assert bytes.fromhex(line["value"]["$hex"])[8:]
    [one, *_] = run("dump", KRYO, "--state", "om", "--opaque").lines
    assert one["value"][0][1]["$class"] == "h3.Opaque"
    [one, *_] = run("dump", KRYO, "--state", "opaque", "--opaque").lines
    assert one["value"]["$class"] == "h3.Opaque"


def test_expired_values_are_hidden_on_demand(run: Any) -> None:
    path = str(snapshot("e-ttl-hashmap"))
    everything = run("dump", path).lines
    assert everything
    assert as_lines(run("dump", path, "--hide-expired", "100000d").lines) == as_lines(everything)
    assert run("dump", path, "--hide-expired", "1ms").lines == []


# ---------------------------------------------------------------------------------- inspect


@pytest.mark.slow
@pytest.mark.parametrize("fixture", SNAPSHOTS, ids=str)
def test_inspect_works_on_every_golden_file(run: Any, fixture: Fixture) -> None:
    for metadata in fixture.metadata_files:
        ran = run("inspect", str(metadata.parent), "--json")
        assert (ran.code, ran.err) == (0, "")
        summary = json.loads(ran.out)
        assert summary["operators"]
        text = run("inspect", str(metadata))
        assert (text.code, text.err) == (0, "")
        for operator in summary["operators"]:
            assert operator["hash"] in text.out
            assert operator["problem"] or operator["states"] or operator["keyed_state"] == "none"


def test_what_inspect_says(run: Any) -> None:
    summary = json.loads(run("inspect", CANONICAL, "--json").out)
    operator = next(each for each in summary["operators"] if each["uid"] == "a-keyed")
    assert summary["path"] == f"file:{CANONICAL}"
    assert (summary["version"], summary["checkpoint_id"]) == (6, 1)
    assert summary["metadata_bytes"] == Path(CANONICAL, "_metadata").stat().st_size
    assert summary["written_by_dstl"] is None
    assert operator["hash"] == "b4752014cabfcda06294954685ce3a12"
    assert (operator["parallelism"], operator["max_parallelism"]) == (2, 128)
    assert operator["keyed_state"] == "canonical"
    assert operator["problem"] is None
    namespace = {"namespace": "VoidNamespace"}
    assert {"name": "cnt", "kind": "value", "type": "Long"} | namespace in operator["states"]


def test_operator_states_are_listed(run: Any) -> None:
    summary = json.loads(run("inspect", str(snapshot("c-opstate-hashmap")), "--json").out)
    states = {each["uid"]: each["operator_states"] for each in summary["operators"]}
    assert states["c-list"] == [
        {"name": "buf", "kind": "op-list", "type": "Long"},
        {"name": "offs", "kind": "op-union", "type": "Tuple2<String, Long>"},
        {"name": "txt", "kind": "op-list", "type": "String"},
    ]
    assert [each["kind"] for each in states["c-broadcast"]] == ["op-broadcast", "op-broadcast"]


def test_inspect_names_what_only_java_can_read(run: Any) -> None:
    summary = json.loads(run("inspect", KRYO, "--json").out)
    listed = {each["uid"]: each["not_readable"] for each in summary["operators"] if each["uid"]}
    assert {each["state"] for each in listed["with-kryo"]} == {"mixed", "om", "opaque", "opaques"}
    assert all(each["classes"] == ["h3.Opaque"] for each in listed["with-kryo"])
    assert listed["clean"] == []
    assert (
        "not readable without its Java classes: state 'om' (h3.Opaque)" in run("inspect", KRYO).out
    )


def test_inspect_tells_the_kind_of_a_snapshot(run: Any) -> None:
    expected = {
        "a-hashmap-canonical": ("Savepoint", "CANONICAL"),
        "a-hashmap-native": ("Savepoint", "NATIVE"),
        "a-hashmap-checkpoint": ("Checkpoint", None),
    }
    for name, kind in expected.items():
        summary = json.loads(run("inspect", str(snapshot(name)), "--json").out)
        assert (summary["kind"], summary["format"]) == kind
