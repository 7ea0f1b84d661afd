"""A snapshot whose union states hold one of equal elements.

Each restore gives every subtask all elements of a union state. A function that keeps them and
stores them again multiplies the state by its parallelism with each restore.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dstl_core.errors import NoSuchStateError
from dstl_core.savepoint.edit.changed_elements import with_elements, with_operators
from dstl_core.savepoint.read.entries import OP_UNION
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot


@dataclass(frozen=True)
class DistinctElements:
    """What became of one union state.

    Args:
        operator: Its label.
        state: Its name.
        before: Its elements, over all subtasks.
        after: Those that are left.
    """

    operator: str
    state: str
    before: int
    after: int

    def plan_line(self) -> dict[str, Any]:
        """The line for the plan of an edit."""
        return {
            "operator": self.operator,
            "action": "distinct",
            "bytes": None,
            "states": [self.state],
            "elements": [self.before, self.after],
        }


def with_distinct_elements(
    snapshot: Snapshot, states: Sequence[tuple[str, str]]
) -> tuple[Snapshot, tuple[DistinctElements, ...]]:
    """The snapshot with the first of equal elements of some union states, for ``edit_savepoint``.

    Elements are equal if their bytes are. Each one that is left stays in its subtask.

    Args:
        snapshot: The snapshot.
        states: Operator (uid, hash or name) and name of the state.

    Raises:
        NoSuchOperatorError: There is no such operator.
        NoSuchStateError: The operator has no such union state; the message lists those that it
            has.
        FormatError: The operator state is damaged.
    """
    changes = []
    for name, state in states:
        operator = snapshot[name]
        _check_union(operator, state)
        known: set[bytes] = set()
        counts = [0, 0]

        def change(
            _: int,
            elements: list[bytes],
            known: set[bytes] = known,
            counts: list[int] = counts,
        ) -> list[bytes]:
            left = [raw for raw in dict.fromkeys(elements) if raw not in known]
            known.update(left)
            counts[0] += len(elements)
            counts[1] += len(left)
            return left

        changed = with_elements(operator, state, change)
        snapshot = with_operators(snapshot, {operator.operator_id: changed})
        changes.append(DistinctElements(operator.label, state, *counts))
    return snapshot, tuple(changes)


def _check_union(operator: OperatorSnapshot, state: str) -> None:
    unions = [info.name for info in operator.operator_states if info.kind == OP_UNION]
    if state not in unions:
        known = ", ".join(map(repr, unions)) or "none"
        raise NoSuchStateError(
            f"Operator {operator.label!r} has no union state {state!r} to keep one of equal "
            f"elements; its union states: {known}.",
            location=str(operator.snapshot.folder),
        )
