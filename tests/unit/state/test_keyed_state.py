"""Restoring canonical streams: which bytes are read, what damage is found, what is cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.keyed_canonical import write_canonical_stream, write_section
from dstl_core.codec.serializers import (
    BUILT_IN,
    TimerSerializer,
    Types,
    VoidNamespaceSerializer,
)
from dstl_core.codec.state_meta import (
    KeyedBackendHeader,
    KeyedStateType,
    StateMetaInfoSnapshot,
    write_keyed_header,
)
from dstl_core.errors import FormatError, RestoreError
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    RelativeFileStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange, assign_to_key_group
from dstl_core.state.restore.canonical import read_key_groups, read_stream_header
from dstl_core.state.restore.into_tables import restore_keyed_state
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.rescale import cut, with_max_parallelism
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location
from tests.kernel_sizes import kernels_from
from tests.unit.codec.java_bytes import i64

VALUE = StateMetaInfoSnapshot.key_value("count", KeyedStateType.VALUE, Types.LONG)
ALL = KeyGroupRange(0, 127)
KEYS = [f"key-{number}" for number in range(60)]

pytestmark = pytest.mark.usefixtures("memory_files")

FOLDER = Location.parse("memory://savepoint")


@pytest.fixture(autouse=True, params=["records", "columns"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small state comes in record by record, large state by columns: both have to do all this."""
    least = 0 if request.param == "columns" else 1 << 30
    kernels_from(monkeypatch, least)


def resolver() -> HandleResolver:
    return HandleResolver(open_file_io(FOLDER), FOLDER)


def state_of(
    keys: list[str], groups: KeyGroupRange = ALL, max_parallelism: int = 128
) -> KeyedState:
    state = KeyedState(groups, max_parallelism)
    table = state.table(VALUE, Types.STRING)
    for key in keys:
        key_group = assign_to_key_group(Types.STRING.java_hash(key), max_parallelism)
        out = DataOutput()
        Types.STRING.serialize(key, out)
        table.group(key_group)[out.to_bytes() + b"\0"] = i64(len(key))
    return state


def handle_of(state: KeyedState) -> KeyGroupsSavepointStateHandle:
    raw, offsets = state.write_canonical()
    return KeyGroupsSavepointStateHandle(offsets, ByteStreamStateHandle("h", raw))


def restore(*handles: Any, groups: KeyGroupRange = ALL, max_parallelism: int = 128) -> KeyedState:
    return restore_keyed_state(handles, groups, max_parallelism, resolver())


def keys_of(state: KeyedState) -> dict[int, set[str]]:
    keys: dict[int, set[str]] = {}
    for key_group in state.key_groups:
        for _, (key, _, value) in state.rows(key_group):
            assert value == len(key)
            keys.setdefault(key_group, set()).add(key)
    return keys


def all_keys(state: KeyedState) -> list[str]:
    return sorted(key for keys in keys_of(state).values() for key in keys)


def test_a_state_is_restored_whole_and_in_parts() -> None:
    handle = handle_of(state_of(KEYS))
    whole = keys_of(restore(handle))
    assert sorted(key for keys in whole.values() for key in keys) == sorted(KEYS)
    for groups in (KeyGroupRange(0, 63), KeyGroupRange(64, 127), KeyGroupRange(5, 5)):
        part = keys_of(restore(handle, groups=groups))
        assert part == {group: keys for group, keys in whole.items() if groups.contains(group)}


def test_handles_of_several_subtasks_come_together() -> None:
    whole = restore(handle_of(state_of(KEYS)))
    parts = [
        handle_of(cut(whole, KeyGroupRange(0, 40))),
        handle_of(cut(whole, KeyGroupRange(41, 127))),
    ]
    assert keys_of(restore(*parts)) == keys_of(whole)
    assert keys_of(restore(*parts, groups=KeyGroupRange(30, 50))) == {
        group: keys for group, keys in keys_of(whole).items() if 30 <= group <= 50
    }


def test_an_empty_state_has_no_stream_and_one_without_entries_has_a_header() -> None:
    assert KeyedState(ALL, 128).write_canonical() == (b"", KeyGroupRangeOffsets(ALL, (0,) * 128))
    raw, offsets = state_of([]).write_canonical()
    out = DataOutput()
    write_keyed_header(out, KeyedBackendHeader(Types.STRING, (VALUE,)))
    assert raw == out.to_bytes()
    assert set(offsets.offsets) == {0}
    handle = KeyGroupsSavepointStateHandle(offsets, ByteStreamStateHandle("h", raw))
    assert list(restore(handle).tables) == [("count", False)]


