"""Checks whether a changed job restores a snapshot: a verdict and its reason for each state.

A savepoint describes the new job. Taken from the job without state and without input, it has the
ids, names and types of all state that the job registers when it starts. Flink reports no error for
state that it ignores and for values whose meaning changed; here such state is never compatible.

Source: ``Checkpoints.loadAndValidateCheckpoint``, ``StateSerializerProvider`` and the serializer
snapshots of Flink 2.2.1; readers of ``_metadata`` of Flink 1.20.5, 2.0.2, 2.1.3, 2.2.1 and 2.3.0.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.state_meta import BackendStateType
from dstl_core.errors import ConfigError, UnreadableValueError
from dstl_core.savepoint.check.hidden_changes import (
    values_of_subclasses,
    verdict_on_removed_fields,
)
from dstl_core.savepoint.check.restore_plan import (
    METADATA_OF_FLINK_2,
    OperatorFate,
    StateFate,
    plan_restore,
    rules_of,
)
from dstl_core.savepoint.read.job_classes import open_job_classes
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.read.snapshot_names import SnapshotNames
from dstl_core.shown import option_text
from dstl_core.state.tables.compatibility import (
    FlinkVersion,
    Verdict,
    columns_that_may_swap,
    parse_flink_version,
    version_text,
)

VERDICT_TEXTS = {
    Verdict.COMPATIBLE_AS_IS: "compatible",
    Verdict.AFTER_MIGRATION: "compatible after migration",
    Verdict.UNKNOWN: "unknown",
    Verdict.INCOMPATIBLE: "incompatible",
}
_LAST_METADATA: dict[FlinkVersion, int] = {(1, 20): 4, (2, 0): 5}
"""The newest version of ``_metadata`` that a Flink version reads; later versions read 6."""


@dataclass(frozen=True, slots=True)
class RestoreLine:
    """A verdict about an operator or one of its states, and the reason."""

    operator: str
    verdict: Verdict
    reason: str = ""
    state: str | None = None
    kind: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "op": self.operator,
            "kind": self.kind,
            "state": self.state,
            "verdict": VERDICT_TEXTS[self.verdict],
            "reason": self.reason,
        }

    def __str__(self) -> str:
        place = self.operator if self.state is None else f"{self.operator} {self.kind} {self.state}"
        text = f"{VERDICT_TEXTS[self.verdict]}: {place}"
        return f"{text}: {self.reason}" if self.reason else text


@dataclass(frozen=True)
class RestoreCheck:
    """The result for a whole snapshot. Its verdict is the worst of its lines."""

    path: str
    expected: str
    flink: FlinkVersion
    lines: Sequence[RestoreLine]
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def verdict(self) -> Verdict:
        return max((each.verdict for each in self.lines), default=Verdict.COMPATIBLE_AS_IS)

    @property
    def is_compatible(self) -> bool:
        """Whether the job restores the snapshot with all its values, perhaps after migration."""
        return self.verdict <= Verdict.AFTER_MIGRATION

    @property
    def summary(self) -> str:
        """The verdict in one line, with the number of states and the version of Flink."""
        states = sum(line.state is not None for line in self.lines)
        return f"{VERDICT_TEXTS[self.verdict]}: {states} states, Flink {version_text(self.flink)}"

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "expect": self.expected,
            "to": version_text(self.flink),
            "verdict": VERDICT_TEXTS[self.verdict],
            "ok": self.is_compatible,
            "lines": [each.to_json() for each in self.lines],
            "notes": list(self.notes),
        }


def check_restore(
    snapshot: Snapshot,
    expected: Snapshot,
    *,
    to: str | None = None,
    drop: Sequence[str] = (),
    columns_kept: bool = False,
    jars: Sequence[str | os.PathLike[str]] = (),
) -> RestoreCheck:
    """Checks whether a job restores a snapshot, and whether its values stay what they are.

    It reads the values of states with POJOs, since no header names the subclasses in them.

    Args:
        snapshot: The snapshot to restore.
        expected: A savepoint of the new job.
        to: The version of Flink that restores, e.g. ``2.2``. By default 1.20 if Flink 1 wrote
            ``expected``, otherwise the newest known version.
        drop: Operators (uid, hash or name) and states (``OPERATOR/STATE``) that may be lost.
        columns_kept: Whether columns of SQL rows kept their places. Rows have no names of columns,
            so no file records whether columns of the same type swapped.
        jars: Jars of the new job. They show whether a field that is gone from a POJO is gone from
            its class.

    Raises:
        ConfigError: The rules of a version are not known, or a name in ``drop`` matches nothing.
        FormatError: A snapshot is damaged.
    """
    return _Check(snapshot, expected, to, drop, columns_kept, open_job_classes(jars)).run()


class _Check:
    def __init__(
        self,
        snapshot: Snapshot,
        expected: Snapshot,
        to: str | None,
        drop: Sequence[str],
        columns_kept: bool,
        classes: JobClasses,
    ) -> None:
        self._snapshot, self._expected = snapshot, expected
        self._classes = classes
        self._rules = rules_of(snapshot, expected)
        if to is not None:
            self._rules = replace(self._rules, to=parse_flink_version(to))
        self._flink = self._rules.version
        self._drop = DroppedState(snapshot, drop)
        self._columns_kept = columns_kept
        self._operators = {each.label: each for each in snapshot.operators}
        self._notes: list[str] = []

    def run(self) -> RestoreCheck:
        plan = plan_restore(self._snapshot, self._expected, self._rules)
        lines = metadata_lines(self._snapshot, self._flink)
        lines += misplaced_lines(self._snapshot, self._flink, self._drop)
        for fate in plan.operators:
            operator = self._operators.get(fate.operator)
            if fate.fate == "matched" and operator is not None:
                lines += self._matched(fate, operator)
            elif fate.fate == "dropped" and fate.size:
                lines.append(self._lost(fate.operator))
            elif fate.fate == "new":
                self._notes.append(f"operator {fate.operator!r} is new and starts empty")
        self._drop.check_used()
        return RestoreCheck(
            str(self._snapshot.folder),
            str(self._expected.folder),
            self._flink,
            lines,
            (*plan.notes, *self._notes),
        )

    def _lost(self, label: str) -> RestoreLine:
        if self._drop.takes(label):
            reason = "dropped as asked: start the job with --allowNonRestoredState"
            return RestoreLine(label, Verdict.COMPATIBLE_AS_IS, reason)
        reason = (
            "the new job has no operator of this id, so Flink refuses the restore, or drops the "
            "state with --allowNonRestoredState"
        )
        operator = self._operators[label]
        if like := self._with_states_of(operator):
            names = SnapshotNames(self._snapshot)
            renaming = names.renaming_text(operator, like.uid or "UID")
            advice = (
                f"; operator {like.label!r} has the same states: "
                f"dstl rewrite {option_text('--rename', renaming)}"
            )
        else:
            advice = "; rename the operator (dstl rewrite --rename), or accept the loss (--drop)"
        return RestoreLine(label, Verdict.INCOMPATIBLE, reason + advice)

    def _with_states_of(self, operator: OperatorSnapshot) -> OperatorSnapshot | None:
        """The new operator that has the states of a lost one, if there is exactly one."""
        known = {each.operator_id for each in self._snapshot.operators}
        states = _shape(operator)
        matches = [
            candidate
            for candidate in self._expected.operators
            if candidate.operator_id not in known and states and _shape(candidate) == states
        ]
        return matches[0] if len(matches) == 1 else None

    def _matched(self, fate: OperatorFate, operator: OperatorSnapshot) -> Iterator[RestoreLine]:
        label = fate.operator
        for problem in fate.problems:
            yield RestoreLine(label, Verdict.INCOMPATIBLE, problem)
        for doubt in fate.doubts:
            yield RestoreLine(label, Verdict.UNKNOWN, doubt)
        theirs = self._expected[f"hash:{operator.operator_id.hex}"]
        key = operator.key_type
        if key is not None and (kind := self._may_swap(key.serializer)):
            yield RestoreLine(label, Verdict.UNKNOWN, f"key: {_swapped(kind)}")
        # Flink 1 records no uids, so files that dstl made of its files have none either.
        file = self._snapshot.file
        if (
            not operator.uid
            and file.sidecar is None
            and file.metadata.version >= METADATA_OF_FLINK_2
        ):
            self._notes.append(
                f"operator {label!r} has no uid: its id depends on the whole job, so give it one"
            )
        types = {
            info.name: info.meta.as_key_value()
            for info in operator.states + operator.operator_states
        }
        for state in fate.states:
            if state.fate == "dropped":
                yield self._ignored(label, state)
            elif state.fate == "matched":
                line = RestoreLine(
                    label,
                    state.compatibility.verdict,
                    state.compatibility.reason,
                    state.name,
                    state.kind,
                )
                meta = types[state.name]
                is_queue = meta.backend_state_type is BackendStateType.PRIORITY_QUEUE
                if not is_queue and line.verdict <= Verdict.AFTER_MIGRATION:
                    line = self._with_hidden(line, operator, theirs)
                kind = None if is_queue else self._may_swap(meta.value_serializer)
                if line.verdict <= Verdict.AFTER_MIGRATION and kind is not None:
                    line = replace(line, verdict=Verdict.UNKNOWN, reason=_swapped(kind))
                yield line
            elif state.kind not in ("event-timer", "proc-timer", "queue"):
                self._notes.append(
                    f"state {state.name!r} of operator {label!r} is new and starts empty"
                )

    def _with_hidden(
        self, line: RestoreLine, operator: OperatorSnapshot, theirs: OperatorSnapshot
    ) -> RestoreLine:
        """The line with what no header shows."""
        old, new = (_info(each, line.state) for each in (operator, theirs))
        verdicts = [values_of_subclasses(operator, old)]
        now = dict(new.meta.serializers)
        verdicts += [
            verdict_on_removed_fields(serializer, now[name], self._classes)
            for name, serializer in old.meta.serializers
            if name in now
        ]
        worst = max(verdicts, key=lambda compatibility: compatibility.verdict)
        if worst.verdict <= line.verdict:
            return line
        return replace(line, verdict=worst.verdict, reason=worst.reason)

    def _may_swap(self, serializer: Any) -> str | None:
        return None if self._columns_kept else columns_that_may_swap(serializer)

    def _ignored(self, label: str, state: StateFate) -> RestoreLine:
        if self._drop.takes(label, state.name):
            verdict, reason = Verdict.COMPATIBLE_AS_IS, "dropped as asked"
        else:
            verdict = Verdict.INCOMPATIBLE
            reason = (
                "the savepoint of the new job has no state of this name, so Flink ignores the "
                "values without an error; rename the state, accept the loss (--drop), or let the "
                "job register the state before its savepoint"
            )
        return RestoreLine(label, verdict, reason, state.name, state.kind)


def _info(operator: OperatorSnapshot, state: str | None) -> StateInfo:
    infos = operator.states + operator.operator_states
    return next(each for each in infos if each.name == state)


def metadata_lines(snapshot: Snapshot, flink: FlinkVersion) -> list[RestoreLine]:
    """A line if a version of Flink cannot read the ``_metadata`` of a snapshot."""
    version = snapshot.metadata.version
    last = _LAST_METADATA.get(flink, version)
    if version <= last:
        return []
    reason = f"Flink {version_text(flink)} reads versions up to {last}, got {version}"
    return [RestoreLine("_metadata", Verdict.INCOMPATIBLE, reason)]


def misplaced_lines(
    snapshot: Snapshot, flink: FlinkVersion, drop: DroppedState
) -> Iterator[RestoreLine]:
    """Lines for operator states whose elements Flink does not find, from what is stored."""
    for operator in snapshot.operators:
        kinds = {info.name: info.kind for info in operator.operator_states}
        try:
            elements = operator.misplaced_elements()
        except UnreadableValueError as error:
            reason = f"elements share compressed chunks, and cannot be separated: {error.what}"
            yield RestoreLine(operator.label, Verdict.UNKNOWN, reason)
            continue
        for name in sorted(elements):
            if drop.takes(operator.label) or drop.takes(operator.label, name):
                continue
            reason = (
                f"elements share compressed chunks, as Flink 1.18 writes them: Flink "
                f"{version_text(flink)} reads the first element of a chunk for all of them, "
                f"without an error; give each a place of its own (dstl rewrite, dstl upgrade)"
            )
            yield RestoreLine(operator.label, Verdict.INCOMPATIBLE, reason, name, kinds[name])


def _shape(operator: OperatorSnapshot) -> set[tuple[str, str, str]]:
    """Names, kinds and types of the states."""
    return {
        (info.name, info.kind, info.type) for info in operator.states + operator.operator_states
    }


def _swapped(kind: str) -> str:
    return (
        f"SQL rows have no names of columns, and several columns are {kind}: if they swapped "
        f"places, Flink restores other values without an error (--columns-kept says they did not)"
    )


class DroppedState:
    """The operators and states that may be lost."""

    def __init__(self, snapshot: Snapshot, names: Sequence[str]) -> None:
        self._unused = list(dict.fromkeys(names))
        self._places: dict[tuple[str, str | None], str] = {}
        for name in self._unused:
            place = SnapshotNames(snapshot).operator_or_state("drop", name)
            self._places[place.operator.label, place.state] = name

    def takes(self, operator: str, state: str | None = None) -> bool:
        name = self._places.get((operator, state))
        if name in self._unused:
            self._unused.remove(name)
        return name is not None

    def check_used(self) -> None:
        """Raises ConfigError if a name matches no operator or state that would be lost."""
        if self._unused:
            raise ConfigError(
                f"{self._unused[0]!r} cannot be dropped: the new job has it, or the snapshot has "
                f"no such state; leave it out (drop, --drop)."
            )
