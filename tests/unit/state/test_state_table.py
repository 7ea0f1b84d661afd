"""Tables: canonical records in and out, changes applied, entries decoded. Bytes by hand."""

from __future__ import annotations

from typing import Any

import pytest

from dstl_core.codec.change_payload import StateChangeOperation as Operation
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers import (
    AnySerializer,
    TimerSerializer,
    Types,
    VoidNamespaceSerializer,
)
from dstl_core.codec.serializers.runtime import Timer
from dstl_core.codec.serializers.window_types import TimeWindow, TimeWindowSerializer
from dstl_core.codec.state_meta import BackendStateType, KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import ConfigError, FormatError
from dstl_core.state.tables.state_table import StateTable
from dstl_core.state.tables.table_factory import create_table

KIND = KeyedStateType
SCOPE = bytes.fromhex("036b36 00")  # key "k6", no namespace
KEY_GROUP = 7


def table(
    kind: KeyedStateType, value: AnySerializer, namespace: AnySerializer | None = None
) -> StateTable[Any]:
    meta = StateMetaInfoSnapshot.key_value("s", kind, value, namespace)
    return create_table(meta, Types.STRING, 1)


def queue(element: AnySerializer | None = None) -> StateTable[Any]:
    timer = TimerSerializer(Types.STRING, VoidNamespaceSerializer())
    return create_table(
        StateMetaInfoSnapshot.priority_queue("q", element or timer), Types.STRING, 1
    )


def apply(state_table: StateTable[Any], operation: Operation, raw: str) -> None:
    state_table.apply(operation, KEY_GROUP, DataInput(bytes.fromhex(raw)))


def values(state_table: StateTable[Any]) -> list[Any]:
    return [value for _, _, value in state_table.entries(KEY_GROUP)]


LONGS = Types.LIST(Types.LONG)
COUNTS = Types.MAP(Types.STRING, Types.LONG)


@pytest.mark.parametrize(
    ("state_table", "records", "entries"),
    [
        (
            table(KIND.VALUE, Types.LONG),
            [("07 036b36 00", "0000000000000030")],
            [("k6", None, 48)],
        ),
        (
            table(KIND.REDUCING, Types.LONG, TimeWindowSerializer()),
            [("07 036b36" + "00" * 8 + "000000000000000a", "0000000000000030")],
            [("k6", TimeWindow(0, 10), 48)],
        ),
        (
            table(KIND.AGGREGATING, Types.TUPLE(Types.LONG, Types.LONG)),
            [("07 036b36 00", "0000000000000001 0000000000000002")],
            [("k6", None, (1, 2))],
        ),
        (
            table(KIND.VALUE, Types.LONG, Types.STRING),
            [("07 036b36 03 0278 02", "0000000000000030")],
            [("k6", "x", 48)],
        ),
        # A list has no count and one byte between its elements, which may hold that byte too.
        (
            table(KIND.LIST, Types.LIST(Types.STRING)),
            [("07 036b36 00", "04653133 2c 022c 2c 01")],
            [("k6", None, ["e13", ",", ""])],
        ),
        (
            table(KIND.MAP, COUNTS),
            [
                ("07 036b36 00 0261", "00 0000000000000001"),
                ("07 036b36 00 0262", "01"),
            ],
            [("k6", None, [("a", 1), ("b", None)])],
        ),
        (queue(), [("07 80000000000003e8 036b36 00", "")], [("k6", None, Timer(1000, "k6", None))]),
    ],
    ids=["value", "window", "aggregating", "ambiguous", "list", "map", "queue"],
)
def test_canonical_records_both_ways(
    state_table: StateTable[Any], records: list[tuple[str, str]], entries: list[Any]
) -> None:
    raw = [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in records]
    for key, value in raw:
        state_table.load(key, value)
    assert list(state_table.entries(KEY_GROUP)) == entries
    assert list(state_table.records(KEY_GROUP)) == raw
    assert list(state_table.entries(8)) == list(state_table.records(8)) == []


def test_a_null_map_value_may_be_followed_by_the_serializers_null() -> None:
    # As the heap backend writes it.
    state_table = table(KIND.MAP, Types.MAP(Types.STRING, Types.STRING))
    state_table.load(bytes.fromhex("07 036b36 00 0261"), bytes.fromhex("01 00"))
    assert values(state_table) == [[("a", None)]]


