"""Columns of snapshots by real Flink hold what the entries hold."""

from collections import Counter

import pyarrow as pa
import pytest

from dstl_core import Snapshot
from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS, layout_of
from dstl_core.codec.serializers import VoidNamespaceSerializer
from dstl_core.codec.serializers.table_types import RowDataSerializer
from dstl_core.errors import (
    ConfigError,
    NoSuchStateError,
    NotInColumnsError,
    SavepointError,
    UnreadableValueError,
)
from tests.columnar_values import as_column, plain, sql_texts
from tests.examples import thinned
from tests.golden_files import CHANGED_JOBS, SNAPSHOTS, snapshot

OPERATORS = [
    (fixture, operator.label)
    for fixture in SNAPSHOTS
    for operator in Snapshot.load(fixture.snapshot).operators
    if operator.keyed_handles
]
# Pattern matching keeps values that have no columns; a reader gives their bytes.
CEP_STATES = {"nfaStateName", "sharedBuffer-events", "sharedBuffer-entries-with-lockable-edges"}
# What only a class of the job can read ends a reader, in one sentence.
READABLE = [each for each in OPERATORS if each[1] != "wide"]


def has_columns(*serializers):
    try:
        for serializer in serializers:
            layout_of(serializer)
    except NotInColumnsError:
        return False
    return True


def is_sql(operator):
    return isinstance(operator.key_type.serializer, RowDataSerializer)


def flat_rows(entry, sql):
    """The rows of an entry in flat form, from the record-wise code."""
    contents = sql_texts(entry.value) if sql else entry.value
    row = {"state_key": entry.key}
    if entry.namespace_type != VoidNamespaceSerializer():
        window = entry.namespace_type.type_name.endswith("TimeWindow")
        row["state_window" if window else "state_namespace"] = entry.namespace
    if entry.kind == "list":
        for index, item in enumerate(contents):
            yield {**row, "list_index": index, "list_value": item}
    elif entry.kind == "map":
        for user_key, item in contents:
            yield {**row, "map_key": user_key, "map_value": item}
    else:
        yield {**row, "state_value": contents}


def as_rows(schema, rows):
    """Rows of the record-wise code as the columns of a schema; a Counter of their texts."""
    rows = list(rows)
    columns = {
        field.name: as_column((row.get(field.name) for row in rows), field.type) for field in schema
    }
    return Counter(
        in_order({name: column[at] for name, column in columns.items()}) for at in range(len(rows))
    )


