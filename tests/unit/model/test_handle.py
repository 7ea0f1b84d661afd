"""Intersections and sizes of handles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dstl_core.errors import FormatError
from dstl_core.model.checkpoint import (
    OperatorState,
    OperatorSubtaskState,
    keyed_state_streams,
)
from dstl_core.model.handle import (
    NO_OFFSET,
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    ChannelStateHandle,
    ChannelStateKind,
    EmptySegmentFileStateHandle,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    InMemoryChangelogStateHandle,
    KeyedStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
)
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import KeyGroupRange

RANGE = KeyGroupRange(4, 7)
OFFSETS = KeyGroupRangeOffsets(RANGE, (10, 0, 30, 40))


def file(name: str, size: int) -> FileStateHandle:
    return FileStateHandle(f"file:/{name}", size)


CANONICAL = KeyGroupsSavepointStateHandle(OFFSETS, file("canonical", 100))
HEAP = KeyGroupsStateHandle(OFFSETS, file("heap", 200), "id")
ROCKSDB = IncrementalRemoteKeyedStateHandle(
    "b", RANGE, 1, 5, file("meta", 1), (("1.sst", file("s", 10)),), (("C", file("p", 3)),), "id"
)
SEGMENT = file("segment", 1000)
LOG = ChangelogStateHandleStream(((SEGMENT, 0), (SEGMENT, 50)), RANGE, 70, 20, "id")
IN_MEMORY = InMemoryChangelogStateHandle(((-1, b"meta"), (5, b"xy")), RANGE, 0, 1, "id")
BOTH = ChangelogStateBackendHandle((CANONICAL,), (LOG, IN_MEMORY), RANGE, 3, 9, 20, "id")
ALL: list[KeyedStateHandle] = [CANONICAL, HEAP, ROCKSDB, LOG, IN_MEMORY, BOTH]


def test_sections_end_where_the_next_one_starts() -> None:
    assert OFFSETS.sections(100) == [(4, 10, 30), (6, 30, 40), (7, 40, 100)]
    assert OFFSETS.sections(100, KeyGroupRange(6, 9)) == [(6, 30, 40), (7, 40, 100)]
    raw = KeyGroupRangeOffsets(RANGE, (NO_OFFSET, 30, 0, NO_OFFSET))
    assert raw.sections(40, zero_is_empty=False) == [(6, 0, 30), (5, 30, 40)]


def test_a_stream_of_a_header_has_no_sections() -> None:
    assert KeyGroupRangeOffsets(RANGE, (0, 0, 0, 0)).sections(50) == []


def test_a_section_after_the_end_of_its_stream_is_damage() -> None:
    with pytest.raises(FormatError, match="A key group is outside its stream: expected < 40, got"):
        OFFSETS.sections(40)


@pytest.mark.parametrize("handle", ALL, ids=lambda handle: type(handle).__name__)
def test_no_common_key_group_is_no_handle(handle: KeyedStateHandle) -> None:
    assert handle.get_intersection(KeyGroupRange(0, 3)) is None
    assert handle.get_intersection(KeyGroupRange(8, 9)) is None
    assert handle.get_intersection(KeyGroupRange.EMPTY) is None


@pytest.mark.parametrize("handle", [CANONICAL, HEAP], ids=["canonical", "heap"])
def test_offsets_are_cut_with_the_range(
    handle: KeyGroupsSavepointStateHandle | KeyGroupsStateHandle,
) -> None:
    cut = handle.get_intersection(KeyGroupRange(5, 6))
    assert cut == replace(handle, offsets=KeyGroupRangeOffsets(KeyGroupRange(5, 6), (0, 30)))
    assert handle.get_intersection(KeyGroupRange(0, 99)) == handle


def test_rocksdb_files_are_kept_whole() -> None:
    # Files hold more key groups than the range; a reader filters by prefix.
    assert ROCKSDB.get_intersection(KeyGroupRange(5, 6)) == ROCKSDB


def test_a_log_keeps_its_whole_list_and_narrows_its_range() -> None:
    cut = LOG.get_intersection(KeyGroupRange(7, 9))
    assert cut == replace(LOG, key_group_range=KeyGroupRange(7, 7))


def test_base_and_log_are_cut_together_and_members_without_part_drop_out() -> None:
    left = replace(CANONICAL, offsets=KeyGroupRangeOffsets(KeyGroupRange(4, 5), (10, 0)))
    handle = replace(BOTH, materialized=(left, CANONICAL))
    cut = handle.get_intersection(KeyGroupRange(6, 9))
    assert cut is not None
    assert [each.key_group_range for each in cut.materialized] == [KeyGroupRange(6, 7)]
    assert [each.key_group_range for each in cut.non_materialized] == [KeyGroupRange(6, 7)] * 2
    assert cut.key_group_range == KeyGroupRange(6, 7)
    assert (cut.materialization_id, cut.checkpoint_id) == (3, 9)


@pytest.mark.parametrize(
    ("handle", "size"),
    [(CANONICAL, 100), (HEAP, 200), (ROCKSDB, 14), (LOG, 70), (IN_MEMORY, 6), (BOTH, 176)],
    ids=lambda value: type(value).__name__,
)
def test_state_size(handle: KeyedStateHandle, size: int) -> None:
    assert handle.state_size == size


def test_sizes_of_base_and_log() -> None:
    assert (BOTH.materialized_size, BOTH.non_materialized_size) == (100, 76)


def test_streams_of_every_handle() -> None:
    assert list(keyed_state_streams(HEAP)) == [HEAP.stream]
    assert list(keyed_state_streams(ROCKSDB)) == [file("meta", 1), file("s", 10), file("p", 3)]
    assert list(keyed_state_streams(IN_MEMORY)) == []
    assert list(keyed_state_streams(BOTH)) == [CANONICAL.stream, SEGMENT]


def test_a_subtask_names_all_its_streams_and_sizes() -> None:
    def operator_state(name: str) -> OperatorStreamStateHandle:
        return OperatorStreamStateHandle((), file(name, 2))

    channel = ChannelStateHandle(
        ChannelStateKind.INPUT_CHANNEL, 0, (0, 0), (0,), 8, file("channel", 9)
    )
    subtask = OperatorSubtaskState(
        0, operator_state("a"), operator_state("b"), CANONICAL, HEAP, (channel,), (channel,)
    )
    names = [each.path for each in subtask.streams() if isinstance(each, FileStateHandle)]
    assert names == [
        *["file:/a", "file:/b", "file:/canonical", "file:/heap"],
        *["file:/channel", "file:/channel"],
    ]
    assert subtask.state_size == 2 + 2 + 100 + 200 + 8 + 8
    operator = OperatorState(
        OperatorID(bytes(16)),
        1,
        128,
        (subtask, subtask),
        coordinator_state=ByteStreamStateHandle("c", b"abc"),
    )
    assert operator.state_size == 3 + 2 * subtask.state_size
    assert EmptySegmentFileStateHandle().state_size == 0
