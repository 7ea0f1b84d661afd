"""Rows of real table files as records: those of the sections, in small batches, with its errors."""

from __future__ import annotations

import ctypes

import pytest

from dstl_core import Snapshot
from dstl_core.codec.columnar.keyed import sst_rows
from dstl_core.codec.columnar.keyed.decoder import VALUE, StateDecoder
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.errors import FormatError, NotInColumnsError
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle
from dstl_core.model.key_group import key_group_prefix_bytes
from dstl_core.state.restore.rocksdb_columns import open_table_records
from tests.golden_files import SNAPSHOTS

HANDLES = [
    (fixture, operator.label, number)
    for fixture in SNAPSHOTS
    for operator in Snapshot.load(fixture.snapshot).operators
    for number, handle in enumerate(operator.keyed_handles)
    if isinstance(handle, IncrementalRemoteKeyedStateHandle)
]
RANGE_DELETIONS = {"o-rescaled-claim-rocksdb", "x-rescaled-rocksdb-incremental"}
MOST_BYTES = 100


def opened(fixture, label, number=0):
    operator = Snapshot.load(fixture.snapshot)[label]
    handle = operator.keyed_handles[number]
    snapshot, prefix_bytes = operator.snapshot, key_group_prefix_bytes(operator.max_parallelism)
    own = handle.key_group_range
    return open_table_records(snapshot.tables.of(handle), own, prefix_bytes)


def contents(batch):
    """State, key group, key and value of each record."""
    columns = (batch.states.tolist(), batch.key_groups.tolist(), batch.spans.tolist())
    for state, key_group, span in zip(*columns, strict=True):
        start, end, value, value_end, _ = span
        raw = ctypes.string_at(start, end - start), ctypes.string_at(value, value_end - value)
        yield state, key_group, *raw


@pytest.mark.parametrize(("fixture", "label", "number"), HANDLES, ids=str)
def test_records_are_those_of_the_sections(fixture, label, number, monkeypatch):
    monkeypatch.setattr(sst_rows, "BYTES_PER_BATCH", MOST_BYTES)
    if fixture.name in RANGE_DELETIONS:
        with pytest.raises(NotInColumnsError):
            opened(fixture, label, number)
        return
    records = opened(fixture, label, number)
    every = [True] * len(records.header.states)
    batches = [list(contents(batch)) for batch in records.records(every)]
    sections = records.as_sections().records(every)
    expected = [record for batch in sections for record in contents(batch)]
    assert sorted(record for batch in batches for record in batch) == sorted(expected)
    for batch in batches:
        assert len(batch) == 1 or sum(len(k) + len(v) for _, _, k, v in batch) <= MOST_BYTES


def refusal(records, state, other):
    """The error for a value of one state that is decoded as a value of another one."""
    meta = records.header.states[other]
    decoder = StateDecoder(RecordFormat(meta, records.header.key_serializer), records.prefix_bytes)
    mask = [at == state for at in range(len(records.header.states))]
    with pytest.raises(FormatError) as caught:
        for batch in records.records(mask):
            first = next(contents(batch))
            decoder.decode(batch, {VALUE})
    return caught.value, first


def test_a_value_of_another_type_is_refused_with_the_same_words():
    [fixture] = [each for each in SNAPSHOTS if each.name == "a-rocksdb-checkpoint-incremental"]
    records = opened(fixture, "a-keyed")
    ids = {meta.name: at for at, meta in enumerate(records.header.states)}
    state, other = ids["cnt"], ids["names"]
    error, (_, _, key, value) = refusal(records, state, other)
    expected, _ = refusal(records.as_sections(), state, other)
    assert (error.what, error.context["field"]) == (expected.what, expected.context["field"])
    offset = error.context["offset"]
    start = 4 + records.prefix_bytes + len(key) + 4
    assert start <= offset <= start + len(value)
