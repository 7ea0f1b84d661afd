"""The rules of a migration of a job: what becomes of the states of each aggregate."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dstl_core.aggregates.by_order import MOST_ORDERS, order_suffixes
from dstl_core.checkpoint.store.commit_lineage import lineage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.errors import ConfigError
from dstl_core.functions import WINDOW_CONTENTS
from dstl_core.job.coordination.definitions import (
    SELECTOR,
    WINDOWED,
    Definitions,
    check_definitions,
    check_selectors,
    continued_definitions,
    definitions_of,
    of_aggregates,
)
from dstl_core.job.coordination.job_backfill import (
    PastInputs,
    check_backfill,
)
from dstl_core.job.coordination.tasks import JobTasks
from dstl_core.job.spec.state_changes import Change, PlannedChange, StateChanges
from dstl_core.savepoint.migrate.migration_plan import Plan, StatePlan
from dstl_core.savepoint.migrate.proposal.matching import has_state
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot

_BESIDE = ("", "_time", *order_suffixes(MOST_ORDERS))
"""Ends of the names of states of an aggregate that has a state of its own name."""


@dataclass(frozen=True)
class CheckedDefinitions:
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
    ) -> CheckedDefinitions:
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


class MigrationRules:
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
        checked: CheckedDefinitions,
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
