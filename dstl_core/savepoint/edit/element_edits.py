"""Edits of the elements of list and union states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dstl_core.errors import NoSuchStateError
from dstl_core.model.checkpoint import OperatorState
from dstl_core.savepoint.edit.changed_elements import (
    PlanLine,
    plan_line,
    with_elements,
    with_operators,
)
from dstl_core.savepoint.read.entries import OP_LIST, OP_UNION
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot


@dataclass(frozen=True)
class DistinctElements:
    """Keeps the first of equal elements of union states.

    Each restore gives every subtask all elements of a union state. A function that keeps them and
    stores them again multiplies the state by its parallelism with each restore.

    Elements are equal if their bytes are. Each one that is left stays in its subtask.

    Args:
        states: Operator (uid, hash or name) and name of the state.
    """

    states: Sequence[tuple[str, str]]

    def applied_to(self, snapshot: Snapshot) -> tuple[Snapshot, list[PlanLine]]:
        """As ``SourceEdit`` says.

        Raises:
            NoSuchOperatorError: There is no such operator.
            NoSuchStateError: The operator has no such union state; the message lists those that it
                has.
            FormatError: The operator state is damaged.
        """
        lines: list[PlanLine] = []
        for name, state in self.states:
            operator = snapshot[name]
            _check_kind(operator, state, [OP_UNION], "a union state")
            changed, counts = _with_distinct(operator, state)
            snapshot = with_operators(snapshot, {operator.operator_id: changed})
            lines.append(plan_line(operator, "distinct", state, elements=counts))
        return snapshot, lines


def _with_distinct(operator: OperatorSnapshot, state: str) -> tuple[OperatorState, list[int]]:
    """The operator, and how many elements the state has before and after."""
    known: set[bytes] = set()
    counts = [0, 0]

    def change(_: int, elements: list[bytes]) -> list[bytes]:
        left = [raw for raw in dict.fromkeys(elements) if raw not in known]
        known.update(left)
        counts[0] += len(elements)
        counts[1] += len(left)
        return left

    return with_elements(operator, state, change), counts


@dataclass(frozen=True)
class EmptiedStates:
    """Leaves out all elements of list and union states, as in a job that starts anew.

    Args:
        states: Operator (uid, hash or name) and name of the state.
    """

    states: Sequence[tuple[str, str]]

    def applied_to(self, snapshot: Snapshot) -> tuple[Snapshot, list[PlanLine]]:
        """As ``SourceEdit`` says.

        Raises:
            NoSuchOperatorError: There is no such operator.
            NoSuchStateError: The operator has no such list or union state; the message lists those
                that it has.
            FormatError: The operator state is damaged.
        """
        lines: list[PlanLine] = []
        for name, state in self.states:
            operator = snapshot[name]
            _check_kind(operator, state, [OP_LIST, OP_UNION], "a list or union state")
            counts = [0, 0]

            def emptied(_: int, elements: list[bytes], counts: list[int] = counts) -> list[bytes]:
                counts[0] += len(elements)
                return []

            changed = with_elements(operator, state, emptied)
            snapshot = with_operators(snapshot, {operator.operator_id: changed})
            lines.append(plan_line(operator, "empty", state, elements=counts))
        return snapshot, lines


def _check_kind(
    operator: OperatorSnapshot, state: str, kinds: Sequence[str], expected: str
) -> None:
    """Raises NoSuchStateError if a state is not of these kinds. It says what the state is."""
    fitting = [info.name for info in operator.operator_states if info.kind in kinds]
    if state in fitting:
        return
    kind = next((info.kind for info in operator.states_or_none() if info.name == state), None)
    article = "an" if kind is not None and kind[0] in "aeo" else "a"
    got = f"no state {state!r}" if kind is None else f"{state!r}, {article} {kind} state"
    raise NoSuchStateError(
        f"Operator {operator.label!r} has no such elements: expected {expected} out of "
        f"{', '.join(map(repr, fitting)) or 'none'}, got {got}; `dstl inspect` shows the kinds.",
        location=str(operator.snapshot.folder),
    )
