"""Changes of a definition that a migration of earlier state has to make again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import takewhile

from dstl_core.checkpoint.store.commit_lineage import lineage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.job.coordination.definitions import CHANGES_NOTE
from dstl_core.job.coordination.tasks import JobTasks
from dstl_core.job.spec.operators import AggregateOperator, Operator
from dstl_core.job.spec.state_changes import StateChanges


def earlier_changes(tasks: JobTasks, parent: CompletedCheckpoint) -> list[StateChanges]:
    """The changes between the state of a commit and the latest one, oldest first.

    A migration of an earlier release has not noted its changes.
    """
    after = tasks.coordinator.find(
        lambda commits: list(
            takewhile(lambda commit: commit.checkpoint_id != parent.checkpoint_id, lineage(commits))
        )
    )
    noted = [commit.facts.notes.get(CHANGES_NOTE) for commit in after]
    return [StateChanges.of(changes) for changes in reversed(noted) if changes is not None]


def with_earlier(
    earlier: Sequence[StateChanges], changes: StateChanges, operators: Iterable[Operator]
) -> StateChanges:
    """Changes, after those that were made earlier, as one change.

    What went and came back begins anew, and what has gone since is not computed again.
    """
    if not earlier:
        return changes
    every = reduce(StateChanges.followed_by, [*earlier, changes])
    declared = [
        set(operator.aggregates) if isinstance(operator, AggregateOperator) else set()
        for operator in operators
    ]
    back = [name for name in every.drop if all(name in names for names in declared)]
    known = set().union(*declared)
    return replace(
        every,
        drop=[name for name in every.drop if name not in back],
        start_empty=[*every.start_empty, *back],
        backfill=[name for name in every.backfill if name in known or name in changes.backfill],
    )
