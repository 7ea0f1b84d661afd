"""What the columns of a SQL operator's state mean, found from its node in a compiled plan.

A serializer snapshot has the types of a row's columns and no names. The plan has the names, and the
calls of an aggregate. A row gets names only if the plan explains each of its columns.

Source: ``AggregateUtil``, ``GroupAggFunction``, ``AbstractStreamingJoinOperator`` and the other
operators of the SQL runtime of Flink 2.2.1; savepoints of their jobs beside their plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dstl_core.codec.serializers import AnySerializer, MapSerializer
from dstl_core.codec.serializers.table_types import RowDataSerializer
from dstl_core.savepoint.migrate.proposal.compiled_plan import PlanNode
from dstl_core.savepoint.migrate.proposal.plan_columns import (
    AGGREGATES,
    PlanColumns,
    SqlAggregate,
    SqlColumn,
)
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog, StateInfo

Start = Literal["0", "null", "empty()"]
Merge = Literal["sum", "min", "max"]

COUNT_OF_ROWS = SqlColumn("COUNT(*)", "$COUNT$1(*)")
_SLOTS_WITH_EMPTY_WINDOWS = "HoppingWindow"


@dataclass(frozen=True, slots=True)
class StateColumn:
    """A column of a row in state.

    Attributes:
        name: Its name for people: a column, or a call such as ``COUNT(tag)``.
        meaning: Columns of two jobs with this same text hold the same values.
        is_buffer: Whether it belongs to an aggregate.
        start: The value of a buffer before the first row; None if it is no simple value.
        merge: How the buffers of two keys become one; None if there is no such rule.
    """

    name: str
    meaning: str
    is_buffer: bool = False
    start: Start | None = None
    merge: Merge | None = None


@dataclass(frozen=True)
class OperatorColumns:
    """The columns of an operator's key, and of the rows in its states.

    Attributes:
        key: None if the plan does not explain the key.
        rows: State name to the columns of the row in its value.
        map_keys: State name to the columns of the row that is the user key of a map.
        views: State name to the meaning of a state that belongs to one aggregate.
        calls: The meanings of the node's aggregate calls, in order.
    """

    key: Sequence[StateColumn] | None
    rows: Mapping[str, Sequence[StateColumn]]
    map_keys: Mapping[str, Sequence[StateColumn]]
    views: Mapping[str, str]
    calls: Sequence[str] = ()


def operator_columns(
    operator: OperatorCatalog, node: PlanNode, columns: PlanColumns
) -> OperatorColumns:
    """Names the columns of an operator's state.

    Args:
        operator: The operator, of a savepoint of the job that the plan describes.
        node: Its node in the plan.
        columns: The columns of the plan.

    Raises:
        ConfigError: The plan is damaged.
        FormatError: The savepoint is damaged.
    """
    known = _known_rows(node, columns)
    rows, map_keys = {}, {}
    for info in operator.states:
        value = info.meta.as_key_value().value_serializer
        if info.kind == "map" and isinstance(value, MapSerializer):
            row = _fitting(known.map_keys.get(info.name, ()), row_in(value.key))
            if row is not None:
                map_keys[info.name] = row
            value = value.value
        if info.kind in ("event-timer", "proc-timer", "queue"):
            continue
        row = _fitting(known.rows.get(info.name, ()), row_in(value))
        if row is not None:
            rows[info.name] = row
    key_type = operator.key_type
    key = None
    if key_type is not None:
        key = _fitting([known.key], row_in(key_type.serializer))
    names = {info.name for info in operator.states}
    views = {name: text for name, text in known.views.items() if name in names}
    calls = [each.column.meaning for each in columns.aggregates(node)]
    return OperatorColumns(key, rows, map_keys, views, calls)


def row_in(serializer: AnySerializer) -> RowDataSerializer | None:
    """The one SQL row inside a type, e.g. inside a list or a value with time to live."""
    if isinstance(serializer, RowDataSerializer):
        return serializer
    rows = [row for each in serializer.nested if (row := row_in(each)) is not None]
    return rows[0] if len(rows) == 1 else None


def row_of_value(info: StateInfo) -> RowDataSerializer | None:
    """The SQL row in the value of a state; for a map, in the values of its entries."""
    value = info.meta.as_key_value().value_serializer
    if info.kind == "map" and isinstance(value, MapSerializer):
        value = value.value
    return row_in(value)


def row_of_map_key(info: StateInfo) -> RowDataSerializer | None:
    """The SQL row that is the user key of a map state."""
    value = info.meta.as_key_value().value_serializer
    if info.kind == "map" and isinstance(value, MapSerializer):
        return row_in(value.key)
    return None


def _fitting(
    candidates: Sequence[Sequence[StateColumn] | None], row: RowDataSerializer | None
) -> Sequence[StateColumn] | None:
    """The only candidate with as many columns as a row."""
    if row is None:
        return None
    fitting = [each for each in candidates if each is not None and len(each) == len(row.types)]
    return fitting[0] if len(fitting) == 1 else None


# --------------------------------------------------------------------------- states of operators


@dataclass(frozen=True)
class _Known:
    """The rows that a node's states may hold; a state has several candidates of other lengths."""

    key: Sequence[StateColumn] | None
    rows: Mapping[str, Sequence[Sequence[StateColumn]]]
    map_keys: Mapping[str, Sequence[Sequence[StateColumn]]]
    views: Mapping[str, str]