def rows_of(reader):
    counted = Counter()
    for batch in reader.read():
        batch.validate(full=True)
        columns = {
            name: plain(column)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        counted.update(
            in_order({name: column[at] for name, column in columns.items()})
            for at in range(batch.num_rows)
        )
    return counted


def in_order(row):
    """As text; entries of map state come in any order."""
    return repr(
        {
            name: sorted(value, key=repr)
            if isinstance(value, list)
            and value
            and isinstance(value[0], dict)
            and "key" in value[0]
            else value
            for name, value in row.items()
        }
    )


def test_a_value_of_an_unknown_class_is_named():
    operator = Snapshot.load(snapshot("o-wide"))["wide"]
    with pytest.raises(UnreadableValueError, match=r"h3\.Reg"):
        list(operator.keyed(types=EXACT_OPTIONS).read())


def test_deduplicated_rows_are_read_with_their_kind_and_without_options():
    """A replaced row is +U in this state; the expected rows are those that Flink restores."""
    operator = Snapshot.load(CHANGED_JOBS / "dedup-reorder" / "old")["4_deduplicate"]
    deduplicated = [
        list(row["state_value"].values())
        for batch in operator.flat("deduplicate-state").read()
        for row in batch.to_pylist()
    ]
    assert sorted(deduplicated) == [
        ["+U", "ada", "a10", "b10", 10, None],
        ["+U", "bob", "a11", "b11", 11, None],
        ["+U", "cyd", "a7", "b7", 7, None],
        ["+U", "dee", "a8", "b8", 8, None],
        ["+U", "eve", "a9", "b9", 9, None],
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("fixture", "label"), thinned(READABLE, 3, 1), ids=str)
def test_flat_columns_hold_the_entries(fixture, label):
    operator = Snapshot.load(fixture.snapshot)[label]
    for info in operator.states:
        serializers = [operator.key_type.serializer, info.meta.value_serializer]
        if info.kind.endswith("timer") or not has_columns(*serializers):
            continue
        reader = operator.flat(info.name, types=EXACT_OPTIONS)
        expected = (
            row
            for entry in operator.keyed_entries(info.name)
            if entry.state == info.name
            for row in flat_rows(entry, is_sql(operator))
        )
        assert rows_of(reader) == as_rows(reader.schema, expected)


@pytest.mark.slow
@pytest.mark.parametrize(("fixture", "label"), thinned(READABLE, 3, 2), ids=str)
def test_timers_as_columns(fixture, label):
    operator = Snapshot.load(fixture.snapshot)[label]
    for info in operator.states:
        if not info.kind.endswith("timer") or not has_columns(info.meta.value_serializer):
            continue
        reader = operator.flat(info.name, types=EXACT_OPTIONS)
        expected = []
        service = info.name.partition("/")[2].partition("_")[2]
        for timer in operator.timer_entries():
            if (timer.kind, timer.service) == (info.kind, service):
                row = {"state_key": timer.key, "timestamp": timer.timestamp}
                window = timer.namespace_type.type_name.endswith("TimeWindow")
                row["state_window" if window else "state_namespace"] = timer.namespace
                expected.append(row)
        assert rows_of(reader) == as_rows(reader.schema, expected)


@pytest.mark.slow
@pytest.mark.parametrize(("fixture", "label"), thinned(READABLE, 3), ids=str)
@pytest.mark.parametrize("memory", [512 << 20, 2000])
def test_one_row_per_key(fixture, label, memory):
    operator = Snapshot.load(fixture.snapshot)[label]
    everything = operator.keyed(types=EXACT_OPTIONS, memory=memory).schema
    for name in CEP_STATES & set(everything.names):
        kind = everything.field(name).type
        assert kind == pa.binary() or {each.type for each in kind.value_type} == {pa.binary()}
    columns = tuple(each for each in everything.names if each not in CEP_STATES)
    reader = operator.keyed(types=EXACT_OPTIONS, memory=memory, columns=columns)
    expected = {}
    for entry in operator.keyed_entries():
        if entry.namespace is not None or entry.state not in reader.schema.names:
            continue
        row = expected.setdefault(repr(entry.key), {"state_key": entry.key})
        row[entry.state] = sql_texts(entry.value) if is_sql(operator) else entry.value
    assert rows_of(reader) == as_rows(reader.schema, expected.values())


A = Snapshot.load(SNAPSHOTS[0].snapshot)["a-keyed"]


def test_columns_are_chosen_by_name():
    name = A.states[0].name
    reader = A.keyed(columns=(name,))
    assert reader.schema.names == [name]
    assert sum(batch.num_rows for batch in reader.read()) > 0
    with pytest.raises(ConfigError, match="no column 'nowhere'"):
        A.keyed(columns=("nowhere",))
    with pytest.raises(NoSuchStateError):
        A.flat("nowhere")


def test_keys_are_looked_up():
    everything = pa.Table.from_batches(list(A.keyed().read()))
    keys = everything["state_key"].to_pylist()
    chosen = (keys[0], keys[-1])
    rows = pa.Table.from_batches(list(A.keyed(keys=chosen).read()))
    assert sorted(rows["state_key"].to_pylist()) == sorted(chosen)
    assert [row for row in everything.to_pylist() if row["state_key"] == chosen[0]] == [
        row for row in rows.to_pylist() if row["state_key"] == chosen[0]
    ]


def test_key_groups_are_a_column_where_asked_for():
    info = next(each for each in A.states if each.kind == "value")
    reader = A.flat(info.name, columns=("state_key", "key_group"))
    expected = Counter((each.key, each.key_group) for each in A.keyed_entries(info.name))
    counted = Counter(
        (row["state_key"], row["key_group"]) for batch in reader.read() for row in batch.to_pylist()
    )
    assert counted == expected


WINDOWED = ["d-window-state", "d-tumble-reduce", "d-tumble-agg", "d-sliding", "d-process"]
WINDOWED += ["d-session", "d-count-trigger", "d-evictor", "d-count-window"]


@pytest.mark.parametrize("label", WINDOWED)
def test_one_row_per_key_and_window(label):
    operator = Snapshot.load(snapshot("d-windows-hashmap"))[label]
    reader = operator.windows(types=EXACT_OPTIONS)
    expected = {}
    for entry in operator.keyed_entries():
        if entry.state not in reader.schema.names:
            continue
        place = repr((entry.key, entry.namespace))
        row = expected.setdefault(place, {"state_key": entry.key, "state_window": entry.namespace})
        row[entry.state] = entry.value
    assert expected
    assert rows_of(reader) == as_rows(reader.schema, expected.values())


def test_timers_of_windows_are_columns_where_they_are_asked_for():
    operator = Snapshot.load(snapshot("d-windows-hashmap"))["d-tumble-agg"]
    name = next(info.name for info in operator.states if info.kind == "event-timer")
    columns = ("state_key", "state_window", "window-contents", name)
    rows = pa.Table.from_batches(list(operator.windows(columns=columns).read())).to_pylist()
    assert rows
    # A tumbling window's timer is at its last millisecond.
    assert all(row[name] == [row["state_window"]["end"] - 1] for row in rows)


def test_an_operator_without_windows():
    with pytest.raises(SavepointError, match="no windows"):
        A.windows()
