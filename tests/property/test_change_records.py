"""Change records as columns: what the record-wise code reads."""

from __future__ import annotations

from dataclasses import asdict

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core import Snapshot
from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.codec.change_payload import MetadataChange, read_change
from dstl_core.codec.change_payload import StateChangeOperation as Operation
from dstl_core.codec.columnar.changes.change_spans import ChangeSpans, change_spans
from dstl_core.codec.columnar.changes.records import ChangeRecords
from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.serializers import BUILT_IN, MapSerializer, VoidNamespaceSerializer
from dstl_core.codec.state_meta import KeyedStateType
from dstl_core.errors import FormatError
from dstl_core.savepoint.read.changes import change_lines, has_changelog
from tests.columnar_cases import column_value, comparable
from tests.examples import examples
from tests.golden_files import SNAPSHOTS
from tests.stored_forms import RESOLVER, changelog_forms

LOGGED = [
    (fixture, operator.label)
    for fixture in SNAPSHOTS
    for operator in Snapshot.load(fixture.snapshot).operators
    if has_changelog(operator)
]


def batches_of(log):
    return StateChangelogHandleReader(RESOLVER.read_segment).read_batches(log)


def record_wise(record_format, change):
    """A change as a row of ``ChangeRecords``."""
    meta, body = record_format.meta, change.body
    serializer = meta.value_serializer
    row = {"operation": change.operation.name}
    if record_format.is_queue:
        timers = []
        if change.operation is Operation.REMOVE_ELEMENT:
            timers = [serializer.deserialize(body)]
        else:
            timers = [serializer.deserialize(body) for _ in range(body.read_i32())]
        body.expect_end("a change")
        namespace = serializer.namespace
        row["value"] = [
            {
                "timestamp": timer.timestamp,
                "key": column_value(serializer.key, timer.key),
                "namespace": column_value(namespace, timer.namespace),
            }
            for timer in timers
        ]
        return row
    row["key"] = column_value(
        record_format.key_serializer, record_format.key_serializer.deserialize(body)
    )
    namespace = meta.namespace_serializer
    where = column_value(namespace, namespace.deserialize(body))
    if namespace != VoidNamespaceSerializer():
        row |= {"namespace": where, "merged": None}
    row["value"] = value_of(record_format.kind, serializer, change.operation, body)
    body.expect_end("a change")
    return row


def value_of(kind, serializer, operation, body):
    if operation is Operation.CLEAR:
        return None
    if operation is Operation.ADD_ELEMENT and kind is KeyedStateType.LIST:
        return [column_value(serializer.element, serializer.element.deserialize(body))]
    if isinstance(serializer, MapSerializer) and operation in (
        Operation.REMOVE_ELEMENT,
        Operation.ADD_OR_UPDATE_ELEMENT,
    ):
        pair = {"key": column_value(serializer.key, serializer.key.deserialize(body))}
        if operation is Operation.REMOVE_ELEMENT:
            return [pair | {"value": None}]
        return [
            pair | {"value": column_value(serializer.value, serializer.value.deserialize(body))}
        ]
    return column_value(serializer, serializer.deserialize(body))


@pytest.mark.slow
@given(changelog_forms())
def test_columns_are_what_the_record_wise_code_reads(form):
    [log] = form.handle.non_materialized
    formats = {}
    truth = []
    for key_group, raw in log.changes:
        change = read_change(raw, BUILT_IN)
        if isinstance(change, MetadataChange):
            formats[change.state_id] = RecordFormat(change.state, form.key_type)
        else:
            truth.append((key_group, record_wise(formats[change.state_id], change)))
    records = {key: ChangeRecords(each, EXACT_OPTIONS) for key, each in formats.items()}
    decoded = {}
    at = 0
    for batch in batches_of(log):
        for part in change_spans(batch):
            if not isinstance(part, ChangeSpans):
                continue
            for operation, state_id, changes in part.by_operation():
                columns = records[state_id].decode(operation, changes.batch)
                for name, kind in records[state_id].columns.items():
                    columns[name].validate(full=True)
                    assert columns[name].type == kind
                values = {name: column.to_pylist() for name, column in columns.items()}
                for number, row in enumerate(changes.rows):
                    decoded[at + int(row)] = (
                        int(changes.batch.key_groups[number]),
                        {name: comparable(column[number]) for name, column in values.items()},
                    )
        at += batch.num_rows
    expected = [
        (key_group, {name: comparable(value) for name, value in row.items()})
        for key_group, row in truth
    ]
    assert [decoded[row] for row in sorted(decoded)] == expected


@pytest.mark.slow
@given(changelog_forms(), st.data())
@settings(max_examples=examples(50))
def test_damage_is_refused_where_the_record_wise_code_refuses_it(form, data):
    [log] = form.handle.non_materialized
    states, raws = {}, []
    for _, raw in log.changes:
        change = read_change(raw, BUILT_IN)
        if isinstance(change, MetadataChange):
            states[change.state_id] = RecordFormat(change.state, form.key_type)
        else:
            raws.append((change.state_id, raw))
    if not raws:
        return
    for _ in range(10):
        state_id, raw = data.draw(st.sampled_from(raws))
        raw = raw[: data.draw(st.integers(3, len(raw)))]
        try:
            truth = record_wise(states[state_id], read_change(raw, BUILT_IN))
        except FormatError:
            truth = None
        batch = pa.record_batch(
            {"key_group": pa.array([1], pa.int32()), "value": pa.array([raw], pa.binary())}
        )
        [part] = change_spans(batch)
        [(operation, _, own)] = part.by_operation()
        records = ChangeRecords(states[state_id], EXACT_OPTIONS)
        if truth is None:
            with pytest.raises(FormatError):
                records.decode(operation, own.batch)
        else:
            columns = records.decode(operation, own.batch)
            row = {name: comparable(column[0].as_py()) for name, column in columns.items()}
            assert row == {name: comparable(value) for name, value in truth.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("fixture", "label"), LOGGED, ids=str)
def test_every_change_by_real_flink_is_a_row(fixture, label):
    operator = Snapshot.load(fixture.snapshot)[label]
    for info in operator.states:
        lines = [
            (line["subtask"], line["sqn"], line["kg"], line["operation"])
            for line in change_lines(operator, info.name)
            if line["operation"] != "METADATA"
        ]
        changes = operator.changes(info.name, **asdict(EXACT_OPTIONS))
        rows = []
        for batch in changes.read(batch_rows=7):
            batch.validate(full=True)
            assert batch.schema == changes.schema
            rows += zip(*(column.to_pylist() for column in batch.columns[:4]), strict=True)
        assert rows == lines