def _known_rows(node: PlanNode, columns: PlanColumns) -> _Known:
    rows: dict[str, Sequence[Sequence[StateColumn]]] = {}
    map_keys: dict[str, Sequence[Sequence[StateColumn]]] = {}
    views: dict[str, str] = {}
    inputs = [_stored(columns.of_input(node, at)) for at in range(len(node.inputs))]
    left, right = [*inputs, [], []][:2]
    match node.type:
        case kind if kind in AGGREGATES or kind == "over-aggregate":
            calls = columns.aggregates(node)
            buffers = _accumulators(node, calls)
            rows |= {"accState": buffers, "window-aggs": buffers, "inputState": [left]}
            views |= _views(calls)
        case "deduplicate" | "changelog-normalize":
            rows["deduplicate-state"] = [left]
        case "rank" | "sort-limit":
            sorted_by = _sort_key(node, columns)
            rows |= {each: [left] for each in _RANKED}
            map_keys |= {each: [sorted_by] for each in _RANKED} if sorted_by else {}
            rows["sorted-map"] = [sorted_by] if sorted_by else []
        case "join":
            for name, row, side in (("left", left, "left"), ("right", right, "right")):
                rows[f"{name}-records"] = [row]
                unique = _unique_keys(node, columns, side)
                map_keys[f"{name}-records"] = [
                    row,
                    *(each for each in unique if len(each) != len(row)),
                ]
            views |= _sides(node, columns, ("left-records", "right-records"))
        case "interval-join":
            for part in ("Cache", "TimerState"):
                names = (f"IntervalJoinLeft{part}", f"IntervalJoinRight{part}")
                views |= _sides(node, columns, names)
            rows |= {"IntervalJoinLeftCache": [left], "IntervalJoinRightCache": [right]}
        case "temporal-join":
            rows |= {"left": [left], "right": [right]}
        case "window-join":
            rows |= {"left-records": [left], "right-records": [right]}
        case "sink":
            rows["values"] = [left]
    return _Known(_key(node, columns), rows, map_keys, views)


def _sides(node: PlanNode, columns: PlanColumns, names: tuple[str, str]) -> dict[str, str]:
    """The states of the sides of a join, by the tables of their rows: the sides may swap."""
    tables = [columns.tables(each) for each in columns.plan.inputs_of(node)]
    if len({*tables}) != len(names):
        return {}  # only the side tells such rows apart
    kind = names[0].replace("Left", "").replace("left", "")
    return {name: f"{kind} of {sorted(each)}" for name, each in zip(names, tables, strict=True)}


_RANKED = (
    "data-state",
    "data-state-with-append",
    "data-state-with-update",
    "data-state-with-retract",
)


def _stored(row: Sequence[SqlColumn]) -> list[StateColumn]:
    return [StateColumn(each.name, each.meaning) for each in row]


def _key(node: PlanNode, columns: PlanColumns) -> Sequence[StateColumn] | None:
    """The columns by which the rows are distributed, which are the key of the operator."""
    if node.type in AGGREGATES:
        picked = columns.grouping(node)
        return None if picked is None else _stored(picked)
    sides = [_distribution(each, columns) for each in columns.plan.inputs_of(node)]
    if node.type in ("join", "interval-join") and len(sides) == 2 and None not in sides:
        left, right = [each or [] for each in sides]
        if len(left) == len(right):
            # Both sides have the same key, so its meaning does not depend on which is the left one.
            return [
                replace(one, meaning=" = ".join(sorted((one.meaning, other.meaning))))
                for one, other in zip(left, right, strict=True)
            ]
    return sides[0] if sides else None


def _distribution(source: PlanNode, columns: PlanColumns) -> list[StateColumn] | None:
    """The columns by which an input of a node distributes its rows."""
    properties = source.fields.get("inputProperties")
    if source.type != "exchange" or not isinstance(properties, list) or not properties:
        return None
    first = properties[0] if isinstance(properties[0], dict) else {}
    distribution = first.get("requiredDistribution")
    places = distribution.get("keys") if isinstance(distribution, dict) else None
    row = columns.of(source)
    if not isinstance(places, list) or any(
        type(place) is not int or not 0 <= place < len(row) for place in places
    ):
        return None
    return _stored([row[each] for each in places])


def _sort_key(node: PlanNode, columns: PlanColumns) -> Sequence[StateColumn] | None:
    """The columns by which a Top-N sorts, in that order."""
    by = node.fields.get("orderBy")
    fields = by.get("fields") if isinstance(by, dict) else None
    row = columns.of_input(node)
    if not isinstance(fields, list):
        return None
    places_or_none = [each.get("index") if isinstance(each, dict) else None for each in fields]
    places = [each for each in places_or_none if isinstance(each, int) and 0 <= each < len(row)]
    return _stored([row[each] for each in places]) if len(places) == len(places_or_none) else None


