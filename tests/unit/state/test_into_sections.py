"""State of every stored form, opened as canonical sections: by columns, and record by record."""

from __future__ import annotations

import pytest

from dstl_core import Snapshot
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_canonical import read_section
from dstl_core.model.handle import KeyGroupsSavepointStateHandle
from dstl_core.state.restore import into_sections
from dstl_core.state.restore.into_tables import restore_keyed_state
from dstl_core.state.restore.open_tables import OpenTables
from tests.golden_files import SNAPSHOTS

HANDLES = [
    (fixture, operator.label, number)
    for fixture in SNAPSHOTS
    for operator in Snapshot.load(fixture.snapshot).operators
    for number, handle in enumerate(operator.keyed_handles)
    if not isinstance(handle, KeyGroupsSavepointStateHandle)
]
# Windows that merge: what becomes of their values only the record-wise code can tell.
MERGING = {"session-evictor", "session-list", "session-dynamic"}
# Table files with range deletions, which a rescaled job writes.
RANGE_DELETIONS = {"o-rescaled-claim-rocksdb", "x-rescaled-rocksdb-incremental"}


@pytest.mark.slow
@pytest.mark.parametrize(("fixture", "label", "number"), HANDLES, ids=str)
def test_columns_give_the_records_that_are_restored(fixture, label, number, monkeypatch):
    operator = Snapshot.load(fixture.snapshot)[label]
    handle = operator.keyed_handles[number]
    snapshot, total = operator.snapshot, operator.max_parallelism
    key_type = operator.key_type.serializer
    arguments = (total, snapshot.resolver, snapshot.registry)
    own = handle.key_group_range
    state = restore_keyed_state([handle], own, *arguments, key_serializer=key_type)
    expected = {
        (table.meta.name, key, value)
        for table in state.tables.values()
        for key_group in handle.key_group_range
        for key, value in table.records(key_group)
    }
    calls = []
    monkeypatch.setattr(
        into_sections,
        "restore_keyed_state",
        lambda *args, **options: calls.append(label) or restore_keyed_state(*args, **options),
    )
    tables = OpenTables(snapshot.resolver, snapshot.registry)
    stored = into_sections.KeyGroupsOpener(total, tables, key_type).open_sections(handle, own)
    metas = stored.header.states
    restored = [
        (metas[record.state_id].name, record.key, record.value)
        for _, start, end in stored.sections
        for record in read_section(DataInput(bytes(stored.read(start, end))), len(metas))
    ]
    assert sorted(restored) == sorted(expected)
    assert bool(calls) == (label in MERGING or fixture.name in RANGE_DELETIONS)