@pytest.mark.parametrize("compressed", [False, True])
def test_only_the_wanted_bytes_of_a_file_are_needed(compressed: bool) -> None:
    sections = {
        group: write_section([(0, [(bytes((group,)) + b"\2a\0", i64(1))])]) for group in (3, 7, 9)
    }
    header = KeyedBackendHeader(Types.STRING, (VALUE,), compressed)
    raw, offsets = write_canonical_stream(header, KeyGroupRange(0, 9), sections)
    start, end = offsets.offsets[7], offsets.offsets[9]
    # All other sections are noise.
    first = min(offset for offset in offsets.offsets if offset)
    noisy = raw[:first] + b"\xaa" * (start - first) + raw[start:end] + b"\xaa" * (len(raw) - end)
    open_file_io(FOLDER).write_new(FOLDER.child("file"), noisy)
    handle = KeyGroupsSavepointStateHandle(offsets, RelativeFileStateHandle("file", len(noisy)))
    assert read_stream_header(handle, resolver(), BUILT_IN).compressed is compressed
    [(key_group, section)] = list(
        read_key_groups(handle.offsets, handle.stream, KeyGroupRange(7, 7), resolver())
    )
    assert key_group == 7
    assert section.read_bytes(section.remaining) == raw[start:end]
    assert keys_of(restore(handle, groups=KeyGroupRange(7, 7))) == {7: {"a"}}


def test_a_compressed_last_section_ends_before_the_stream_of_the_next_subtask() -> None:
    # Offsets that were cut to key groups no longer say where the last section ends.
    whole = restore(handle_of(state_of(KEYS)))
    header = KeyedBackendHeader(Types.STRING, (VALUE,), compressed=True)
    sections = {
        group: write_section([(0, table.records(group))])
        for table in whole.tables.values()
        for group in table.groups
    }
    raw, offsets = write_canonical_stream(header, ALL, sections)
    handle = KeyGroupsSavepointStateHandle(offsets, ByteStreamStateHandle("h", raw))
    part = handle.get_intersection(KeyGroupRange(0, 63))
    assert keys_of(restore(part, groups=KeyGroupRange(0, 63))) == {
        group: keys for group, keys in keys_of(whole).items() if group <= 63
    }


# ----------------------------------------------------------------------------------- damage


def damaged(**changes: int) -> KeyGroupsSavepointStateHandle:
    """A handle of key group 5 whose offset is wrong."""
    section = write_section([(0, [(b"\5\2a\0", i64(1))])])
    header = KeyedBackendHeader(Types.STRING, (VALUE,))
    raw, offsets = write_canonical_stream(header, KeyGroupRange(5, 6), {5: section})
    wrong = tuple(changes.get(f"of_{group}", offset) for group, offset in offsets.items())
    return KeyGroupsSavepointStateHandle(
        replace(offsets, offsets=wrong), ByteStreamStateHandle("h", raw)
    )


@pytest.mark.parametrize("offset", [1, 4, 100, 368, 370, 390, 391, 392, 394, 2**31, 2**62])
def test_wrong_offsets_are_format_errors(offset: int) -> None:
    handle = damaged(of_5=offset)
    with pytest.raises(FormatError):
        restore(handle)
    open_file_io(FOLDER).write_new(FOLDER.child("file"), handle.stream.data)  # type: ignore[union-attr]
    size = handle.stream.state_size
    with pytest.raises(FormatError):
        restore(replace(handle, stream=RelativeFileStateHandle("file", size)))


def test_a_section_that_two_key_groups_claim_is_found() -> None:
    handle = damaged()
    first = handle.offsets.offsets[0]
    with pytest.raises(
        FormatError, match=r"section of another key group: expected key group 6, got key group 5"
    ):
        restore(damaged(of_6=first))


def test_records_under_a_wrong_key_group_are_found() -> None:
    section = write_section([(0, [(b"\6\2a\0", i64(1))])])
    header = KeyedBackendHeader(Types.STRING, (VALUE,))
    raw, offsets = write_canonical_stream(header, KeyGroupRange(5, 6), {5: section})
    handle = KeyGroupsSavepointStateHandle(offsets, ByteStreamStateHandle("h", raw))
    with pytest.raises(FormatError, match="expected key group 5, got key group 6"):
        restore(handle)


