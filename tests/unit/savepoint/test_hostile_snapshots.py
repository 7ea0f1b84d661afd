"""Snapshots that somebody made to do harm: each is refused with a sentence that says why."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.checkpoint.store.metadata_file import publish_metadata_file
from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.metadata.metadata_format import read_metadata, write_metadata
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.codec.state_meta import (
    KeyedBackendHeader,
    StateMetaInfoSnapshot,
    write_keyed_header,
)
from dstl_core.errors import FormatError
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    FileStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from tests.command_line import run
from tests.golden_files import snapshot
from tests.unit.codec.java_bytes import utf

__all__ = ["run"]

SECRET = "/etc/passwd"
TWO_GIB = 2**31 - 1


def with_stream(stream: StreamStateHandle) -> CheckpointMetadata:
    """A real snapshot whose keyed state lies in another stream."""
    metadata = Snapshot.load(snapshot("a-hashmap-canonical")).metadata
    operators = []
    for operator in metadata.operators:
        subtasks = []
        for subtask in operator.subtasks:
            handle = subtask.managed_keyed_state
            if isinstance(handle, KeyGroupsSavepointStateHandle):
                subtask = replace(subtask, managed_keyed_state=replace(handle, stream=stream))
            subtasks.append(subtask)
        operators.append(replace(operator, subtasks=tuple(subtasks)))
    return replace(metadata, operators=tuple(operators))


def publish(folder: Path, metadata: CheckpointMetadata) -> str:
    location = Location.parse(folder)
    publish_metadata_file(open_file_io(location), location, metadata, {})
    return str(folder)


HANDLES: list[tuple[StreamStateHandle, str]] = [
    (FileStateHandle(SECRET, 100), "lies outside the folders of this snapshot"),
    (FileStateHandle(f"file:{SECRET}", 100), "lies outside the folders of this snapshot"),
    (FileStateHandle(f"file://{SECRET}", 100), "lies outside the folders of this snapshot"),
    (FileStateHandle("https://example.com/x", 100), "lies outside the folders of this snapshot"),
    (FileStateHandle("s3://bucket/x", 100), "lies outside the folders of this snapshot"),
    (FileStateHandle("file::http://example.com/x", 100), "expected one path or URL without '::'"),
    (FileStateHandle("simplecache::s3://b/x", 100), "expected one path or URL without '::'"),
    (FileStateHandle("file:{folder}/../../x", 100), "contains '..'"),
    (RelativeFileStateHandle("../../x", 100), "A relative path leaves its folder"),
    (RelativeFileStateHandle(SECRET, 100), "A relative path leaves its folder"),
    (RelativeFileStateHandle("a\0b", 100), "A path is not allowed"),
    (RelativeFileStateHandle("link", 100), "lies outside the folders of this snapshot"),
    (RelativeFileStateHandle("folder/passwd", 100), "lies outside the folders of this snapshot"),
    (FileStateHandle("file:{folder}/link", 100), "lies outside the folders of this snapshot"),
    (RelativeFileStateHandle("small", TWO_GIB), "shorter than its handle says"),
    (RelativeFileStateHandle("small", 2**62), "shorter than its handle says"),
]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["dump", "verify", "inspect"])
@pytest.mark.parametrize(("handle", "problem"), HANDLES, ids=str)
def test_a_handle_that_leads_out_or_lies(
    run: Any, tmp_path: Path, command: str, handle: StreamStateHandle, problem: str
) -> None:
    folder = tmp_path / "savepoint-1"
    folder.mkdir()
    (folder / "link").symlink_to(SECRET)
    (folder / "folder").symlink_to("/etc")
    (folder / "small").write_bytes(b"small")
    if isinstance(handle, FileStateHandle):
        handle = replace(handle, path=handle.path.replace("{folder}", str(folder)))
    code, out, err = run(command, publish(folder, with_stream(handle)))
    # Inspect and verify say it in their answer, where everything else that they found stands too.
    assert problem in (err if command == "dump" else out)
    assert code == {"dump": 2, "verify": 1, "inspect": 0}[command]
    assert "root:" not in out
    if command == "dump":
        assert err.startswith("dstl: Operator 'a-keyed' cannot be dumped: ")
        assert err.count("\n") == 1


@pytest.mark.parametrize(("handle", "problem"), HANDLES, ids=str)
def test_nothing_is_copied_from_where_a_handle_leads(
    run: Any, tmp_path: Path, handle: StreamStateHandle, problem: str
) -> None:
    folder, out = tmp_path / "savepoint-1", tmp_path / "out"
    folder.mkdir()
    (folder / "link").symlink_to(SECRET)
    (folder / "folder").symlink_to("/etc")
    (folder / "small").write_bytes(b"small")
    if isinstance(handle, FileStateHandle):
        handle = replace(handle, path=handle.path.replace("{folder}", str(folder)))
    path = publish(folder, with_stream(handle))
    for options in ((), ("--max-parallelism", "256")):
        code, text, err = run("rewrite", path, str(out), *options)
        assert code == 2
        assert problem in err
        assert err.count("\n") == 1
        assert "root:" not in text + err
    assert not (out / "_metadata").exists()
    files = [file for file in out.rglob("*") if file.is_file()] if out.exists() else []
    assert not any(b"root:" in file.read_bytes() for file in files)


def test_a_merged_file_that_leads_out(run: Any, tmp_path: Path) -> None:
    file = Snapshot.load(snapshot("x-filemerging-hashmap")).metadata
    raw = write_metadata(file)
    path = next(
        stream.path
        for operator in file.operators
        for subtask in operator.subtasks
        for stream in subtask.streams()
        if isinstance(stream, SegmentFileStateHandle)
    )
    evil = "/etc/" + "x" * (len(path) - 5)
    (tmp_path / "_metadata").write_bytes(raw.replace(path.encode(), evil.encode()))
    code, _, err = run("dump", str(tmp_path))
    assert code == 2
    assert "/etc/xxx" in err
    assert "outside the folders" in err


def test_a_link_in_place_of_the_metadata_is_followed_as_the_user_named_it(
    run: Any, tmp_path: Path
) -> None:
    (tmp_path / "_metadata").symlink_to(SECRET)
    code, out, err = run("dump", str(tmp_path))
    assert (code, out) == (2, "")
    assert "Not a Flink _metadata file" in err
    assert "root:" not in err


def test_an_inline_length_of_2_gib(run: Any, tmp_path: Path) -> None:
    content = b"what the handle holds"
    raw = write_metadata(with_stream(ByteStreamStateHandle("handle", content)))
    at = raw.index(content) - 4
    (tmp_path / "_metadata").write_bytes(raw[:at] + struct.pack(">i", TWO_GIB) + raw[at + 4 :])
    code, out, err = run("dump", str(tmp_path))
    assert (code, out) == (2, "")
    assert f"got {TWO_GIB}" in err
    assert "field inline size" in err


@pytest.mark.parametrize("element", [Types.LONG, Types.LIST(Types.LONG)], ids=str)
def test_a_queue_whose_elements_are_no_timers(
    run: Any, tmp_path: Path, element: AnySerializer
) -> None:
    queue = StateMetaInfoSnapshot.priority_queue("_timer_state/event_user-timers", element)
    out = DataOutput()
    write_keyed_header(out, KeyedBackendHeader(Types.STRING, (queue,)))
    offsets = KeyGroupRangeOffsets(KeyGroupRange(0, 127), (out.position,) + (0,) * 127)
    out.write_bytes(b"\xff\xff")  # the end of a key group without records
    handle = KeyGroupsSavepointStateHandle(offsets, ByteStreamStateHandle("h", out.to_bytes()))
    subtask = OperatorSubtaskState(0, managed_keyed_state=handle)
    operator_state = OperatorState(OperatorID.for_uid("a-keyed"), 1, 128, (subtask,))
    path = publish(tmp_path, CheckpointMetadata(3, 1, (operator_state,)))
    sentence = "does not fit its kind"
    page = tmp_path / "report.html"
    assert run("report", path, "-o", str(page))[0] == 0
    assert sentence in page.read_text()
    for command in ("dump", "verify", "inspect", "offsets", "committables"):
        code, _, err = run(command, path)
        assert code in (0, 1, 2)
        assert "Traceback" not in err
    operator = Snapshot.load(path)["a-keyed"]
    with pytest.raises(FormatError, match=sentence):
        list(operator.flat(queue.name).read())


def nested_java_stream(depth: int) -> bytes:
    """An object in an object in an object .."""
    link = (
        b"\x72" + utf("A") + struct.pack(">qBH", 1, 2, 1) + b"L" + utf("n") + b"\x74" + utf("LA;")
    )
    return b"\xac\xed\0\5\x73" + link + b"\x78\x70" + b"\x73\x71\0\x7e\0\0" * depth + b"\x70"


@pytest.mark.parametrize("command", ["dump", "verify", "inspect"])
def test_a_java_stream_nested_10_000_deep(run: Any, tmp_path: Path, command: str) -> None:
    real = snapshot("a-hashmap-canonical")
    metadata = read_metadata((Path(real) / "_metadata").read_bytes())
    assert metadata.version == 6
    evil = replace(metadata, properties=nested_java_stream(10_000))
    (tmp_path / "_metadata").write_bytes(write_metadata(evil))
    code, out, err = run(command, str(tmp_path))
    assert (code, out) == (2, "")
    assert "A Java stream is nested too deeply: expected <= 100 levels" in err
    assert err.count("\n") == 1


def test_a_named_pipe_is_no_state_file(run: Any, tmp_path: Path) -> None:
    """Reading one would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    path = publish(tmp_path, with_stream(RelativeFileStateHandle("pipe", 100)))
    code, _, err = run("dump", path)
    assert code == 2
    assert "pipe" in err