# ---------------------------------------------------------------------------------- changes


def test_value_changes() -> None:
    state_table = table(KIND.VALUE, Types.LONG)
    apply(state_table, Operation.SET, "036b36 00 0000000000000001")
    assert values(state_table) == [1]
    apply(state_table, Operation.SET_INTERNAL, "036b36 00 0000000000000002")
    assert values(state_table) == [2]
    apply(state_table, Operation.CLEAR, "036b36 00")
    apply(state_table, Operation.CLEAR, "036b36 00")
    assert values(state_table) == []


def test_list_changes() -> None:
    state_table = table(KIND.LIST, LONGS)
    apply(state_table, Operation.ADD_ELEMENT, "036b36 00 0000000000000001")
    apply(state_table, Operation.ADD_ELEMENT, "036b36 00 0000000000000002")
    apply(state_table, Operation.ADD, "036b36 00 00000002 0000000000000003 0000000000000004")
    assert values(state_table) == [[1, 2, 3, 4]]
    apply(state_table, Operation.ADD, "036b36 00 00000000")
    assert values(state_table) == [[1, 2, 3, 4]]
    apply(state_table, Operation.SET, "036b36 00 00000001 0000000000000009")
    assert values(state_table) == [[9]]
    apply(state_table, Operation.SET_INTERNAL, "036b36 00 00000000")
    assert values(state_table) == []
    apply(state_table, Operation.ADD_ELEMENT, "036b36 00 0000000000000001")
    apply(state_table, Operation.CLEAR, "036b36 00")
    assert values(state_table) == []


def test_map_changes() -> None:
    state_table = table(KIND.MAP, COUNTS)
    apply(state_table, Operation.ADD_OR_UPDATE_ELEMENT, "036b36 00 0261 0000000000000001")
    apply(state_table, Operation.ADD, "036b36 00 00000002 0261 00 0000000000000002 0262 01")
    assert values(state_table) == [[("a", 2), ("b", None)]]
    apply(state_table, Operation.REMOVE_ELEMENT, "036b36 00 0261")
    apply(state_table, Operation.REMOVE_ELEMENT, "036b36 00 0278")
    assert values(state_table) == [[("b", None)]]
    apply(state_table, Operation.REMOVE_ELEMENT, "036b36 00 0262")
    assert values(state_table) == []
    apply(state_table, Operation.ADD_OR_UPDATE_ELEMENT, "036b36 00 0261 0000000000000001")
    apply(state_table, Operation.CLEAR, "036b36 00")
    assert values(state_table) == []


def test_an_empty_map_is_no_entry() -> None:
    state_table = table(KIND.MAP, COUNTS)
    apply(state_table, Operation.ADD, "036b36 00 00000000")
    assert values(state_table) == []
    assert list(state_table.records(KEY_GROUP)) == []


def test_queue_changes() -> None:
    state_table = queue()
    one, two = "8000000000000001 036b36 00", "8000000000000002 036b36 00"
    apply(state_table, Operation.ADD_ELEMENT, "00000002" + one + two)
    apply(state_table, Operation.ADD_ELEMENT, "00000001" + one)
    assert values(state_table) == [Timer(1, "k6", None), Timer(2, "k6", None)]
    apply(state_table, Operation.REMOVE_ELEMENT, one)
    apply(state_table, Operation.REMOVE_ELEMENT, one)
    assert values(state_table) == [Timer(2, "k6", None)]


