"""Edits: what is not edited is copied byte for byte, what cannot be done is refused at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, rewrite_savepoint
from dstl_core.checkpoint.store.metadata_file import publish_metadata_file
from dstl_core.codec.metadata.checkpoint_kind import checkpoint_kind
from dstl_core.codec.metadata.metadata_format import read_metadata
from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError, NoSuchOperatorError, SavepointError
from dstl_core.model.checkpoint import MasterState, OperatorSubtaskState
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    ChannelStateHandle,
    ChannelStateKind,
    KeyGroupsSavepointStateHandle,
    RelativeFileStateHandle,
)
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import assign_to_key_group
from dstl_core.savepoint.write.folder import DATA_INLINE_THRESHOLD, SavepointFolder
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from tests.golden_files import SNAPSHOTS, Fixture, as_lines, snapshot
from tests.unit.codec.java_bytes import i32, i64, utf
from tests.unit.codec.test_keyed_canonical import OFFSETS as MINIMAL_OFFSETS
from tests.unit.codec.test_keyed_canonical import STREAM


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def golden(name: str = "a-hashmap-canonical") -> Snapshot:
    return Snapshot.load(snapshot(name))


def lines(loaded: Snapshot) -> Iterator[dict[str, Any]]:
    for operator in loaded.operators:
        yield from operator.dump()


def in_any_union_order(lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The order of a union's elements depends on the names of handles, which a copy changes."""
    for line in lines:
        yield line | {"value": sorted(line["value"])} if line["kind"] == "op-union" else line


# In-flight data cannot be copied.
REWRITABLE = [fixture for fixture in SNAPSHOTS if fixture.name != "x-unaligned-hashmap"]


@pytest.mark.slow
@pytest.mark.parametrize("fixture", REWRITABLE, ids=str)
def test_a_rewrite_without_edits_is_a_copy(fixture: Fixture, out: Path) -> None:
    before = Snapshot.load(fixture.snapshot)
    assert rewrite_savepoint(before, out) == f"file:{out}"
    after = Snapshot.load(out)
    assert after.metadata.version == before.metadata.version
    kind = checkpoint_kind(before.metadata.properties)
    if kind.format == "NATIVE":  # its keyed state is canonical now, and it says so
        assert checkpoint_kind(after.metadata.properties) == replace(kind, format="CANONICAL")
    else:
        assert after.metadata.properties == before.metadata.properties
    written, expected = in_any_union_order(lines(after)), in_any_union_order(lines(before))
    assert as_lines(written) == as_lines(expected)
    for old, new in zip(before.operators, after.operators, strict=True):
        assert (new.operator_id, new.name, new.uid) == (old.operator_id, old.name, old.uid)
        for one, other in zip(old.keyed_handles, new.keyed_handles, strict=True):
            assert isinstance(other, KeyGroupsSavepointStateHandle)
            if isinstance(one, KeyGroupsSavepointStateHandle):
                assert other.offsets == one.offsets
                assert after.resolver.read(other.stream) == before.resolver.read(one.stream)


def test_the_copy_needs_nothing_of_the_original(out: Path, tmp_path: Path) -> None:
    rewrite_savepoint(golden("a-hashmap-canonical-files"), out)
    moved = tmp_path / "moved"
    out.rename(moved)
    assert as_lines(lines(Snapshot.load(moved))) == as_lines(lines(golden()))
    assert after_names(moved) >= {"_metadata", "_dstl.json"}


def after_names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_small_streams_are_inline_and_large_ones_are_files_beside(out: Path) -> None:
    folder = SavepointFolder(out)
    small = folder.add_stream(bytes(DATA_INLINE_THRESHOLD))
    large = folder.add_stream(bytes(DATA_INLINE_THRESHOLD + 1))
    assert isinstance(small, ByteStreamStateHandle)
    assert isinstance(large, RelativeFileStateHandle)
    assert after_names(out) == {large.relative_path}