def test_a_file_that_is_cut_is_a_format_error_that_names_it() -> None:
    raw, offsets = state_of(KEYS).write_canonical()
    open_file_io(FOLDER).write_new(FOLDER.child("file"), raw[:-1])
    handle = KeyGroupsSavepointStateHandle(offsets, RelativeFileStateHandle("file", len(raw)))
    with pytest.raises(FormatError, match=f"expected {len(raw)} bytes, got {len(raw) - 1}"):
        restore(handle)


def test_cutting_a_stream_anywhere_is_a_format_error() -> None:
    handle = handle_of(state_of(KEYS[:8]))
    raw = handle.stream.data  # type: ignore[union-attr]
    for size in range(len(raw)):
        with pytest.raises(FormatError):
            restore(replace(handle, stream=ByteStreamStateHandle("h", raw[:size])))


def test_states_and_keys_of_another_type_are_refused_with_both_types() -> None:
    other = KeyedState(ALL, 128)
    other.table(VALUE, Types.LONG)
    with pytest.raises(RestoreError, match="expected String, got Long in the stored state"):
        restore(handle_of(state_of(KEYS)), handle_of(other))
    with pytest.raises(RestoreError, match="expected Long, got String in the stored state"):
        restore_keyed_state(
            [handle_of(state_of(KEYS))], ALL, 128, resolver(), key_serializer=Types.LONG
        )
    retyped = KeyedState(ALL, 128)
    meta = StateMetaInfoSnapshot.key_value("count", KeyedStateType.REDUCING, Types.LONG)
    retyped.table(meta, Types.STRING)
    with pytest.raises(RestoreError, match=r"expected VALUE of Long .*got REDUCING of Long"):
        restore(handle_of(state_of(KEYS)), handle_of(retyped))


def test_a_state_and_a_queue_may_share_a_name() -> None:
    state = state_of(KEYS[:1])
    timer = TimerSerializer(Types.STRING, VoidNamespaceSerializer())
    state.table(StateMetaInfoSnapshot.priority_queue("count", timer), Types.STRING)
    assert list(restore(handle_of(state)).tables) == [("count", False), ("count", True)]


def test_the_header_alone_can_be_read() -> None:
    header = read_stream_header(handle_of(state_of(KEYS)), resolver(), BUILT_IN)
    assert header == KeyedBackendHeader(Types.STRING, (VALUE,))


# ------------------------------------------------------------------------------------ rescale


@pytest.mark.parametrize("target", [1, 17, 127, 128, 129, 4096, 32768])
def test_another_max_parallelism_keeps_every_key(target: int) -> None:
    moved = with_max_parallelism(restore(handle_of(state_of(KEYS))), target)
    assert moved.key_groups == KeyGroupRange(0, target - 1)
    expected: dict[int, set[str]] = {}
    for key in KEYS:
        group = assign_to_key_group(Types.STRING.java_hash(key), target)
        expected.setdefault(group, set()).add(key)
    assert keys_of(moved) == expected
    again = restore(handle_of(moved), groups=moved.key_groups, max_parallelism=target)
    assert keys_of(again) == expected


def test_a_cut_shares_entries_and_keeps_the_states() -> None:
    whole = state_of(KEYS)
    part = cut(whole, KeyGroupRange(0, 10))
    assert list(part.tables) == list(whole.tables)
    assert keys_of(part) == {group: keys for group, keys in keys_of(whole).items() if group <= 10}
    assert all_keys(cut(KeyedState(ALL, 128), KeyGroupRange(0, 10))) == []


def test_nothing_to_rescale() -> None:
    assert with_max_parallelism(KeyedState(ALL, 128), 256).key_groups == KeyGroupRange(0, 255)


def test_a_queue_without_timers_cannot_be_rescaled() -> None:
    state = KeyedState(ALL, 128)
    table = state.table(StateMetaInfoSnapshot.priority_queue("q", Types.LONG), Types.STRING)
    table.group(3)[i64(5)] = None
    with pytest.raises(
        RestoreError, match="Queue 'q' cannot be rescaled: expected timers, got Long"
    ):
        with_max_parallelism(state, 256)
