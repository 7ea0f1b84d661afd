"""Converts the state of a pipeline to a changed definition, as one commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dstl_core.checkpoint.store.commit_lineage import lineage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import EpochFacts, KeyFacts
from dstl_core.checkpoint.store.metadata_file import load_metadata_file
from dstl_core.errors import ConfigError
from dstl_core.functions import WINDOW_CONTENTS
from dstl_core.job.coordination.definitions import (
    Definitions,
    check_definitions,
    definitions_of,
    recorded_definitions,
)
from dstl_core.job.coordination.key_counts import keys_kept, no_keys
from dstl_core.job.coordination.savepoint import publish_savepoint
from dstl_core.job.coordination.tasks import JobTasks
from dstl_core.job.spec.state_changes import StateChanges
from dstl_core.job.task.restore import assign
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.migrate.migration_plan import SAME, Plan
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import INTERNAL_DIR, Location

SCRATCH = "migration"
"""Where a migration writes before it commits, in the internal folder of the pipeline."""


def migrate_job(
    tasks: JobTasks, parent: CompletedCheckpoint, changes: StateChanges
) -> CompletedCheckpoint:
    """Commits the state of a commit in the form that the job declares.

    Types that became wider are converted, and what is new starts empty. It returns ``parent`` if
    its state has that form.

    Args:
        tasks: The tasks of the job.
        parent: A commit in the lineage of the latest one.
        changes: What becomes of names.

    Raises:
        ConfigError: A definition changed and is not named, or state would be lost.
        SavepointError: A type changed, and its values do not convert.
    """
    tasks.coordinator.claim()
    latest, job = tasks.coordinator.require_latest(), tasks.job
    folder = str(tasks.load(parent).folder)
    source = Snapshot.load(folder, serializers=job.registry)
    recorded = tasks.coordinator.find(
        lambda commits: recorded_definitions(lineage(commits), parent)
    )
    defined = definitions_of(job.operators)
    scratch = job.layout.root.child(INTERNAL_DIR, SCRATCH)
    files = open_file_io(scratch)
    files.delete_folder(scratch)  # of a migration that was killed
    try:
        template = _template(tasks, parent.checkpoint_id, scratch.child("template"))
        rules = _Rules(source, template, recorded, defined, changes)
        declaration = rules.declaration(allow_lost=job.allow_non_restored_state)
        migration = SavepointMigration(Migration.of(declaration), source, template)
        if migration.plan.problems:
            raise ConfigError(
                f"The state of {job.name!r} cannot become that of the job: "
                f"{migration.plan.problems[0]}. Such a change is a migration of a savepoint: "
                f"savepoint(..), dstl migrate, and a pipeline of another name from the result."
            )
        if not rules.are_changed and _is_same(migration.plan):
            return parent
        target = Location.parse(migration.write(str(scratch.child("state"))))
        file = load_metadata_file(files, target)
        states = assign(file, tasks.plans(), allow_non_restored_state=False)
        facts = EpochFacts(
            kind="migration",
            restored_from=parent.checkpoint_id,
            watermarks=parent.facts.watermarks,
            keys={} if rules.lose_state else _keys(tasks, parent),
            definitions=defined,
        )
        specs = tasks.specs(str(target), states, parent.facts.watermarks)
        return tasks.full_checkpoint(specs, facts, after=latest.checkpoint_id)
    finally:
        files.delete_folder(scratch)


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


def _keys(tasks: JobTasks, parent: CompletedCheckpoint) -> dict[str, KeyFacts]:
    """The keys of each operator that counts them, which are the keys before."""
    known = keys_kept(parent, tasks.job.operators)
    return {
        uid: KeyFacts(count=known[uid].count, states=facts.states)
        for uid, facts in no_keys(tasks.job.operators).items()
        if uid in known
    }


class _Rules:
    """The rules of a migration, by the names of aggregates.

    Args:
        source: The state.
        template: The state of the job when it starts.
        recorded: The definitions with which the state was written, by uid and name.
        defined: Those of the job.
        changes: What becomes of names.
    """

    def __init__(
        self,
        source: Snapshot,
        template: Snapshot,
        recorded: Definitions,
        defined: Definitions,
        changes: StateChanges,
    ) -> None:
        self._source = source
        self._template = template
        self._recorded = recorded
        self._defined = defined
        self._changes = changes
        self.are_changed = False
        """Whether state begins anew, which the plan does not tell from state that stays."""
        self.lose_state = False

    def declaration(self, *, allow_lost: bool) -> dict[str, Any]:
        """The declaration for ``Migration.of``."""
        old = {operator.operator_id: operator for operator in self._source.operators}
        operators: dict[str, Any] = {}
        start_empty: list[str] = []
        renamed: set[str] = set()
        for operator in self._template.operators:
            before = old.pop(operator.operator_id, None)
            if before is None:
                start_empty.append(operator.label)
                continue
            rules, empty = self._operator(before, operator, renamed)
            operators[operator.label] = rules
            start_empty += [f"{operator.label}/{state}" for state in empty]
        unknown = [name for name in self._changes.rename if name not in renamed]
        if unknown:
            raise ConfigError(
                f"Nothing in the state is called {unknown[0]!r}, so it cannot be renamed; see the "
                f"names with dstl inspect."
            )
        lost = [operator.label for operator in old.values()] if allow_lost else []
        self.lose_state |= bool(lost)
        return {
            "migration": 1,
            "operators": operators,
            "start_empty": start_empty,
            "drop_operators": lost,
        }

    def _operator(
        self, before: OperatorSnapshot, after: OperatorSnapshot, renamed: set[str]
    ) -> tuple[dict[str, Any], list[str]]:
        """The rules of an operator, and its states that start empty."""
        uid = after.uid or ""
        changes, recorded = self._changes, self._recorded.get(uid, {})
        old = {state.name: (state.kind, state.type) for state in before.states}
        new = {state.name: (state.kind, state.type) for state in after.states}
        old_names = [*recorded, *changes.rename, *changes.drop, *changes.start_empty]
        new_names = [*self._defined.get(uid, {}), *changes.rename.values(), *changes.start_empty]
        owners = {state: _owner(state, old_names) for state in old}
        states: dict[str, Any] = {}
        drop: list[str] = []
        for state, owner in owners.items():
            if owner in changes.rename:
                renamed.add(owner)
                target = changes.rename[owner] + state[len(owner) :]
                if target not in new:
                    raise ConfigError(
                        f"The state {state!r} of operator {uid!r} cannot become {target!r}, which "
                        f"the job does not have: expected an aggregate with the same states."
                    )
                states[target] = {"from": state}
            elif owner in changes.drop:
                drop.append(state)
            elif state not in new and owner not in changes.start_empty:
                raise ConfigError(
                    f"The state {state!r} of operator {uid!r} would be lost: expected "
                    f"{owner!r} in the job, or a change for it; pass drop=[{owner!r}], or "
                    f"rename={{{owner!r}: its new name}}."
                )
        # A second call finds the new names.
        renamed |= {
            name
            for name, target in changes.rename.items()
            if name not in owners.values() and any(_belongs(state, target) for state in old)
        }
        empty = [state for state in new if state not in old and state not in states]
        for name in changes.start_empty:
            mine = [state for state in old if owners[state] == name]
            own = [state for state in new if _owner(state, new_names) == name]
            is_other = {state: old[state] for state in mine} != {state: new[state] for state in own}
            if is_other or recorded.get(name) != self._defined.get(uid, {}).get(name):
                drop += mine
                empty += [state for state in own if state in old]
                self.are_changed |= bool(mine)
        self.lose_state |= bool(drop)
        if WINDOW_CONTENTS in old:
            self._check_windows(uid, old[WINDOW_CONTENTS], new.get(WINDOW_CONTENTS))
        self._check_definitions(uid, recorded)
        return {"states": states, "drop": drop}, sorted(set(empty))

    def _check_windows(self, uid: str, old: tuple[str, str], new: tuple[str, str] | None) -> None:
        """Raises ConfigError if the aggregates of windows changed."""
        recorded, defined = self._recorded.get(uid, {}), self._defined.get(uid, {})
        if old == new and recorded in ({}, defined):
            return
        raise ConfigError(
            f"The aggregates of operator {uid!r} cannot change: open windows keep all of them in "
            f"one value; keep the aggregates and their types, or run the changed pipeline under "
            f"another name."
        )

    def _check_definitions(self, uid: str, recorded: Mapping[str, str]) -> None:
        """Raises ConfigError if a definition changed that no change names."""
        rename, gone = self._changes.rename, (*self._changes.drop, *self._changes.start_empty)
        kept = {rename.get(name, name): text for name, text in recorded.items() if name not in gone}
        check_definitions({uid: kept}, {uid: self._defined.get(uid, {})})


def _owner(state: str, names: Iterable[str]) -> str:
    """The aggregate that has a state: ``total`` has ``total`` or ``total_sum``; else the state."""
    return max((name for name in names if _belongs(state, name)), key=len, default=state)


def _belongs(state: str, name: str) -> bool:
    return state == name or state.startswith(f"{name}_")
