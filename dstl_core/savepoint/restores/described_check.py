"""Checks whether a job that a snapshot or a description shows restores a snapshot.

A savepoint describes the new job. Taken from the job without state and without input, it has the
ids, names and types of all state that the job registers when it starts. Flink reports no error for
state that it ignores and for values whose meaning changed; here such state is never compatible.

Source: ``Checkpoints.loadAndValidateCheckpoint``, ``StateSerializerProvider`` and the serializer
snapshots of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.state_meta import (
    KEY_SERIALIZER,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
)
from dstl_core.display import option_text
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.read.snapshot_names import SnapshotNames
from dstl_core.savepoint.restores.hidden_changes import (
    values_of_subclasses,
    verdict_on_removed_fields,
)
from dstl_core.savepoint.restores.job_match import (
    METADATA_OF_FLINK_2,
    JobDescription,
    JobOperator,
    OperatorFate,
    StateFate,
    match_job,
    rules_of,
)
from dstl_core.savepoint.restores.restore_result import (
    DroppedState,
    RestoreLine,
    RestoreResult,
    metadata_lines,
    misplaced_lines,
)
from dstl_core.state.tables.compatibility import (
    NEWEST,
    Verdict,
    columns_that_may_swap,
    parse_flink_version,
)


class DescribedJobCheck:
    """Checks a job that a snapshot or a description shows."""

    def __init__(
        self,
        snapshot: Snapshot,
        job: Snapshot | JobDescription,
        to: str | None,
        drop: Sequence[str],
        columns_kept: bool,
        classes: JobClasses,
    ) -> None:
        self._snapshot = snapshot
        self._expected = job if isinstance(job, Snapshot) else None
        self._job = JobDescription.from_snapshot(job) if isinstance(job, Snapshot) else job
        self._declared = {own.identifier.operator_id: own for own in self._job.operators}
        self._classes = classes
        self._rules = NEWEST if self._expected is None else rules_of(snapshot, self._expected)
        if to is not None:
            self._rules = replace(self._rules, to=parse_flink_version(to))
        self._flink = self._rules.version
        self._drop = DroppedState(snapshot, drop)
        self._columns_kept = columns_kept
        self._operators = {each.label: each for each in snapshot.operators}
        self._notes = [self._job.note] if self._job.note else []

    def run(self) -> RestoreResult:
        match = match_job(self._snapshot, self._job, self._rules)
        lines = metadata_lines(self._snapshot, self._flink)
        lines += misplaced_lines(self._snapshot, self._flink, self._drop)
        for fate in match.operators:
            operator = self._operators.get(fate.operator)
            if fate.fate == "matched" and operator is not None:
                lines += self._matched(fate, operator)
            elif fate.fate == "dropped" and fate.size:
                lines.append(self._lost(fate.operator))
            elif fate.fate == "new":
                self._notes.append(f"operator {fate.operator!r} is new and starts empty")
        lines += [self._undescribed(self._operators[label]) for label in match.unknown]
        self._drop.check_used()
        return RestoreResult(
            str(self._snapshot.folder),
            "a description" if self._expected is None else str(self._expected.folder),
            self._flink,
            lines,
            tuple(self._notes),
            match.operators,
        )

    def _undescribed(self, operator: OperatorSnapshot) -> RestoreLine:
        if self._drop.takes(operator.label):
            return _dropped_as_asked(operator.label)
        return RestoreLine(
            operator.label,
            Verdict.UNKNOWN,
            "not known whether the job has this operator; compare with a savepoint of the job",
            fate="unknown",
        )

    def _lost(self, label: str) -> RestoreLine:
        if self._drop.takes(label):
            return _dropped_as_asked(label)
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
        return RestoreLine(label, Verdict.INCOMPATIBLE, reason + advice, fate="dropped")

    def _with_states_of(self, operator: OperatorSnapshot) -> OperatorSnapshot | None:
        """The new operator that has the states of a lost one, if there is exactly one."""
        known = {each.operator_id for each in self._snapshot.operators}
        states = _shape(operator)
        matches = [
            candidate
            for candidate in ([] if self._expected is None else self._expected.operators)
            if candidate.operator_id not in known and states and _shape(candidate) == states
        ]
        return matches[0] if len(matches) == 1 else None

    def _matched(self, fate: OperatorFate, operator: OperatorSnapshot) -> Iterator[RestoreLine]:
        label = fate.operator
        for problem in fate.problems:
            yield RestoreLine(label, Verdict.INCOMPATIBLE, problem)
        for doubt in fate.doubts:
            yield RestoreLine(label, Verdict.UNKNOWN, doubt)
        key = operator.key_type
        if key is not None and (kind := self._may_swap(key.serializer)):
            yield RestoreLine(label, Verdict.UNKNOWN, f"key: {_swapped(kind)}")
        if self._declared[operator.operator_id].states is None and operator.state.state_size:
            reason = "the job does not show its states; compare with a savepoint of the job"
            yield RestoreLine(label, Verdict.UNKNOWN, reason, fate="unknown")
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
                if not meta.is_queue and line.verdict <= Verdict.AFTER_MIGRATION:
                    line = self._with_hidden(line, operator)
                kind = None if meta.is_queue else self._may_swap(meta.value_serializer)
                if line.verdict <= Verdict.AFTER_MIGRATION and kind is not None:
                    line = replace(line, verdict=Verdict.UNKNOWN, reason=_swapped(kind))
                yield line
            elif state.kind not in ("event-timer", "proc-timer", "queue"):
                self._notes.append(
                    f"state {state.name!r} of operator {label!r} is new and starts empty"
                )

    def _with_hidden(self, line: RestoreLine, operator: OperatorSnapshot) -> RestoreLine:
        """The line with what no header shows."""
        info = _info(operator, line.state)
        now = _types_of(self._declared[operator.operator_id], info.name)
        verdicts = [values_of_subclasses(operator, info)]
        verdicts += [
            verdict_on_removed_fields(serializer, now[role], self._classes)
            for role, serializer in info.meta.as_key_value().serializers
            if role in now
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
        return RestoreLine(label, verdict, reason, state.name, state.kind, "dropped")


def _dropped_as_asked(label: str) -> RestoreLine:
    reason = "dropped as asked: start the job with --allowNonRestoredState"
    return RestoreLine(label, Verdict.COMPATIBLE_AS_IS, reason, fate="dropped")


def _types_of(job: JobOperator, state: str) -> dict[str, AnySerializer]:
    """The types of a state that a job declares, by their role in a header."""
    declared = [each for each in job.states or () if each.name == state]
    return {
        role: serializer
        for state_of_job in declared
        for role, serializer in (
            (VALUE_SERIALIZER, state_of_job.type),
            (NAMESPACE_SERIALIZER, state_of_job.namespace),
            (KEY_SERIALIZER, state_of_job.map_key),
        )
        if serializer is not None
    }


def _info(operator: OperatorSnapshot, state: str | None) -> StateInfo:
    infos = operator.states + operator.operator_states
    return next(each for each in infos if each.name == state)


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