def _unique_keys(
    node: PlanNode, columns: PlanColumns, side: str
) -> Iterator[Sequence[StateColumn]]:
    """The unique keys of an input of a join. The first of the shortest keys is the one in state."""
    keys = node.fields.get(f"{side}UpsertKeys", node.fields.get(f"{side}UniqueKeys"))
    row = columns.of_input(node, 0 if side == "left" else 1)
    places = keys[0] if isinstance(keys, list) and len(keys) == 1 else None
    if isinstance(places, list) and all(
        type(place) is int and 0 <= place < len(row) for place in places
    ):
        yield _stored([row[each] for each in places])


# ------------------------------------------------------------------------------------ aggregates


def _accumulators(node: PlanNode, calls: Sequence[SqlAggregate]) -> list[list[StateColumn]]:
    """The accumulator row of an aggregate: with and without a counter of rows of its own.

    The row has the buffers of each call, then the counter, then a column for each set of distinct
    values.
    """
    columns: list[StateColumn] = []
    for call in calls:
        buffers = _buffers(call)
        if buffers is None:
            return []
        columns += buffers
    # Rows that came before a set was added would be taken back from a set without them.
    empty: Start | None = None if any(each.retracts for each in calls) else "empty()"
    distinct = [
        StateColumn(f"values of {name}", meaning, is_buffer=True, start=empty)
        for name, meaning in _distinct_sets(calls).items()
    ]
    counted = any(each.column.meaning == COUNT_OF_ROWS.meaning for each in calls)
    if counted or not _may_count_rows(node):
        return [columns + distinct]
    counter = StateColumn(COUNT_OF_ROWS.name, COUNT_OF_ROWS.meaning, True, None, "sum")
    return [[*columns, counter, *distinct]]


def _may_count_rows(node: PlanNode) -> bool:
    """Whether Flink adds a counter of rows, to notice that a key or a window has none left."""
    if node.fields.get("needRetraction"):
        return True
    windowing = node.fields.get("windowing")
    window = windowing.get("window") if isinstance(windowing, dict) else None
    return isinstance(window, dict) and window.get("type") == _SLOTS_WITH_EMPTY_WINDOWS


def _buffers(call: SqlAggregate) -> list[StateColumn] | None:
    """The columns of one call; None if its function is not known."""
    name, meaning = call.column.name, call.column.meaning
    retracted = f"{meaning} with retraction" if call.retracts else meaning
    first = StateColumn(name, meaning, is_buffer=True)
    # Rows that came before a call was added would be taken back from a buffer without them.
    zero: Start | None = None if call.retracts else "0"
    merge: Merge | None = None if call.is_distinct else "sum"
    match call.function:
        case "COUNT" | "SUM0":
            return [replace(first, start=zero, merge=merge)]
        case "SUM" if call.retracts:
            count = StateColumn(f"count of {name}", f"{meaning} count", True, None, merge)
            return [replace(first, meaning=retracted, merge=merge), count]
        case "SUM":
            return [replace(first, start="null", merge=merge)]
        case "AVG":
            total = StateColumn(f"sum of {name}", f"{meaning} sum", True, zero, merge)
            return [total, StateColumn(f"count of {name}", f"{meaning} count", True, zero, merge)]
        case "MIN" | "MAX" if not call.retracts:
            return [replace(first, start="null", merge="min" if call.function == "MIN" else "max")]
        case "MIN" | "MAX" | "FIRST_VALUE" | "LAST_VALUE":
            return [replace(first, meaning=retracted)]
        case "LISTAGG" if call.retracts:
            return [replace(first, meaning=retracted)]
        case "LISTAGG":
            text = replace(first, start="null")
            return [StateColumn(f"delimiter of {name}", f"{meaning} delimiter", True), text]
    return None


def _distinct_sets(calls: Sequence[SqlAggregate]) -> dict[str, str]:
    """The sets of distinct values, in order. Calls with equal arguments share a set."""
    by_call: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for call in calls:
        if call.is_distinct:
            arguments = ", ".join(each.meaning for each in call.arguments)
            names.setdefault(arguments, ", ".join(each.name for each in call.arguments))
            by_call.setdefault(arguments, []).append(call.column.meaning.partition(" FILTER ")[2])
    return {
        names[argument]: f"DISTINCT {argument} {' / '.join(filters)}"
        for argument, filters in by_call.items()
    }


def _views(calls: Sequence[SqlAggregate]) -> dict[str, str]:
    """The states that hold a part of an accumulator, and what they mean without their number."""
    views = {}
    for at, meaning in enumerate(_distinct_sets(calls).values()):
        for suffix in ("", "_null_state"):
            views[f"distinctAcc_{at}{suffix}"] = meaning + suffix
    for at, call in enumerate(calls):
        for field in _VIEW_FIELDS:
            views[f"agg{at}${field}"] = f"{call.column.meaning} {field}"
    return views


_VIEW_FIELDS = ("list", "map", "orderToValueMap", "retractList", "valueToOrderMap")
