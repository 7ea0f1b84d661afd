"""Finds the operator of the old job that each operator of a new job continues.

With compiled plans, operators match by what their nodes do, since ids of nodes are only numbers: a
statement before another one moves them. Without plans, operators match by their ids, as in Flink.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from dstl_core.cached_property import cached_property
from dstl_core.savepoint.migrate.proposal.compiled_plan import CompiledPlan, PlanNode
from dstl_core.savepoint.migrate.proposal.plan_columns import AGGREGATES, PlanColumns
from dstl_core.savepoint.migrate.proposal.sql_state import OperatorColumns, operator_columns
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog, StateInfo
from dstl_core.savepoint.read.snapshot import Snapshot

_QUEUES = ("event-timer", "proc-timer", "queue")
_FAMILIES = {
    "global-group-aggregate": "group-aggregate",
    "global-window-aggregate": "window-aggregate",
}


class PlannedOperator:
    """An operator with state, and its node in the plan of its job."""

    def __init__(self, operator: OperatorCatalog, columns: PlanColumns | None) -> None:
        self.operator = operator
        self.label = operator.label
        self._plan = columns
        place = None if columns is None else columns.plan.node_of(operator.uid, operator.name)
        self.node: PlanNode | None = None
        self.part = ""
        # The id of another plan may point to a node of another type.
        if place is not None and (_has_part(place) or not operator.uid):
            self.node, self.part = place

    @cached_property
    def states(self) -> list[StateInfo]:
        """The states with values: keyed ones without timers, then those of the operator."""
        keyed = [each for each in self.operator.states if each.kind not in _QUEUES]
        return [*keyed, *self.operator.operator_states]

    @cached_property
    def columns(self) -> OperatorColumns | None:
        """The names of the columns in state; None without a node."""
        if self.node is None or self._plan is None:
            return None
        return operator_columns(self.operator, self.node, self._plan)

    @property
    def family(self) -> str:
        """What kind of node it is; local and global, or one-phase, aggregates are the same."""
        kind = self.node.type if self.node is not None else ""
        return _FAMILIES.get(kind, kind)

    @property
    def is_source(self) -> bool:
        return self.node is not None and self.node.type == "table-source-scan"

    def place(self) -> Hashable:
        """What the node works on: its source tables, its key, and its part of a source or sink."""
        assert self.node is not None and self._plan is not None
        key = (
            None
            if self.columns is None or self.columns.key is None
            else [each.meaning for each in self.columns.key]
        )
        part = "" if self.node.type in AGGREGATES else self.part
        tables = self._plan.tables(self.node)
        sinks = self.sinks if self.node.type == "sink" else frozenset()
        return (self.family, part, tables, None if key is None else tuple(sorted(key)), sinks)

    @property
    def sinks(self) -> frozenset[str]:
        return (
            frozenset()
            if self.node is None or self._plan is None
            else self._plan.plan.sinks_of(self.node)
        )

    @property
    def tables(self) -> frozenset[str]:
        return (
            frozenset() if self.node is None or self._plan is None else self._plan.tables(self.node)
        )

    @property
    def conditions(self) -> frozenset[str]:
        """The filters on the way, the window, the order and the limit."""
        if self.node is None or self._plan is None:
            return frozenset()
        return self._plan.conditions(self.node) | self._plan.details(self.node)

    @cached_property
    def content(self) -> frozenset[str]:
        """The meanings of all columns in state."""
        columns = self.columns
        if columns is None:
            return frozenset()
        rows = [*columns.rows.values(), *columns.map_keys.values()]
        return frozenset(each.meaning for row in rows for each in row).union(columns.calls)

    @property
    def shape(self) -> frozenset[tuple[str, str, str]]:
        """Names, kinds and types of the states."""
        return frozenset((each.name, each.kind, each.type) for each in self.states)


def _has_part(place: tuple[PlanNode, str]) -> bool:
    """Whether a node makes operators with the name at the end of a uid."""
    node, part = place
    if node.type in ("table-source-scan", "sink", "legacy-table-source-scan", "legacy-sink"):
        return True  # the connector names its operators
    return part == node.type or node.type in _FAMILIES or part not in _NODE_TYPES


_NODE_TYPES = frozenset(
    [
        "calc",
        "changelog-normalize",
        "deduplicate",
        "group-aggregate",
        "interval-join",
        "join",
        "over-aggregate",
        "rank",
        "temporal-join",
        "window-aggregate",
    ]
)


@dataclass(frozen=True)
class Match:
    """An operator of the new job, and the operator whose state it continues.

    Attributes:
        old: None if no operator fits, or if a person has to choose among ``candidates``.
        candidates: Operators that may fit.
        reason: Why they match, or what differs.
        filters_differ: Whether other rows reach the operator than before.
    """

    new: PlannedOperator
    old: PlannedOperator | None
    candidates: Sequence[PlannedOperator] = ()
    reason: str = ""
    filters_differ: bool = False


@dataclass(frozen=True)
class Matches:
    """The matches of all operators with state, and the old operators without a match."""

    matches: Sequence[Match]
    left_over: Sequence[PlannedOperator]
    notes: Sequence[str] = ()
    """Why a plan was not used."""


def match_operators(
    old: Snapshot, new: Snapshot, plans: tuple[CompiledPlan, CompiledPlan] | None = None
) -> Matches:
    """Matches the operators of two jobs that have state.

    Args:
        old: The savepoint to migrate.
        new: A savepoint of the new job.
        plans: The compiled plans of the old and the new job.

    Raises:
        ConfigError: A plan is damaged.
        FormatError: A savepoint is damaged.
    """
    columns, notes = usable_plans(plans, (old, new))
    ours = [PlannedOperator(each, columns[0]) for each in old.operators if has_state(each)]
    theirs = [PlannedOperator(each, columns[1]) for each in new.operators if has_state(each)]
    matching = _Matching(ours, theirs).run()
    return replace(matching, notes=notes)


def usable_plans(
    plans: tuple[CompiledPlan, CompiledPlan] | None, snapshots: tuple[Snapshot, Snapshot]
) -> tuple[list[PlanColumns | None], list[str]]:
    """The columns of the plans that belong to their savepoints, and why others do not.

    Raises:
        ConfigError: A plan is damaged.
    """
    columns: list[PlanColumns | None] = [None, None]
    notes = []
    for at, (plan, snapshot) in enumerate(zip(plans or (), snapshots, strict=False)):
        wrong = plan.misfit(each.name for each in snapshot.operators)
        if wrong is None:
            columns[at] = PlanColumns(plan)
        else:
            notes.append(
                f"plans.{('old', 'new')[at]} is not the plan of this savepoint: operator {wrong!r} "
                f"is not in it; compile the statement in a fresh session"
            )
    return columns, notes


def has_state(operator: OperatorCatalog) -> bool:
    """Whether an operator has a state, even an empty one, or an enumerator of splits."""
    return bool(
        operator.states or operator.operator_states or operator.state.coordinator_state is not None
    )


class _Matching:
    def __init__(self, old: Sequence[PlannedOperator], new: Sequence[PlannedOperator]) -> None:
        self._old, self._new = list(old), list(new)
        self._found: dict[str, Match] = {}
        self._order = [each.label for each in new]

    def run(self) -> Matches:
        self._by_meaning()
        self._by_id()
        for operator in list(self._new):
            candidates = [one for one in self._old if _may_continue(operator, one)]
            candidates = candidates or self._crossed(operator)
            self._found[operator.label] = Match(operator, None, candidates)
        return Matches([self._found[each] for each in self._order], self._old)

    def _by_meaning(self) -> None:
        """Matches operators whose nodes work on the same tables by the same key."""
        exact: list[Callable[[PlannedOperator], Hashable]] = [
            lambda operator: (
                operator.place(),
                operator.conditions,
                operator.sinks,
                operator.content,
            ),
            lambda operator: (operator.place(), operator.conditions, operator.content),
            lambda operator: (operator.place(), operator.conditions, operator.sinks),
            lambda operator: (operator.place(), operator.conditions),
            lambda operator: (operator.place(), operator.sinks),
        ]
        for feature in exact:
            for old, new in list(self._pairs(feature)):
                shared = old.content & new.content or not (old.content and new.content)
                if not shared and old.sinks != new.sinks:
                    continue  # perhaps another query
                differ = old.conditions != new.conditions
                self._take(Match(new, old, reason=_reason(old, new), filters_differ=differ))

    def _pairs(
        self, feature: Callable[[PlannedOperator], Hashable]
    ) -> Iterator[tuple[PlannedOperator, PlannedOperator]]:
        """Operators that alone have a feature, in the old and in the new job."""
        ours, theirs = _by_feature(self._old, feature), _by_feature(self._new, feature)
        for key, new in theirs.items():
            old = ours.get(key, [])
            if len(old) == len(new) == 1:
                yield old[0], new[0]
            elif (
                old
                and len(new) > 1
                and {each.label for each in old} == {each.label for each in new}
            ):
                # Equal in all that is known, so their ids may tell them apart.
                same = {each.label: each for each in old}
                if all(each.content == new[0].content for each in (*old, *new)):
                    yield from ((same[each.label], each) for each in new)

    def _by_id(self) -> None:
        """Matches what no plan explains."""
        ours = {each.operator.operator_id: each for each in self._old}
        for new in list(self._new):
            old = ours.get(new.operator.operator_id)
            if old is not None and (old.node is None or new.node is None):
                self._take(Match(new, old))

    def _crossed(self, new: PlannedOperator) -> list[PlannedOperator]:
        """Old operators with the states of a new one, while their own successors have others."""
        return [
            match.old
            for match in self._found.values()
            if match.old is not None
            and new.node is None
            and match.old.shape == new.shape != match.new.shape
        ]

    def _take(self, match: Match) -> None:
        assert match.old is not None
        self._old.remove(match.old)
        self._new.remove(match.new)
        self._found[match.new.label] = match


def _by_feature(
    operators: Sequence[PlannedOperator], feature: Callable[[PlannedOperator], Hashable]
) -> dict[Hashable, list[PlannedOperator]]:
    by_value: dict[Hashable, list[PlannedOperator]] = {}
    for operator in operators:
        if operator.node is not None:
            by_value.setdefault(feature(operator), []).append(operator)
    return by_value


def _reason(old: PlannedOperator, new: PlannedOperator) -> str:
    if old.label == new.label:
        return ""
    return f"{old.label} of the old job does the same"


def _may_continue(new: PlannedOperator, old: PlannedOperator) -> bool:
    """Whether a person may want that an operator continues another one."""
    if new.node is not None and old.node is not None:
        return new.family == old.family and new.is_source == old.is_source
    names = {each.name for each in new.states} & {each.name for each in old.states}
    kinds = {(each.kind, each.type) for each in new.states} & {
        (state.kind, state.type) for state in old.states
    }
    return bool(names or kinds)