def test_rename_and_remove(out: Path) -> None:
    rewrite_savepoint(golden(), out, rename={"a-keyed": "renamed"}, remove=["sink"])
    after = Snapshot.load(out)
    assert [each.uid for each in after.operators] == ["renamed", "src"]
    assert after["renamed"].operator_id == OperatorID.for_uid("renamed")
    assert after["renamed"].name == "a-keyed"
    assert as_lines({**line, "op": "a-keyed"} for line in lines(after)) == as_lines(lines(golden()))


def test_two_uids_can_be_swapped(out: Path) -> None:
    rewrite_savepoint(golden(), out, rename={"a-keyed": "sink", "sink": "a-keyed"})
    after = Snapshot.load(out)
    assert len(list(after["sink"].dump())) == len(list(golden()["a-keyed"].dump()))
    assert list(after["a-keyed"].dump()) == []


def test_a_uid_lives_in_the_sidecar_where_the_version_has_no_place(out: Path) -> None:
    before = golden("a-hashmap-canonical-flink1.20.5")
    assert before.metadata.version == 4
    rewrite_savepoint(before, out, rename={"a-keyed": "renamed"})
    after = Snapshot.load(out)
    assert after.metadata.version == 4
    assert after["renamed"].label == "renamed"
    assert after["renamed"].operator_id == OperatorID.for_uid("renamed")


