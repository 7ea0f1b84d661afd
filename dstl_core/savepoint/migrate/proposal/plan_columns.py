"""What the columns of a compiled plan mean: from which source columns they are computed, and how.

Two columns have the same meaning if they have the same text ``meaning``. It has no positions, so it
stays the same when other columns come, go or move.

Source: ``RexNodeJsonSerializer``, ``AggregateCallJsonSerializer`` of Flink 2.2.1.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dstl_core.savepoint.migrate.proposal.compiled_plan import (
    CompiledPlan,
    PlanNode,
    source_table,
    wrong_plan,
)

_LONGEST = 400
"""Characters of a meaning; longer ones become a hash, so that shared inputs cannot multiply."""
_PASSING = frozenset(
    [
        "changelog-normalize",
        "deduplicate",
        "drop-update-before",
        "exchange",
        "limit",
        "mini-batch-assigner",
        "sort",
        "sort-limit",
        "temporal-sort",
        "watermark-assigner",
    ]
)
"""Types of nodes whose output columns are those of their input."""
_JOINS = frozenset(
    ["delta-join", "interval-join", "join", "lookup-join", "temporal-join", "window-join"]
)
AGGREGATES = frozenset(
    [
        "global-group-aggregate",
        "global-window-aggregate",
        "group-aggregate",
        "group-window-aggregate",
        "window-aggregate",
    ]
)
_DETAILS = ("isRowtime", "keepLastRow", "rankRange", "rankType")
_LOCAL = frozenset(["local-group-aggregate", "local-window-aggregate"])


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """A column: its name for people, and what it means."""

    name: str
    meaning: str


@dataclass(frozen=True, slots=True)
class SqlAggregate:
    """A call of an aggregate function.

    Attributes:
        function: Its name, e.g. ``COUNT``, ``SUM0``.
        column: The call as text, e.g. ``COUNT(DISTINCT item)``, and what it means.
        is_distinct: Whether equal arguments count once.
        retracts: Whether the input may take rows back.
    """

    function: str
    column: SqlColumn
    arguments: tuple[SqlColumn, ...]
    is_distinct: bool
    retracts: bool


class PlanColumns:
    """The columns and calls of the nodes of a plan.

    Raises:
        ConfigError: A node refers to a column that its input does not have.
    """

    def __init__(self, plan: CompiledPlan) -> None:
        self.plan = plan
        self._columns: dict[int, Sequence[SqlColumn]] = {}
        self._conditions: dict[int, frozenset[str]] = {}
        self._tables: dict[int, frozenset[str]] = {}
        for node in plan.ordered:
            table = source_table(node)
            read = frozenset(each for number in node.inputs for each in self._tables[number])
            self._tables[node.id] = read if table is None else frozenset([table])
            inputs = [self._columns[each] for each in node.inputs]
            self._columns[node.id] = [_short(each) for each in self._of(node, inputs)]
            self._conditions[node.id] = frozenset(self._filters(node))

    def _filters(self, node: PlanNode) -> Iterator[str]:
        for number in node.inputs:
            yield from self._conditions[number]
        condition = node.fields.get("condition")
        if condition is not None and node.inputs:
            row = self._columns[node.inputs[0]]
            yield _short(_expression(condition, row, self.plan.where)).meaning

    def of(self, node: PlanNode) -> Sequence[SqlColumn]:
        return self._columns[node.id]

    def of_input(self, node: PlanNode, at: int = 0) -> Sequence[SqlColumn]:
        """The columns that a node reads. Those of a local aggregate are those that it reads."""
        if at >= len(node.inputs):
            raise wrong_plan(
                self.plan.where, f"{at + 1} inputs of node {node.id}", len(node.inputs)
            )
        source = self.plan.inputs_of(node)[at]
        while source.type in _PASSING or source.type in _LOCAL:
            if source.type in _LOCAL:
                return self.of_input(source)
            if not source.inputs:
                break
            source = self.plan.inputs_of(source)[0]
        return self._columns[node.inputs[at]]

    def conditions(self, node: PlanNode) -> frozenset[str]:
        """The filters on the way to a node."""
        return self._conditions[node.id]

    def details(self, node: PlanNode) -> frozenset[str]:
        """What else a node says about the rows that it keeps: its window, its order, its limit."""
        details = set()
        for name in _DETAILS:
            if name in node.fields:
                details.add(f"{name} {json.dumps(node.fields[name], sort_keys=True)[:_LONGEST]}")
        windowing, by = node.fields.get("windowing"), node.fields.get("orderBy")
        if isinstance(windowing, dict):
            details.add(f"window {json.dumps(windowing.get('window'), sort_keys=True)[:_LONGEST]}")
        sorts = by.get("fields") if isinstance(by, dict) else None
        for at, sort in enumerate(sorts if isinstance(sorts, list) else ()):
            if isinstance(sort, dict):
                column = _at(sort.get("index"), self.of_input(node), self.plan.where)
                details.add(f"sorts {at} {column.meaning} {sort.get('isAscending')}")
        return frozenset(details)

    def tables(self, node: PlanNode) -> frozenset[str]:
        return self._tables[node.id]

    def grouping(self, node: PlanNode) -> Sequence[SqlColumn] | None:
        """The input columns that a node groups by; None if it lists none."""
        places = node.fields.get("grouping")
        if not isinstance(places, list):
            return None
        row = self.of_input(node)
        return [_at(each, row, self.plan.where) for each in places]

    def aggregates(self, node: PlanNode) -> Sequence[SqlAggregate]:
        """The calls of an aggregate, in the order of their buffers."""
        calls, retractions = _calls(node), node.fields.get("aggCallNeedRetractions")
        if not calls:
            return ()
        # A row that leaves the window of OVER is taken back.
        every = bool(node.fields.get("needRetraction")) or node.type == "over-aggregate"
        flags = retractions if isinstance(retractions, list) else [every] * len(calls)
        if len(flags) != len(calls):
            raise wrong_plan(self.plan.where, f"{len(calls)} flags of retraction", len(flags))
        row = self.of_input(node)
        return [
            _aggregate(call, bool(flag), row, self.plan.where)
            for call, flag in zip(calls, flags, strict=True)
        ]

    def _of(self, node: PlanNode, inputs: Sequence[Sequence[SqlColumn]]) -> Sequence[SqlColumn]:
        """The columns of a node, from those of its inputs."""
        names = node.columns
        if (table := source_table(node)) is not None:
            return [SqlColumn(name, f"{table}.{name}") for name in names]
        before = [column for each in inputs for column in each]
        if node.type == "calc":
            return self._projected(node, inputs[0] if inputs else ())
        if node.type in AGGREGATES:
            return self._aggregated(node, names)
        if node.type in _JOINS and len(names) <= len(before):
            before = before[: len(names)]  # a semi-join gives the left row only
        elif node.type == "union" and all(len(each) == len(names) for each in inputs):
            rows = zip(*inputs, strict=True)
            before = [
                SqlColumn(name, f"UNION({', '.join(each.meaning for each in row)})")
                for name, row in zip(names, rows, strict=True)
            ]
        elif node.type not in _PASSING and node.type != "rank" and node.type not in _JOINS:
            before = []
        columns = list(before[: len(names)])
        place = f"{node.type}({' '.join(sorted(self.tables(node)))})"
        columns += [SqlColumn(name, f"{place}.{name}") for name in names[len(columns) :]]
        return [
            column if _is_made_up(name) else replace(column, name=name)
            for column, name in zip(columns, names, strict=True)
        ]

    def _projected(self, node: PlanNode, row: Sequence[SqlColumn]) -> Sequence[SqlColumn]:
        projection = node.fields.get("projection")
        if not isinstance(projection, list) or len(projection) != len(node.columns):
            raise wrong_plan(self.plan.where, "a projection of each column", node.id)
        columns = []
        for name, entry in zip(node.columns, projection, strict=True):
            column = _expression(entry, row, self.plan.where)
            columns.append(column if _is_made_up(name) else replace(column, name=name))
        return columns

    def _aggregated(self, node: PlanNode, names: Sequence[str]) -> Sequence[SqlColumn]:
        grouping = self.grouping(node) or ()
        calls = [each.column for each in self.aggregates(node)]
        columns = [*grouping, *calls][: len(names)]
        by = ", ".join(each.meaning for each in grouping)
        # A sum by customer is not a sum by customer and day.
        columns = [
            *columns[: len(grouping)],
            *(_grouped(each, by) for each in columns[len(grouping) :]),
        ]
        rest = names[len(columns) :]
        return [*columns, *(SqlColumn(name, f"{node.type}.{name} BY {by}") for name in rest)]


def _calls(node: PlanNode) -> Sequence[Any]:
    """The calls of an aggregate as JSON; those of OVER are in groups, of which Flink runs one."""
    over = node.fields.get("overSpec")
    groups = over.get("groups") if isinstance(over, dict) else None
    if isinstance(groups, list) and len(groups) == 1 and isinstance(groups[0], dict):
        calls = groups[0].get("aggCalls")
    else:
        calls = node.fields.get("aggCalls")
    return calls if isinstance(calls, list) else ()


def _grouped(column: SqlColumn, by: str) -> SqlColumn:
    return replace(column, meaning=f"{column.meaning} BY {by}")


def _aggregate(call: Any, retracts: bool, row: Sequence[SqlColumn], where: str) -> SqlAggregate:
    entry = call if isinstance(call, dict) else {}
    name = entry.get("internalName") or entry.get("systemName") or entry.get("catalogName")
    name = name or entry.get("name")
    places = entry.get("argList")
    if not isinstance(name, str) or not isinstance(places, list):
        raise wrong_plan(where, "aggregate calls with a name and arguments", repr(call)[:80])
    arguments = tuple(_at(each, row, where) for each in places)
    is_distinct = bool(entry.get("distinct"))
    filtered = entry.get("filterArg", -1)
    by = None if filtered in (-1, None) else _at(filtered, row, where)
    function = _function(name)
    return SqlAggregate(
        function,
        SqlColumn(
            _call_text(
                function,
                [each.name for each in arguments],
                is_distinct,
                None if by is None else by.name,
            ),
            _call_text(
                name,
                [each.meaning for each in arguments],
                is_distinct,
                None if by is None else by.meaning,
            ),
        ),
        arguments,
        is_distinct,
        retracts,
    )


def _call_text(
    function: str, arguments: Sequence[str], is_distinct: bool, condition: str | None
) -> str:
    if not arguments and _function(function) == "COUNT":
        arguments = ["*"]
    text = f"{function}({'DISTINCT ' * is_distinct}{', '.join(arguments)})"
    return text if condition is None else f"{text} FILTER ({condition})"


def _function(name: str) -> str:
    """``COUNT`` of ``$COUNT$1``."""
    parts = name.strip("$").split("$")
    return parts[0] if name.startswith("$") else name


def _is_made_up(name: str) -> bool:
    """Whether the planner made a name, e.g. ``$f2``, ``EXPR$1``."""
    return "$" in name


# ------------------------------------------------------------------------------- expressions

_SIGNS = frozenset(["+", "-", "*", "/", "%", "=", "<>", "<", ">", "<=", ">=", "AND", "OR"])
_DEEPEST = 200


def _expression(expression: Any, row: Sequence[SqlColumn], where: str, depth: int = 0) -> SqlColumn:
    """An expression of the plan over the columns of a row."""
    if depth > _DEEPEST:
        raise wrong_plan(where, f"expressions of at most {_DEEPEST} levels", "more")
    fields = expression if isinstance(expression, dict) else {}
    kind = fields.get("kind")
    if kind == "INPUT_REF":
        return _at(fields.get("inputIndex"), row, where)
    if kind == "LITERAL":
        value = fields.get("value")
        text = f"'{value}'" if isinstance(value, str) else str(value)
        return SqlColumn(text, f"{text}:{fields.get('type')}")
    if kind == "CALL" and isinstance(fields.get("operands"), list):
        parts = [_expression(each, row, where, depth + 1) for each in fields["operands"]]
        name = next(
            (
                fields[key]
                for key in ("internalName", "systemName", "catalogName")
                if fields.get(key)
            ),
            str(fields.get("class", "?")),
        )
        meaning = f"{name}({', '.join(each.meaning for each in parts)})"
        if _function(name).endswith("CAST"):
            meaning += f":{fields.get('type')}"
        return _short(SqlColumn(_text_of_call(_function(name), parts), meaning))
    parts = list(_operands(fields, row, where, depth))
    rest = {name: each for name, each in fields.items() if name not in ("operands", "expr")}
    meaning = f"{rest}({', '.join(each.meaning for each in parts)})"
    name = fields.get("name") if kind == "FIELD_ACCESS" else None
    return _short(SqlColumn(str(name or kind), meaning))


def _operands(
    fields: Mapping[str, Any], row: Sequence[SqlColumn], where: str, depth: int
) -> Iterator[SqlColumn]:
    operands = fields.get("operands")
    for operand in operands if isinstance(operands, list) else ():
        yield _expression(operand, row, where, depth + 1)
    if isinstance(fields.get("expr"), dict):
        yield _expression(fields["expr"], row, where, depth + 1)


def _text_of_call(function: str, parts: Sequence[SqlColumn]) -> str:
    names = [each.name for each in parts]
    if function in _SIGNS and len(names) > 1:
        return f" {function} ".join(names)
    if function.startswith("IS ") and len(names) == 1:
        return f"{names[0]} {function}"
    return f"{function}({', '.join(names)})"


def _at(place: Any, row: Sequence[SqlColumn], where: str) -> SqlColumn:
    if type(place) is not int or not 0 <= place < len(row):
        raise wrong_plan(where, f"a column of the input, 0..{len(row) - 1}", repr(place)[:80])
    return row[place]


def _short(column: SqlColumn) -> SqlColumn:
    name, meaning = column.name, column.meaning
    if len(meaning) > _LONGEST:
        meaning = f"sha256:{hashlib.sha256(meaning.encode()).hexdigest()}"
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}.."
    return SqlColumn(name, meaning)
