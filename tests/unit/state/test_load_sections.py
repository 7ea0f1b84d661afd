"""Large state comes in by batches; it is the same state as record by record."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.model.handle import (
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.state.backends.rocksdb_store import RocksDBStore
from dstl_core.state.restore import into_tables, load_sections
from dstl_core.state.restore.into_tables import restore_keyed_state
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.store import HEAP, EntryStore
from tests.golden_files import SNAPSHOTS, Fixture


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
        expected = restored(operator, HEAP)
        with monkeypatch.context() as patch:
            patch.setattr(into_tables, "COLUMNS_FROM_BYTES", 0)
            patch.setattr(load_sections, "_FILES_AT_ONCE", 1000)
            store: EntryStore = HEAP
            if on_disk:
                store = RocksDBStore(tmp_path, cache_bytes=1 << 20, write_buffer_bytes=1 << 20)
            found = restored(operator, store)
            assert stored(found) == stored(expected)
            assert sorted(map(repr, found.lost)) == sorted(map(repr, expected.lost))
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