@pytest.mark.parametrize("target", [2, 17, 256, 4096])
def test_another_max_parallelism(out: Path, target: int) -> None:
    rewrite_savepoint(golden(), out, max_parallelism=target)
    after = Snapshot.load(out)
    assert after["a-keyed"].max_parallelism == target
    assert after["src"].max_parallelism == target, "Flink compares every operator"
    assert as_lines({**line, "kg": 0} for line in lines(after)) == as_lines(
        {**line, "kg": 0} for line in lines(golden())
    )
    for line in lines(after):
        assert line["kg"] == assign_to_key_group(Types.STRING.java_hash(line["key"]), target)
    assert [len(each.key_group_range) for each in after["a-keyed"].keyed_handles] in (
        [(target + 1) // 2, target // 2],
        [target // 2, (target + 1) // 2],
    )


def test_there_and_back_again(out: Path, tmp_path: Path) -> None:
    rewrite_savepoint(golden(), out, max_parallelism=4096)
    rewrite_savepoint(Snapshot.load(out), tmp_path / "back", max_parallelism=128)
    assert as_lines(lines(Snapshot.load(tmp_path / "back"))) == as_lines(lines(golden()))


def test_operator_state_survives_a_rescale(out: Path) -> None:
    rewrite_savepoint(golden("c-opstate-hashmap"), out, max_parallelism=256)
    before, after = golden("c-opstate-hashmap"), Snapshot.load(out)
    for old, new in zip(before.operators, after.operators, strict=True):
        for one, other in zip(old.state.subtasks, new.state.subtasks, strict=True):
            if one.managed_operator_state is None:
                assert other.managed_operator_state is None
                continue
            assert other.managed_operator_state is not None
            assert other.managed_operator_state.states == one.managed_operator_state.states
            assert after.resolver.read(other.managed_operator_state.stream) == before.resolver.read(
                one.managed_operator_state.stream
            )


def test_version_2_becomes_version_3(out: Path, tmp_path: Path) -> None:
    keyed = b"\7" + i32(0, 128) + MINIMAL_OFFSETS + b"\1" + utf("h0") + i32(len(STREAM)) + STREAM
    version_2 = b"".join(
        [
            i32(0x4960672D, 2) + i64(1) + i32(0, 1),
            OperatorID.for_uid("counter").raw + i32(1, 128, 1, 1),
            i32(0) + i64(-1) + i32(0) + i32(0, 0) + keyed + b"\0",
        ]
    )
    (tmp_path / "_metadata").write_bytes(version_2)
    rewrite_savepoint(Snapshot.load(tmp_path), out, rename={"counter": "counter"})
    assert read_metadata((out / "_metadata").read_bytes()).version == 3
    [line] = lines(Snapshot.load(out))
    assert (line["op"], line["key"], line["value"]) == ("counter", "a", 100)


# ----------------------------------------------------------------------------------- refusals


def with_channel_state(tmp_path: Path) -> Snapshot:
    before = golden()
    channel = ChannelStateHandle(
        ChannelStateKind.INPUT_CHANNEL, 0, (0, 0), (0,), 1, ByteStreamStateHandle("c", b"x")
    )
    *others, last = before.metadata.operators
    broken = replace(last, subtasks=(OperatorSubtaskState(0, input_channel_state=(channel,)),))
    folder = Location.parse(tmp_path / "unaligned")
    metadata = replace(before.metadata, operators=(*others, broken))
    publish_metadata_file(open_file_io(folder), folder, metadata, {})
    return Snapshot.load(tmp_path / "unaligned")


@pytest.mark.parametrize(
    ("edits", "error", "problem"),
    [
        ({"rename": {"nobody": "x"}}, NoSuchOperatorError, "'nobody' is not in the snapshot"),
        ({"remove": ["nobody"]}, NoSuchOperatorError, "'nobody' is not in the snapshot"),
        ({"remove": ["a-keyed", "src", "sink"]}, SavepointError, "Nothing is left to write"),
        ({"rename": {"a-keyed": ""}}, ConfigError, "an empty uid"),
        ({"rename": {"a-keyed": "sink"}}, SavepointError, "would have the uid 'sink'"),
        ({"rename": {"a-keyed": "x", "src": "x"}}, SavepointError, "would have the uid 'x'"),
        ({"max_parallelism": 0}, ConfigError, "between 1 and 32768"),
        ({"max_parallelism": 32769}, ConfigError, "between 1 and 32768"),
        ({"max_parallelism": 1}, ConfigError, "smaller than parallelism: 1 < 2"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(
    out: Path, edits: dict[str, Any], error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        rewrite_savepoint(golden("a-hashmap-canonical-files"), out, **edits)
    assert not out.exists()


def test_in_flight_data_is_refused_before_anything_is_written(out: Path, tmp_path: Path) -> None:
    with pytest.raises(SavepointError, match="in-flight data of an unaligned checkpoint"):
        rewrite_savepoint(with_channel_state(tmp_path), out)
    assert not out.exists()


@pytest.mark.parametrize("name", ["_metadata", "_dstl.json"])
def test_a_folder_that_is_taken_is_not_touched(out: Path, name: str) -> None:
    out.mkdir()
    (out / name).write_bytes(b"theirs")
    with pytest.raises(SavepointError, match=r"snapshot is .*there"):
        rewrite_savepoint(golden(), out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {name: b"theirs"}


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_an_edit_keeps_the_version_and_what_it_does_not_edit(
    out: Path, tmp_path: Path, version: int
) -> None:
    """Coordinator and master state, finished parts, names and the properties, byte for byte."""
    real = golden("o-source-coordinator").metadata
    ended = next(each for each in real.operators if not each.state_size)
    ending: dict[str, Any] = {"fully_finished": True, "subtasks": ()}
    names: dict[str, Any] = {} if version >= 5 else {"name": "", "uid": ""}
    operators = [
        replace(operator, **names, **(ending if operator is ended else {}))
        for operator in real.operators
    ]
    metadata = replace(
        real,
        version=version,
        operators=tuple(operators),
        master_states=(MasterState("hook", 7, b"\0\1\2"),),
        properties=real.properties if version >= 4 else None,
    )
    folder = Location.parse(tmp_path / "in")
    publish_metadata_file(open_file_io(folder), folder, metadata, {})
    rewrite_savepoint(Snapshot.load(str(folder)), out, rename={"count": "counter"})
    after = Snapshot.load(out).metadata
    assert (after.version, after.checkpoint_id) == (version, metadata.checkpoint_id)
    assert (after.properties, after.master_states) == (metadata.properties, metadata.master_states)
    coordinators = [each.coordinator_state for each in after.operators]
    assert any(coordinators)
    assert coordinators == [each.coordinator_state for each in metadata.operators]
    assert [each.fully_finished for each in after.operators] == [
        operator.fully_finished for operator in metadata.operators
    ]
    assert [each.name for each in after.operators] == [each.name for each in metadata.operators]
    assert [each.operator_id for each in after.operators] == [
        OperatorID.for_uid("counter")
        if operator.operator_id == OperatorID.for_uid("count")
        else operator.operator_id
        for operator in metadata.operators
    ]
