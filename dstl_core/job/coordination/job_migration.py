"""Converts the state of a pipeline to a changed definition, as one commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from itertools import takewhile
from typing import Any
from uuid import uuid4

from dstl_core.checkpoint.store.commit_lineage import lineage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import EpochFacts, KeyFacts
from dstl_core.checkpoint.store.metadata_file import load_metadata_file
from dstl_core.errors import ConfigError, DuplicateKeyError
from dstl_core.job.coordination.definitions import (
    BACKFILLED_NOTE,
    CHANGES_NOTE,
    rules_of_keys,
    states_of,
)
from dstl_core.job.coordination.job_backfill import (
    Recomputation,
    Recomputed,
)
from dstl_core.job.coordination.key_counts import keys_kept, no_keys
from dstl_core.job.coordination.migration_rules import CheckedDefinitions, MigrationRules
from dstl_core.job.coordination.savepoint import publish_savepoint
from dstl_core.job.coordination.tasks import JobTasks
from dstl_core.job.spec.job_spec import TaskSpec
from dstl_core.job.spec.operators import AggregateOperator, Operator, output_columns_of
from dstl_core.job.spec.state_changes import ChangePlan, StateChanges
from dstl_core.job.task.restore import assign
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.migrate.migration_plan import SAME, Plan
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import MIGRATION_DIR, PLAN_PREFIX, Location


def migrate_job(
    tasks: JobTasks,
    parent: CompletedCheckpoint,
    changes: StateChanges,
    recomputation: Recomputation,
) -> CompletedCheckpoint:
    """Commits the state of a commit in the form that the job declares.

    Types that became wider are converted, and what is new starts empty. It returns ``parent`` if
    its state has that form.

    Args:
        tasks: The tasks of the job.
        parent: A commit in the lineage of the latest one.
        changes: What becomes of names.
        recomputation: Computes the aggregates of ``changes.backfill``.

    Raises:
        ConfigError: A definition changed and is not named, or state would be lost.
        InputChangedError: The rows of an input, for a backfill, are not those of its commit.
        SavepointError: A type changed, and its values do not convert.
    """
    earlier = _earlier_changes(tasks, parent)
    with _explained(earlier):
        changes = _with_earlier(earlier, changes, tasks.job.operators)
        return _migrated(tasks, parent, changes, recomputation, is_later=bool(earlier))


def _migrated(
    tasks: JobTasks,
    parent: CompletedCheckpoint,
    changes: StateChanges,
    recomputation: Recomputation,
    *,
    is_later: bool,
) -> CompletedCheckpoint:
    job = tasks.job
    checked = CheckedDefinitions.of(tasks, parent, changes, is_later=is_later)
    tasks.coordinator.claim()
    latest = tasks.coordinator.require_latest()
    scratch = job.layout.scratch(MIGRATION_DIR)
    files = open_file_io(scratch)
    files.delete_folder(scratch)  # of a migration that was killed
    try:
        rules, migration = _planned(tasks, parent, changes, checked, scratch)
        if not rules.are_changed and _is_same(migration.plan):
            return parent
        inputs = checked.past.all() if rules.backfilled else []
        target = _written(migration, str(scratch.child("state")))
        recomputed = Recomputed(target, {})
        if inputs:
            folder = str(scratch.child("backfill"))
            recomputed = recomputation.run(job.operators, rules.backfilled, inputs, target, folder)
        specs = [
            of_inputs if of_inputs.operator.uid in recomputed.keys_gained else kept
            for of_inputs, kept in zip(
                _specs(tasks, recomputed.path, parent), _specs(tasks, target, parent), strict=True
            )
        ]
        facts = EpochFacts(
            kind="migration",
            restored_from=parent.checkpoint_id,
            watermarks=parent.facts.watermarks,
            keys={} if rules.lose_state else _keys(tasks, parent, recomputed.keys_gained),
            definitions=checked.defined,
            outputs=output_columns_of(job.operators),
            notes=_notes(changes, checked, rules),
        )
        return tasks.full_checkpoint(specs, facts, after=latest.checkpoint_id)
    finally:
        files.delete_folder(scratch)


def _written(migration: SavepointMigration, path: str) -> str:
    """Writes the converted state.

    Raises:
        ConfigError: Keys become one, and a state of them does not merge.
    """
    try:
        return migration.write(path)
    except DuplicateKeyError as error:
        raise ConfigError(
            f"Keys that become one by rekey have state that does not merge: expected counts, sums, "
            f"averages, minima and maxima, of no decimals, and no extremes of floats; got: "
            f"{error.message} Name the aggregate in start_empty or backfill, or keep the keys "
            f"apart."
        ) from error


def plan_of_changes(
    tasks: JobTasks, parent: CompletedCheckpoint, changes: StateChanges
) -> ChangePlan:
    """What ``migrate_job`` would do. It commits nothing, and claims nothing.

    Its arguments and errors are those of ``migrate_job``.
    """
    earlier = _earlier_changes(tasks, parent)
    scratch = tasks.job.layout.scratch(f"{PLAN_PREFIX}{uuid4().hex}")
    try:
        with _explained(earlier):
            changes = _with_earlier(earlier, changes, tasks.job.operators)
            checked = CheckedDefinitions.of(tasks, parent, changes, is_later=bool(earlier))
            rules, migration = _planned(tasks, parent, changes, checked, scratch)
        inputs = checked.past.all() if rules.backfilled else []
        return ChangePlan(tuple(rules.planned(migration.plan)), len(inputs))
    finally:
        open_file_io(scratch).delete_folder(scratch)


@contextmanager
def _explained(earlier: Sequence[StateChanges]) -> Iterator[None]:
    """Says of an error that it comes from changes that are made again."""
    try:
        yield
    except ConfigError as error:
        if not earlier:
            raise
        shown = ", ".join(repr(each.to_json()) for each in earlier)
        raise ConfigError(
            f"{error.message} The definition has changed since that state, by {shown}, and this is "
            f"made again in one step; restate inputs after these changes only, or run all inputs "
            f"in a pipeline of another name."
        ) from error


def _notes(
    changes: StateChanges, checked: CheckedDefinitions, rules: MigrationRules
) -> dict[str, Any]:
    made = replace(changes, rekey=checked.rekeyed).to_json()
    return {
        **({CHANGES_NOTE: made} if made else {}),
        **({BACKFILLED_NOTE: rules.backfilled} if rules.backfilled else {}),
    }


def _planned(
    tasks: JobTasks,
    parent: CompletedCheckpoint,
    changes: StateChanges,
    checked: CheckedDefinitions,
    scratch: Location,
) -> tuple[MigrationRules, SavepointMigration]:
    """The rules of a migration, and its plan, which has no problems."""
    job = tasks.job
    source = tasks.catalog(parent)
    template = _template(tasks, parent.checkpoint_id, scratch.child("template"))
    owners, of_keys = states_of(job.operators), rules_of_keys(job.operators)
    rules = MigrationRules(source, template, checked, changes, owners, of_keys)
    declaration = rules.declaration(allow_lost=job.allow_non_restored_state)
    migration = SavepointMigration(Migration.of(declaration), source, template)
    if migration.plan.problems:
        raise ConfigError(
            f"The state of {job.name!r} cannot become that of the job: "
            f"{migration.plan.problems[0]}. Such a change is a migration of a savepoint: "
            f"savepoint(..), dstl migrate, and a pipeline of another name from the result."
        )
    return rules, migration


def _template(tasks: JobTasks, checkpoint_id: int, folder: Location) -> Snapshot:
    """The state of the job when it starts: its operators, states and types."""
    path = publish_savepoint(tasks, tasks.root_specs(), checkpoint_id, str(folder), {})
    return Snapshot.load(path, serializers=tasks.job.registry)


def _is_same(plan: Plan) -> bool:
    """Whether the state stays as it is."""
    return not plan.dropped and all(
        operator.sources
        and not operator.dropped
        and operator.key is None
        and all(
            state.action == SAME and state.old is not None and state.old.name == state.new.name
            for state in operator.states
        )
        for operator in plan.operators
    )


def _specs(tasks: JobTasks, path: str, parent: CompletedCheckpoint) -> list[TaskSpec]:
    """What the tasks restore from a snapshot."""
    folder = Location.parse(path)
    file = load_metadata_file(open_file_io(folder), folder)
    states = assign(file, tasks.plans(), allow_non_restored_state=False)
    return tasks.specs(path, states, parent.facts.watermarks)


def _keys(
    tasks: JobTasks, parent: CompletedCheckpoint, gained: Mapping[str, int]
) -> dict[str, KeyFacts]:
    """The keys of each operator that counts them, which are the keys before."""
    known = keys_kept(parent, tasks.job.operators)
    return {
        uid: KeyFacts(count=known[uid].count + gained.get(uid, 0), states=facts.states)
        for uid, facts in no_keys(tasks.job.operators).items()
        if uid in known
    }


def _earlier_changes(tasks: JobTasks, parent: CompletedCheckpoint) -> list[StateChanges]:
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


def _with_earlier(
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
