"""Renames and drops keyed states of RocksDB's files: in the MANIFEST and the header, not in files.

A state is a column family. Its table files do not depend on its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dstl_core.errors import ConfigError, NoSuchStateError, SavepointError, error_context
from dstl_core.model.checkpoint import OperatorState
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle
from dstl_core.savepoint.edit.changed_elements import PlanLine, plan_line, with_operators
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.write.table_parts import part_of
from dstl_core.state.restore.rocksdb import DEFAULT_FAMILY

_OF_TIMERS = "_timer_state/"


@dataclass(frozen=True)
class StateNames:
    """Gives keyed states other names, or leaves them out.

    Args:
        renamed: Operator (uid, hash or name) and state to its new name. Two states may swap theirs.
        dropped: Operator and state that are left out; timers are states, too:
            ``_timer_state/event_user-timers``.
    """

    renamed: Mapping[tuple[str, str], str]
    dropped: Sequence[tuple[str, str]] = ()

    def applied_to(self, snapshot: Snapshot) -> tuple[Snapshot, list[PlanLine]]:
        """As ``SourceEdit`` says.

        Raises:
            NoSuchOperatorError: There is no such operator.
            NoSuchStateError: The operator has no such keyed state.
            SavepointError: The keyed state is in another form than RocksDB's files, two states
                would have one name, or an operator would have no keyed state.
            ConfigError: A name is empty, or a state is renamed and dropped.
        """
        lines: list[PlanLine] = []
        by_operator: dict[str, dict[str, str | None]] = {}
        for (name, state), new in [*self.renamed.items(), *((e, None) for e in self.dropped)]:
            operator = snapshot[name]
            names = by_operator.setdefault(f"hash:{operator.operator_id.hex}", {})
            _check_state(operator, state, new)
            if state in names:
                raise ConfigError(
                    f"State {state!r} of operator {operator.label!r} is renamed or dropped twice; "
                    f"say once what becomes of it."
                )
            names[state] = new
            action, facts = ("drop", {}) if new is None else ("rename", {"new_state": new})
            lines.append(plan_line(operator, action, state, **facts))
        changed = {}
        for name, names in by_operator.items():
            operator = snapshot[name]
            _check_names(operator, names)
            changed[operator.operator_id] = _changed(operator, names)
        return (with_operators(snapshot, changed) if changed else snapshot), lines


def _check_state(operator: OperatorSnapshot, state: str, new: str | None) -> None:
    if new == "":
        raise ConfigError(f"State {state!r} cannot get an empty name.")
    if new is not None and (new == DEFAULT_FAMILY or new.startswith(_OF_TIMERS)):
        raise ConfigError(
            f"State {state!r} cannot be called {new!r}: RocksDB has a column family "
            f"{DEFAULT_FAMILY!r}, and names that begin with {_OF_TIMERS!r} are those of timers."
        )
    metas = {info.name: info.meta for info in operator.states}
    if state not in metas:
        known = ", ".join(map(repr, metas)) or "none"
        raise NoSuchStateError(
            f"Operator {operator.label!r} has no keyed state {state!r}; it has: {known}.",
            location=str(operator.snapshot.folder),
        )
    if new is not None and metas[state].is_queue:
        raise SavepointError(
            f"Timers {state!r} of operator {operator.label!r} cannot get another name: Flink makes "
            f"the name itself."
        )


def _check_names(operator: OperatorSnapshot, names: Mapping[str, str | None]) -> None:
    forms = {operator.form()}
    if not all(isinstance(each, IncrementalRemoteKeyedStateHandle) for each in _handles(operator)):
        raise SavepointError(
            f"The keyed state of operator {operator.label!r} ({', '.join(sorted(forms))}) stores "
            f"names of states between its records, so it is written anew for other names; declare "
            f"the change and use dstl migrate.",
            location=str(operator.snapshot.folder),
        )
    left = [names.get(info.name, info.name) for info in operator.states]
    kept = [each for each in left if each is not None]
    twice = sorted({each for each in kept if kept.count(each) > 1})
    if twice:
        raise SavepointError(
            f"Two states of operator {operator.label!r} would have the name {twice[0]!r}; rename "
            f"or drop one of them."
        )
    if not kept:
        raise SavepointError(
            f"Operator {operator.label!r} would have no keyed state; leave the operator out "
            f"(remove, --remove), or keep a state."
        )


def _handles(operator: OperatorSnapshot) -> list[object]:
    handles = (each.managed_keyed_state for each in operator.state.subtasks)
    return [each for each in handles if each is not None]


def _changed(operator: OperatorSnapshot, names: Mapping[str, str | None]) -> OperatorState:
    subtasks = []
    for subtask in operator.state.subtasks:
        handle = subtask.managed_keyed_state
        if isinstance(handle, IncrementalRemoteKeyedStateHandle):
            with error_context(operator=operator.label):
                label = f"{operator.operator_id.hex}-{subtask.index}"
                snapshot = operator.snapshot
                new = part_of(handle, names, snapshot.resolver, snapshot.registry, label)
            subtask = replace(subtask, managed_keyed_state=new)
        subtasks.append(subtask)
    return replace(operator.state, subtasks=tuple(subtasks))
