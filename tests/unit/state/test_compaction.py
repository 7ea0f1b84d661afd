"""Segments of earlier runs are written together, where they are small."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.changelog.storage import FsStateChangelogStorage
from dstl_core.changelog.upload import StateChangeUploadScheduler
from dstl_core.config import ChangelogOptions
from dstl_core.model.change import META_KEY_GROUP
from dstl_core.model.handle import (
    ChangelogStateHandle,
    ChangelogStateHandleStream,
    FileStateHandle,
    InMemoryChangelogStateHandle,
)
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.restore.compaction import (
    LARGE_SEGMENT_BYTES,
    compact_log,
    count_segments,
    small_segments,
)
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location

ALL = KeyGroupRange(0, 7)
SMALL, LARGE = 1000, LARGE_SEGMENT_BYTES


@pytest.fixture
def storage(tmp_path) -> Iterator[FsStateChangelogStorage]:
    options = ChangelogOptions.of(base_path=str(tmp_path), compression_enabled=False)
    with FsStateChangelogStorage(
        JobID.from_hex("ab" * 16), options, scheduler=StateChangeUploadScheduler.direct_scheduler
    ) as storage:
        yield storage


@pytest.mark.parametrize("changes", [10, 30_000], ids=["few", "many"])
def test_the_changes_stay_in_their_order_with_their_metadata_first(tmp_path, storage, changes):
    written: list[tuple[int, bytes]] = []
    log: list[ChangelogStateHandle] = []
    groups = np.arange(changes) % 8
    for run in range(3):
        writer = storage.create_writer("u", ALL)
        for part in range(2):
            own = [b"run %d part %d change %d" % (run, part, each) for each in range(changes)]
            writer.append_meta(b"states of %d" % run)
            writer.append_batch(groups, pa.array(own, pa.binary()))
            written.append((META_KEY_GROUP, b"states of %d" % run))
            for group in range(8):
                written += [(group, own[at]) for at in range(group, changes, 8)]
            end = writer.next_sequence_number()
        log.append(
            writer.persist(writer.initial_sequence_number(), 1).result().job_manager_owned_snapshot
        )
        writer.confirm(writer.initial_sequence_number(), end, 1)
        writer.close()
    root = Location.parse(str(tmp_path))
    reader = StateChangelogHandleReader(HandleResolver(open_file_io(root), root).read_segment)
    [compacted] = compact_log(tuple(log), reader, storage.create_writer("u", ALL), 2)
    assert [(each.key_group, each.change) for each in reader.get_changes(compacted)] == written


def handle(*sizes: int, name: str) -> ChangelogStateHandleStream:
    streams = tuple(
        (FileStateHandle(f"/log/{name}-{at}", size), 0) for at, size in enumerate(sizes)
    )
    return ChangelogStateHandleStream(streams, ALL, sum(sizes), 0, name)


def test_the_longest_part_without_large_segments_is_chosen() -> None:
    inlined = InMemoryChangelogStateHandle(((0, b"x"),), ALL, 0, 1, "inlined")
    log = (
        handle(SMALL, name="a"),
        handle(LARGE, LARGE, name="b"),
        handle(SMALL, name="c"),
        inlined,
        handle(SMALL, SMALL, name="d"),
        handle(LARGE, name="e"),
        handle(SMALL, SMALL, name="f"),
    )
    start, end = small_segments(log)
    assert log[start:end] == log[2:5]
    assert count_segments(log[start:end]) == 3


def test_a_handle_with_a_small_last_segment_is_large() -> None:
    log = (handle(5 * LARGE, 5 * LARGE, SMALL, name="a"),)
    assert small_segments(log) == (0, 0)
    assert small_segments(()) == (0, 0)