@pytest.mark.parametrize(
    ("state_table", "operation", "raw", "problem"),
    [
        (table(KIND.VALUE, Types.LONG), Operation.ADD, "036b36 00", "does not have: .*got ADD"),
        (table(KIND.MAP, COUNTS), Operation.MERGE_NS, "036b36 00", "does not have"),
        (table(KIND.LIST, LONGS), Operation.REMOVE_ELEMENT, "036b36 00", "does not have"),
        (table(KIND.MAP, COUNTS), Operation.SET, "036b36 00", "does not have"),
        (queue(), Operation.CLEAR, "", "does not have"),
        (table(KIND.VALUE, Types.LONG), Operation.CLEAR, "036b36 00 00", "left after a change"),
        (table(KIND.LIST, LONGS), Operation.CLEAR, "036b36 00 00", "left after a change"),
        (table(KIND.MAP, COUNTS), Operation.CLEAR, "036b36 00 00", "left after a change"),
        (
            table(KIND.MAP, COUNTS),
            Operation.REMOVE_ELEMENT,
            "036b36 00 0261 00",
            "left after a change",
        ),
        (table(KIND.LIST, LONGS), Operation.SET, "036b36 00 00000000 00", "left after a list"),
        (table(KIND.LIST, LONGS), Operation.ADD, "036b36 00 7fffffff", "list size"),
        (table(KIND.MAP, COUNTS), Operation.ADD, "036b36 00 00000000 00", "left after a map"),
        (table(KIND.MAP, COUNTS), Operation.ADD, "036b36 00 ffffffff", "map size"),
        (queue(), Operation.ADD_ELEMENT, "00000000 00", "left after a queue change"),
        (queue(), Operation.ADD_ELEMENT, "7fffffff", "queue elements"),
        (table(KIND.VALUE, Types.LONG), Operation.SET, "03", "longer than the data"),
    ],
)
def test_damaged_changes(
    state_table: StateTable[Any], operation: Operation, raw: str, problem: str
) -> None:
    with pytest.raises(FormatError, match=problem):
        apply(state_table, operation, raw)


# ----------------------------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("state_table", "key", "value", "problem"),
    [
        (table(KIND.VALUE, Types.LONG), "07 036b36 00 00", "", "has bytes left"),
        (table(KIND.LIST, LONGS), "07 036b36 00 00", "", "has bytes left"),
        (queue(), "07", "", "queue 'q' is damaged"),
        (queue(), "07 8000000000000001 036b36 00", "00", "queue 'q' is damaged"),
    ],
)
def test_damaged_records(state_table: StateTable[Any], key: str, value: str, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        state_table.load(bytes.fromhex(key), bytes.fromhex(value))


@pytest.mark.parametrize(
    ("state_table", "key", "value", "problem"),
    [
        (table(KIND.VALUE, Types.LONG), "07 036b36 00", "00" * 7, "ends too early"),
        (table(KIND.VALUE, Types.LONG), "07 036b36 00", "00" * 9, "Bytes are left after a value"),
        (table(KIND.LIST, LONGS), "07 036b36 00", "", "ends too early"),
        (table(KIND.LIST, LONGS), "07 036b36 00", "00" * 8 + "2d", "expected 44, got 45"),
        (table(KIND.LIST, LONGS), "07 036b36 00", "00" * 8 + "2c", "ends too early"),
        (table(KIND.MAP, COUNTS), "07 036b36 00 0261", "", "ends too early"),
        (
            table(KIND.MAP, COUNTS),
            "07 036b36 00 0261",
            "00" + "00" * 9,
            "left after a value of type Long",
        ),
        (table(KIND.MAP, COUNTS), "07 036b36 00 0261 00", "01", "Bytes are left after a value"),
        (queue(), "07 8000000000000001 036b36 00 00", "", "Bytes are left after a value"),
        (
            queue(Types.LONG),
            "07 8000000000000001",
            "",
            "has another type: expected Timer, got Long",
        ),
        (table(KIND.LIST, Types.LONG), "07 036b36 00", "00" * 8, "expected List, got Long"),
        (table(KIND.MAP, Types.LONG), "07 036b36 00 0261", "00", "expected Map, got Long"),
    ],
)
def test_values_that_do_not_decode(
    state_table: StateTable[Any], key: str, value: str, problem: str
) -> None:
    state_table.load(bytes.fromhex(key), bytes.fromhex(value))
    with pytest.raises(FormatError, match=problem):
        list(state_table.entries(KEY_GROUP))


def test_operator_state_is_not_keyed_state() -> None:
    meta = StateMetaInfoSnapshot("s", BackendStateType.OPERATOR, (), (("VALUE_SERIALIZER", LONGS),))
    with pytest.raises(FormatError, match=r"'s' is not keyed state: .*got OPERATOR"):
        create_table(meta, Types.STRING, 1)


def test_there_is_no_key_group_below_zero() -> None:
    with pytest.raises(ConfigError, match="without a current key"):
        table(KIND.VALUE, Types.LONG).group(-1)
