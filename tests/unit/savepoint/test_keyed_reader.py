"""Columns of snapshots by real Flink hold what the entries hold."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from dstl_core.codec.columnar.type_layouts import NoLayoutError, layout_of
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint import Snapshot
from dstl_core.savepoint.keyed_reader import KeyedStateReader, ReadOptions
from tests.columnar_cases import EXACT, column_value, comparable
from tests.golden_files import SNAPSHOTS

OPERATORS = [
    (fixture, operator.label)
    for fixture in SNAPSHOTS
    for operator in Snapshot.load(fixture.snapshot).operators
    if operator.keyed_handles
]


def has_columns(*serializers):
    try:
        for serializer in serializers:
            layout_of(serializer)
    except NoLayoutError:
        return False
    return True


def key(value):
    return json.dumps(comparable(value), default=repr, sort_keys=True)


def flat_rows(entry):
    """The rows of an entry in flat form, from the record-wise code."""
    row = {"state_key": column_value(entry.key_type, entry.key)}
    namespace = column_value(entry.namespace_type, entry.namespace)
    if entry.namespace_type.type_name != "VoidNamespace":
        window = entry.namespace_type.type_name.endswith("TimeWindow")
        row["state_window" if window else "state_namespace"] = namespace
    if entry.kind == "list":
        for index, item in enumerate(entry.value):
            element = column_value(entry.value_type.nested[0], item)
            yield {**row, "list_index": index, "list_value": element}
    elif entry.kind == "map":
        key_type, item_type = entry.value_type.nested[-2:]
        for user_key, item in entry.value:
            pair = column_value(key_type, user_key), column_value(item_type, item)
            yield {**row, "map_key": pair[0], "map_value": pair[1]}
    else:
        yield {**row, "state_value": column_value(entry.value_type, entry.value)}


def all_rows(reader, operator):
    everything = KeyGroupRange(0, operator.max_parallelism - 1)
    for batch in reader.read(everything):
        batch.validate(full=True)
        yield from batch.to_pylist()


@pytest.mark.parametrize(("fixture", "label"), OPERATORS, ids=str)
def test_flat_columns_hold_the_entries(fixture, label):
    operator = Snapshot.load(fixture.snapshot)[label]
    for info in operator.states:
        serializers = [operator.key_type.serializer, info.meta.value_serializer]
        if info.kind.endswith("timer") or not has_columns(*serializers):
            continue
        reader = KeyedStateReader(operator, info.name, ReadOptions(types=EXACT))
        expected = Counter(
            key(row)
            for entry in operator.keyed_entries(info.name)
            if entry.state == info.name
            for row in flat_rows(entry)
        )
        assert Counter(key(row) for row in all_rows(reader, operator)) == expected


@pytest.mark.parametrize(("fixture", "label"), OPERATORS, ids=str)
def test_timers_as_columns(fixture, label):
    operator = Snapshot.load(fixture.snapshot)[label]
    for info in operator.states:
        if not info.kind.endswith("timer") or not has_columns(info.meta.value_serializer):
            continue
        names = (info.name,)
        reader = KeyedStateReader(operator, info.name, ReadOptions(types=EXACT))
        found = Counter(key(row) for row in all_rows(reader, operator))
        expected = Counter()
        for timer in operator.timer_entries():
            if (timer.kind, timer.service) == (info.kind, info.name.rpartition("_")[2]):
                row = {
                    "state_key": column_value(timer.key_type, timer.key),
                    "timestamp": timer.timestamp,
                }
                if timer.namespace_type.type_name != "VoidNamespace":
                    window = timer.namespace_type.type_name.endswith("TimeWindow")
                    row["state_window" if window else "state_namespace"] = column_value(
                        timer.namespace_type, timer.namespace
                    )
                expected[key(row)] += 1
        assert found == expected, names


@pytest.mark.parametrize(("fixture", "label"), OPERATORS, ids=str)
@pytest.mark.parametrize("memory", [512 << 20, 2000])
def test_one_row_per_key(fixture, label, memory):
    operator = Snapshot.load(fixture.snapshot)[label]
    if not has_columns(operator.key_type.serializer):
        return
    reader = KeyedStateReader(operator, options=ReadOptions(types=EXACT, memory=memory))
    expected = {}
    for entry in operator.keyed_entries():
        if entry.namespace is not None or entry.state not in reader.schema.names:
            continue
        state_key = column_value(entry.key_type, entry.key)
        row = expected.setdefault(key(state_key), dict.fromkeys(reader.schema.names))
        row["state_key"] = state_key
        if entry.kind == "map":
            key_type, item_type = entry.value_type.nested[-2:]
            row[entry.state] = [
                {"key": column_value(key_type, k), "value": column_value(item_type, v)}
                for k, v in entry.value
            ]
        else:
            row[entry.state] = column_value(entry.value_type, entry.value)
    found = Counter(key(in_order(row)) for row in all_rows(reader, operator))
    assert found == Counter(key(in_order(row)) for row in expected.values())


def in_order(row):
    """Entries of map state come in any order."""
    return {
        name: sorted(value, key=key)
        if isinstance(value, list) and value and isinstance(value[0], dict) and "key" in value[0]
        else value
        for name, value in row.items()
    }
