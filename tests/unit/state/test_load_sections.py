"""Large state comes in by batches; it is the same state as record by record."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.model.handle import (
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    RelativeFileStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.state.backends.rocksdb_store import RocksDBStore
from dstl_core.state.restore import load_sections
from dstl_core.state.restore.canonical import read_stream_header
from dstl_core.state.restore.into_tables import restore_keyed_state
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.store import HEAP, EntryStore
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location
from dstl_core.testing import MemoryFileIO
from tests.golden_files import SNAPSHOTS, Fixture
from tests.kernel_sizes import NEVER, kernels_from


def handles_of(operator: OperatorSnapshot) -> list[KeyedStateHandle]:
    return [each for each in operator.keyed_handles if isinstance(each, BY_COLUMNS)]


BY_COLUMNS = KeyGroupsSavepointStateHandle | IncrementalRemoteKeyedStateHandle
FIXTURES = [
    fixture
    for fixture in SNAPSHOTS
    if any(handles_of(operator) for operator in Snapshot.load(fixture.snapshot).operators)
]


def restored(operator: OperatorSnapshot, store: EntryStore) -> KeyedState:
    return restore_keyed_state(
        handles_of(operator),
        KeyGroupRange(0, operator.max_parallelism - 1),
        operator.max_parallelism,
        operator.snapshot.resolver,
        keep_going=True,
        store=store,
    )


def stored(state: KeyedState) -> dict[Any, Any]:
    """Every entry as it is kept."""
    return {
        (name, key_group, scope): dict(value) if hasattr(value, "items") else value
        for name, table in state.tables.items()
        for key_group, group in table.groups.items()
        for scope, value in group.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("on_disk", [False, True], ids=["heap", "rocksdb"])
@pytest.mark.parametrize("fixture", FIXTURES, ids=str)
def test_every_snapshot_comes_in_as_it_does_record_by_record(
    fixture: Fixture, on_disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for operator in Snapshot.load(fixture.snapshot).operators:
        if not handles_of(operator):
            continue
        kernels_from(monkeypatch, NEVER)
        expected = restored(operator, HEAP)
        with monkeypatch.context() as patch:
            kernels_from(patch, 0)
            patch.setattr(load_sections, "_FILES_AT_ONCE", 1000)
            store: EntryStore = HEAP
            if on_disk:
                store = RocksDBStore(tmp_path, cache_bytes=1 << 20, write_buffer_bytes=1 << 20)
            by_sections = restored(operator, store)
            assert stored(by_sections) == stored(expected)
            assert sorted(map(repr, by_sections.lost)) == sorted(map(repr, expected.lost))
            store.close()


def test_there_are_snapshots_of_every_kind() -> None:
    kinds = Counter(
        type(handle)
        for fixture in FIXTURES
        for operator in Snapshot.load(fixture.snapshot).operators
        for handle in handles_of(operator)
    )
    assert kinds[KeyGroupsSavepointStateHandle] > 60
    assert kinds[IncrementalRemoteKeyedStateHandle] > 10


class CountedFileIO(MemoryFileIO):
    """Counts the bytes that are read."""

    read = 0

    def read_bytes(self, location: Location, start: int = 0, end: int | None = None) -> bytes:
        content = super().read_bytes(location, start, end)
        self.read += len(content)
        return content


def test_the_header_of_a_part_of_a_large_stream_is_read_without_what_lies_between() -> None:
    fixture = next(each for each in FIXTURES if each.name == "a-hashmap-canonical-files")
    operator = next(each for each in Snapshot.load(fixture.snapshot).operators if handles_of(each))
    [part, *_] = handles_of(operator)
    assert isinstance(part, KeyGroupsSavepointStateHandle)
    first = min(offset for offset in part.offsets.offsets if offset)
    header = operator.snapshot.resolver.read(part.stream, 0, first)
    file_io, folder = CountedFileIO(), Location.parse("memory://test/large")
    file_io.files[str(folder.child("state"))] = header.ljust(20 << 20, b"\0")
    last = KeyGroupRangeOffsets(KeyGroupRange(127, 127), (19 << 20,))
    handle = replace(part, offsets=last, stream=RelativeFileStateHandle("state", 20 << 20))

    read_header = read_stream_header(
        handle, HandleResolver(file_io, folder), operator.snapshot.registry
    )

    assert {each.name for each in operator.states} <= {each.name for each in read_header.states}
    assert file_io.read <= 1 << 20
