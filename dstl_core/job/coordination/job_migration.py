"""Converts the state of a pipeline to a changed definition, as one commit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import takewhile
from typing import Any
from uuid import uuid4

from dstl_core.aggregates.by_order import MOST_ORDERS, order_suffixes
from dstl_core.checkpoint.store.commit_lineage import lineage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import EpochFacts, KeyFacts
from dstl_core.checkpoint.store.metadata_file import load_metadata_file
from dstl_core.errors import ConfigError, DuplicateKeyError
from dstl_core.functions import WINDOW_CONTENTS
from dstl_core.job.coordination.definitions import (
    BACKFILLED_NOTE,
    CHANGES_NOTE,
    SELECTOR,
    WINDOWED,
    Definitions,
    check_definitions,
    check_selectors,
    continued_definitions,
    definitions_of,
    of_aggregates,
    rules_of_keys,
    states_of,
)
from dstl_core.job.coordination.job_backfill import (
    PastInputs,
    Recomputation,
    Recomputed,
    check_backfill,
)
from dstl_core.job.coordination.key_counts import keys_kept, no_keys
from dstl_core.job.coordination.savepoint import publish_savepoint
from dstl_core.job.coordination.tasks import JobTasks
from dstl_core.job.spec.job_spec import TaskSpec
from dstl_core.job.spec.operators import AggregateOperator, Operator, output_columns_of
from dstl_core.job.spec.state_changes import Change, ChangePlan, PlannedChange, StateChanges
from dstl_core.job.task.restore import assign
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.migrate.migration_plan import SAME, Plan, StatePlan
from dstl_core.savepoint.migrate.proposal.matching import has_state
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import MIGRATION_DIR, PLAN_PREFIX, Location

_BESIDE = ("", "_time", *order_suffixes(MOST_ORDERS))
"""Ends of the names of states of an aggregate that has a state of its own name."""


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
    checked = _Checked.of(tasks, parent, changes, is_later=is_later)
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
            checked = _Checked.of(tasks, parent, changes, is_later=bool(earlier))
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


def _notes(changes: StateChanges, checked: _Checked, rules: _Rules) -> dict[str, Any]:
    made = replace(changes, rekey=checked.rekeyed).to_json()
    return {
        **({CHANGES_NOTE: made} if made else {}),
        **({BACKFILLED_NOTE: rules.backfilled} if rules.backfilled else {}),
    }


@dataclass(frozen=True)
class _Checked:
    """The definitions of the state and of the job, of which no window differs, and no key but those
    of ``rekeyed``.
    """

    recorded: Definitions
    defined: Definitions
    rekeyed: Mapping[str, str]
    past: PastInputs
    is_later: bool
    """Whether some of the changes are of a later state, so that it may lack their names."""

    @property
    def both(self) -> tuple[Definitions, Definitions]:
        """The definitions of the state, and of the job."""
        return self.recorded, self.defined

    @classmethod
    def of(
        cls, tasks: JobTasks, parent: CompletedCheckpoint, changes: StateChanges, *, is_later: bool
    ) -> _Checked:
        recorded = continued_definitions(tasks, parent)
        defined = definitions_of(tasks.job.operators)
        rekeyed = _rekeyed(changes.rekey, recorded, defined)
        kept = {uid: texts for uid, texts in defined.items() if uid not in rekeyed}
        check_selectors(recorded, kept)
        check_backfill(tasks.job.operators, changes.backfill)
        line = tasks.coordinator.find(
            lambda commits: list(lineage(commits)) if changes.backfill else []
        )
        past = PastInputs(line, parent, tasks.job.name)
        return cls(recorded, defined, rekeyed, past, is_later)


def _rekeyed(
    expressions: Mapping[str, str], recorded: Definitions, defined: Definitions
) -> dict[str, str]:
    """The expressions of the operators whose key column is another one than that of their state.

    Raises:
        ConfigError: An operator has no keys, or has windows.
    """
    rekeyed = {}
    for uid, expression in expressions.items():
        if uid not in defined:
            raise ConfigError(
                f"The operator {uid!r} of rekey has no keys: expected one of "
                f"{', '.join(map(repr, defined)) or 'none'}."
            )
        before, after = (texts.get(uid, {}).get(SELECTOR) for texts in (recorded, defined))
        if before is None or before == after:
            continue
        if WINDOWED in before or WINDOWED in (after or ""):
            raise ConfigError(
                f"The operator {uid!r} cannot have another key: it has windows; run the changed "
                f"pipeline under another name."
            )
        rekeyed[uid] = expression
    return rekeyed


def _planned(
    tasks: JobTasks,
    parent: CompletedCheckpoint,
    changes: StateChanges,
    checked: _Checked,
    scratch: Location,
) -> tuple[_Rules, SavepointMigration]:
    """The rules of a migration, and its plan, which has no problems."""
    job = tasks.job
    source = tasks.catalog(parent)
    template = _template(tasks, parent.checkpoint_id, scratch.child("template"))
    owners, of_keys = states_of(job.operators), rules_of_keys(job.operators)
    rules = _Rules(source, template, checked, changes, owners, of_keys)
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


class _Rules:
    """The rules of a migration, by the names of aggregates.

    Args:
        source: The state.
        template: The state of the job when it starts.
        checked: The definitions of both.
        changes: What becomes of names.
        owners: The aggregate of each state of the job, by uid and state.
        of_keys: How the states of keys that become one merge, by uid and state.
    """

    def __init__(
        self,
        source: Snapshot,
        template: Snapshot,
        checked: _Checked,
        changes: StateChanges,
        owners: Mapping[str, Mapping[str, str]],
        of_keys: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._source = source
        self._template = template
        self._recorded = of_aggregates(checked.recorded)
        self._defined = of_aggregates(checked.defined)
        self._changes = changes
        self._owners = owners
        self._checked = checked
        self._of_keys = of_keys
        self._kept: set[str] = set()
        """Names that a change gives up, and that an operator of the job declares."""
        self.are_changed = False
        """Whether state begins anew, which the plan does not tell from state that stays."""
        self.lose_state = False
        self.backfilled: dict[str, list[str]] = {}
        """The aggregates that get the values of all inputs, by uid of the operator."""

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
                self._backfill(operator.uid or "", {state.name for state in operator.states})
                continue
            rules, empty = self._operator(before, operator, renamed)
            operators[operator.label] = rules
            start_empty += [f"{operator.label}/{state}" for state in empty]
        self._check_names(renamed)
        lost = [operator.label for operator in old.values() if has_state(operator)]
        if lost and not allow_lost:
            raise ConfigError(
                f"The state of operator {lost[0]!r} would be lost: expected an operator of this "
                f"uid in the job; to leave the state out, give the job allow_non_restored_state."
            )
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
        declared = set(self._defined.get(uid, new))
        owners = self._owners_of(uid, old)
        new_owners = self._owners.get(uid, {state: state for state in new})
        self._check_renamed(uid, declared)
        self._kept |= declared & {*changes.rename, *changes.drop}
        begun = [name for name in changes.anew if name in declared]
        states: dict[str, Any] = {}
        drop: list[str] = []
        for state, owner in owners.items():
            if owner in changes.rename and owner not in declared:
                renamed.add(owner)
                target = changes.rename[owner] + state[len(owner) :]
                if target not in new:
                    raise ConfigError(
                        f"The state {state!r} of operator {uid!r} cannot become {target!r}, which "
                        f"the job does not have: expected an aggregate with the same states."
                    )
                if target in old and owners[target] not in changes.drop:
                    raise ConfigError(
                        f"The state {state!r} of operator {uid!r} cannot become {target!r}, which "
                        f"has values of its own: expected a name that is new, or drop one of the "
                        f"two first."
                    )
                if state in new:
                    raise ConfigError(
                        f"The state {state!r} of operator {uid!r} cannot become {target!r}, since "
                        f"the aggregate {new_owners[state]!r} of the job has a state of that "
                        f"name: give {new_owners[state]!r} another name, or migrate twice."
                    )
                states[target] = {"from": state}
            elif owner in changes.drop and owner not in declared:
                drop.append(state)
            elif owner not in begun and (state not in new or new_owners.get(state, owner) != owner):
                raise ConfigError(
                    f"The state {state!r} of operator {uid!r} would be lost: expected "
                    f"{owner!r} in the job, or a change for it; pass drop=[{owner!r}], or "
                    f"rename={{{owner!r}: its new name}}."
                )
        # A second call finds the new names.
        renamed |= {
            name
            for name, target in changes.rename.items()
            if name not in owners.values() and target in owners.values()
        }
        empty = [state for state in new if state not in old and state not in states]
        for name in begun:
            mine = [state for state in old if owners[state] == name]
            its = [state for state in new if new_owners.get(state) == name]
            is_other = {state: old[state] for state in mine} != {state: new[state] for state in its}
            definition = self._defined.get(uid, {}).get(name)
            is_other |= recorded.get(name) != definition or uid in self._checked.rekeyed
            if is_other or not self._is_whole(uid, name, definition):
                drop += mine
                empty += [state for state in its if state in old]
                self.are_changed |= bool(mine)
        self._backfill(uid, empty)
        self.lose_state |= bool(drop)
        if WINDOW_CONTENTS in old:
            self._check_windows(uid, old[WINDOW_CONTENTS], new.get(WINDOW_CONTENTS))
        self._check_definitions(uid, recorded)
        rules = {"states": states, "drop": drop, **self._new_key(uid, states, empty)}
        return rules, sorted(set(empty))

    def _new_key(self, uid: str, states: dict[str, Any], empty: Collection[str]) -> dict[str, str]:
        """The rule of a new key; rules of states that merge are added."""
        expression = self._checked.rekeyed.get(uid)
        if expression is None:
            return {}
        self.lose_state = True  # nobody counts the keys that become one
        for state, rule in self._of_keys.get(uid, {}).items():
            if state not in empty:
                states.setdefault(state, {})["merge"] = rule
        return {"key": expression}

    def planned(self, plan: Plan) -> Iterator[PlannedChange]:
        """What becomes of each aggregate, and of each state of a function."""
        for operator in plan.operators:
            uid = operator.target.uid or ""
            old = [state.name for source in operator.sources for state in source.states]
            owners, before = self._owners.get(uid, {}), self._owners_of(uid, old)
            states: dict[str, list[StatePlan]] = {}
            for state in operator.states:
                states.setdefault(owners.get(state.new.name, state.new.name), []).append(state)
            if uid in self._checked.rekeyed:
                texts = (known[uid][SELECTOR] for known in self._checked.both)
                yield PlannedChange(uid, "the key", "re-keyed", *texts)
            for name, parts in states.items():
                yield self._change_of(uid, name, parts, before)
            gone: dict[str, list[StateInfo]] = {}
            for _, info in operator.dropped:
                gone.setdefault(before[info.name], []).append(info)
            for name, infos in gone.items():
                if name not in states:
                    yield PlannedChange(uid, name, "dropped", _shown(infos), "")
        for lost in plan.dropped:
            for info in lost.states:
                yield PlannedChange(lost.label, info.name, "dropped", _shown([info]), "")

    def _change_of(
        self, uid: str, name: str, states: Sequence[StatePlan], before: Mapping[str, str]
    ) -> PlannedChange:
        old = [state.old for state in states if state.old is not None]
        change: Change = "kept"
        if name in self.backfilled.get(uid, ()):
            change = "backfilled"
        elif not old:
            change = "begins anew" if name in before.values() else "added"
        elif before[old[0].name] != name:
            change = "renamed"
        elif any(state.old and state.old.type != state.new.type for state in states):
            change = "widened"
        return PlannedChange(uid, name, change, _shown(old), _shown(state.new for state in states))

    def _is_whole(self, uid: str, name: str, definition: str | None) -> bool:
        """Whether an aggregate that goes on needs no backfill."""
        return name not in self._changes.backfill or self._checked.past.have_reached(
            uid, name, definition or ""
        )

    def _backfill(self, uid: str, empty: Collection[str]) -> None:
        """Learns the aggregates of an operator that begin empty, and get the values of inputs."""
        owned = self._owners.get(uid, {})
        names = [
            name
            for name in self._changes.backfill
            if any(owner == name and state in empty for state, owner in owned.items())
        ]
        if names:
            self.backfilled[uid] = names

    def _owners_of(self, uid: str, states: Collection[str]) -> dict[str, str]:
        """The aggregate that has each state before; a state of a function has its own name."""
        defined = self._defined.get(uid)
        if defined is None:
            return {state: state for state in states}
        changes, recorded = self._changes, self._recorded.get(uid, {})
        # Of a savepoint, or of an earlier release, nothing is recorded. There an aggregate that has
        # a state of its own name has no others, but for the order or the time of its value.
        whole: set[str] = set() if recorded else {*states}
        names = recorded or [*defined, *changes.rename, *changes.drop, *changes.start_empty]
        same = {
            state: name
            for state, name in self._owners[uid].items()
            if name in recorded and recorded[name] == defined[name]
        }
        return {
            state: same.get(state)
            or _owner(
                state,
                (name for name in names if name not in whole or state[len(name) :] in _BESIDE),
            )
            for state in states
        }

    def _check_renamed(self, uid: str, declared: Collection[str]) -> None:
        """Raises ConfigError if the job declares an old name beside its new one."""
        for name, target in self._changes.rename.items():
            if name in declared and target in declared:
                raise ConfigError(
                    f"The name {name!r} cannot become {target!r}: operator {uid!r} has both. Take "
                    f"{name!r} out of rename, or give the new aggregate another name."
                )

    def _check_names(self, renamed: Collection[str]) -> None:
        """Raises ConfigError if a name has a change that nothing in the job can have."""
        changes = self._changes
        unknown = [name for name in changes.rename if name not in renamed]
        if unknown and unknown[0] in self._kept:
            raise ConfigError(
                f"The name {unknown[0]!r} cannot become {changes.rename[unknown[0]]!r}: the job "
                f"still has {unknown[0]!r}, and not the new name."
            )
        if unknown and not self._checked.is_later:
            raise ConfigError(
                f"Nothing in the state is called {unknown[0]!r}, so it cannot be renamed; see the "
                f"names with dstl inspect."
            )
        for name in changes.drop:
            if all(
                name
                in self._defined.get(operator.uid or "", [each.name for each in operator.states])
                for operator in self._template.operators
            ):
                raise ConfigError(
                    f"The name {name!r} cannot go: the job declares it. Take it out of drop, or "
                    f"begin it anew with start_empty=[{name!r}]."
                )

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
        changes, defined = self._changes, self._defined.get(uid, {})
        kept = {
            name if name in defined else changes.rename.get(name, name): text
            for name, text in recorded.items()
            if name not in changes.anew
        }
        check_definitions({uid: kept}, {uid: defined})


def _shown(states: Iterable[StateInfo]) -> str:
    return ", ".join(f"{state.name} {state.type}" for state in states)


def _owner(state: str, names: Iterable[str]) -> str:
    """The aggregate that has a state: ``total`` has ``total`` or ``total_sum``; else the state."""
    return max((name for name in names if _belongs(state, name)), key=len, default=state)


def _belongs(state: str, name: str) -> bool:
    return state == name or state.startswith(f"{name}_")


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
