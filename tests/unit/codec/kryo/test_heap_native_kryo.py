"""Kryo values in the heap backend's own form, where nothing but the value tells its end."""

from __future__ import annotations

import pytest

from dstl_core import Snapshot
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.heap_native import HeapEntry, UnreadableRest, read_key_group
from dstl_core.codec.state_meta import BackendStateType, KeyedBackendHeader, KeyedStateType
from dstl_core.state.tables.keyed_state import KeyedState
from tests.golden_files import UPGRADE_JOBS


def restored(job: str, *, jar: bool) -> KeyedState:
    folder = UPGRADE_JOBS / job
    [path] = folder.glob("savepoint-*")
    snapshot = Snapshot.load(path, jars=[folder / "job.jar"] if jar else [])
    [(operator, handle)] = [(o, h) for o in snapshot.operators for h in o.keyed_handles]
    return operator.restore([handle], handle.key_group_range)


def native_key_group(state: KeyedState, key_group: int) -> tuple[KeyedBackendHeader, bytes, int]:
    """Value states of a key group as a heap backend writes them, made of canonical records."""
    tables = [
        table
        for table in state.tables.values()
        if table.meta.backend_state_type is BackendStateType.KEY_VALUE
        and table.meta.keyed_state_type is KeyedStateType.VALUE
    ]
    header = KeyedBackendHeader(
        tables[0].codec.key_serializer, tuple(table.meta for table in tables)
    )
    raw = key_group.to_bytes(4, "big")
    total = 0
    for number, table in enumerate(tables):
        records = list(table.records(key_group))
        raw += number.to_bytes(2, "big") + len(records).to_bytes(4, "big")
        for stored, value in records:
            # Canonical: key group, key, namespace. Native: namespace, key.
            raw += stored[-1:] + stored[1:-1] + value
        total += len(records)
    return header, raw, total


@pytest.mark.parametrize("job", ["times", "carts", "sessions", "fleet", "silent"])
def test_every_value_is_found(job: str) -> None:
    header, raw, total = native_key_group(restored(job, jar=True), 97)
    entries = list(read_key_group(DataInput(raw), header, 97))
    assert all(isinstance(each, HeapEntry) for each in entries)
    assert len(entries) == total == len(header.states)


def test_jdk_classes_need_no_jar() -> None:
    header, raw, total = native_key_group(restored("times", jar=False), 97)
    assert len(list(read_key_group(DataInput(raw), header, 97))) == total


def test_what_is_lost_is_said_precisely() -> None:
    header, raw, _ = native_key_group(restored("carts", jar=False), 97)
    entries = list(read_key_group(DataInput(raw), header, 97))
    lost = entries[-1]
    assert isinstance(lost, UnreadableRest)
    first = lost.state_ids[0]
    assert lost.state_ids == tuple(range(first, len(header.states)))
    assert [each.state_id for each in entries[:-1]] == list(range(first))
    assert "Class carts.Line of the job is needed" in lost.error.message
