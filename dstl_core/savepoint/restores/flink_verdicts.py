"""Combines the answers of a real Flink with the verdicts of the rules."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers import AnySerializer, TtlSerializer
from dstl_core.codec.serializers.base import SnapshotContext, write_snapshot
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.serializers.structs import EnumSerializer
from dstl_core.codec.serializers.unknown import read_with_unknown
from dstl_core.codec.state_meta import BackendStateType
from dstl_core.errors import FormatError, NotInColumnsError, UnreadableValueError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.read.stored_records import read_records
from dstl_core.savepoint.restores.flink_answers import Answer, FlinkInstallation, Question
from dstl_core.savepoint.restores.hidden_changes import (
    holds,
    values_of_subclasses,
    verdict_on_removed_fields,
)
from dstl_core.savepoint.restores.restore_result import RestoreLine
from dstl_core.state.tables.compatibility import (
    Compatibility,
    Rules,
    Verdict,
    compatibility_of_state,
)
from dstl_core.state.tables.convertible import parts_of

VOID_NAMESPACE = "VoidNamespace"
_SINGLE_VALUES = ("value", "reducing", "aggregating")
_KINDS = (*_SINGLE_VALUES, "list", "map")
_MOST_VALUES = 10_000
_MOST_BYTES = 16 << 20
_MOST_BYTES_TOGETHER = 256 << 20
"""Of the values of all states. The states after them are asked about without values."""
_WHOLE = 64 << 20
"""Up to this size the records of a state are read at once, above it by key group."""


@dataclass(frozen=True)
class StateOfJob:
    """A state of a snapshot and the class of the job that declares it.

    Args:
        function: None if it is not known.
        is_derivable: Whether the rules lacked nothing but its declaration, so that Flink decides.
    """

    operator: OperatorSnapshot
    info: StateInfo
    function: str | None
    is_derivable: bool


def by_flink(
    lines: Sequence[RestoreLine],
    states: Mapping[tuple[str, str | None], StateOfJob],
    flink: FlinkInstallation,
    jars: Sequence[str | os.PathLike[str]],
    rules: Rules,
    classes: JobClasses,
) -> list[RestoreLine]:
    """The lines with what Flink says of their states. It runs code of the jars.

    Args:
        lines: The verdicts of the rules.
        states: Operator and state to what is known of it.
        flink: The Flink to ask.
        jars: Jars of the job.
        rules: The versions of Flink.
        classes: The classes in the jars.

    Raises:
        ConfigError: Java or Flink does not run.
        FormatError: The snapshot is damaged.
    """
    answered = list(lines)
    questions: list[tuple[int, StateOfJob, Question]] = []
    room = _MOST_BYTES_TOGETHER
    for at, line in enumerate(lines):
        state = states.get((line.operator, line.state))
        question = None if state is None else _question(state, min(room, _MOST_BYTES))
        if state is not None and question is not None:
            room -= sum(map(len, question.values))
            questions.append((at, state, question))
    if questions:
        answers = flink.ask([each for _, _, each in questions], jars)
        for (at, state, question), answer in zip(questions, answers, strict=True):
            name = f"Flink {flink.release}"
            if answer.word == "incompatible":
                answered[at] = _refused(answered[at], state, answer, name, rules, classes)
            elif answer.word in ("compatible", "migration"):
                answered[at] = _agreed(answered[at], state, answer, name, rules, classes)
            else:
                answered[at] = _merged(answered[at], question, answer, name)
    return answered


def _question(state: StateOfJob, most_bytes: int) -> Question | None:
    """None if no class tells what the state is: timers, windows, operator state, time to live."""
    info = state.info
    if info.meta.backend_state_type is not BackendStateType.KEY_VALUE or info.kind not in _KINDS:
        return None
    meta = info.meta.as_key_value()
    stored = meta.value_serializer
    is_plain = meta.namespace_serializer.type_name == VOID_NAMESPACE
    if not is_plain or holds(stored, TtlSerializer):
        return None
    value_class = None
    if state.function is None:
        value_class = _class_of(stored)
        if value_class is None:
            return None
    out = DataOutput()
    write_snapshot(out, stored)
    return Question(
        state.function,
        info.name,
        info.kind,
        value_class,
        out.to_bytes(),
        _values(state, most_bytes),
    )


def _class_of(stored: AnySerializer) -> str | None:
    if isinstance(stored, PojoSerializer):
        return stored.pojo_class
    return stored.enum_class if isinstance(stored, EnumSerializer) else None


def _values(state: StateOfJob, most_bytes: int) -> list[bytes]:
    operator, info = state.operator, state.info
    if info.kind not in _SINGLE_VALUES or most_bytes <= 0:
        return []
    groups = KeyGroupRange.of(0, operator.max_parallelism - 1)
    parts = [groups]
    if operator.state.state_size > _WHOLE:
        parts = [KeyGroupRange.of(each, each) for each in groups]
    values: list[bytes] = []
    size = 0
    try:
        for part in parts:
            records = read_records(operator, info.meta, part)
            for row in range(len(records)):
                values.append(records.value_bytes(row))
                size += len(values[-1])
                if len(values) >= _MOST_VALUES or size >= most_bytes:
                    return values
    except (NotInColumnsError, UnreadableValueError):
        return values
    return values


def _merged(line: RestoreLine, question: Question, answer: Answer, flink: str) -> RestoreLine:
    """Flink refuses the state, or could not be asked."""
    said = f": {answer.sentence}" if answer.sentence else ""
    match answer.word:
        case "unreadable":
            verdict_of_flink = f"{flink} cannot load the state's header{said}"
            return replace(line, verdict=Verdict.INCOMPATIBLE, reason=verdict_of_flink)
        case "kind":
            verdict_of_flink = (
                f"the kind changed from {question.kind} to {answer.sentence}, says {flink}"
            )
            return replace(line, verdict=Verdict.INCOMPATIBLE, reason=verdict_of_flink)
        case "fails":
            verdict_of_flink = f"{flink} fails at value {answer.read + 1} of the state{said}"
            return replace(line, verdict=Verdict.INCOMPATIBLE, reason=verdict_of_flink)
    if line.verdict is Verdict.UNKNOWN:
        return replace(line, reason=f"{line.reason}; {flink} was not asked{said}")
    return line


def _refused(
    line: RestoreLine,
    state: StateOfJob,
    answer: Answer,
    flink: str,
    rules: Rules,
    classes: JobClasses,
) -> RestoreLine:
    reason = line.reason
    if state.is_derivable:
        # The reason that stands there is that the declaration was not known.
        verdict_of_rules = _by_rules(state, answer, rules, classes)
        reason = verdict_of_rules.reason if verdict_of_rules.verdict is Verdict.INCOMPATIBLE else ""
    verdict_of_flink = f"{flink} refuses its type" + (f": {reason}" if reason else "")
    return replace(line, verdict=Verdict.INCOMPATIBLE, reason=verdict_of_flink)


def _agreed(
    line: RestoreLine,
    state: StateOfJob,
    answer: Answer,
    flink: str,
    rules: Rules,
    classes: JobClasses,
) -> RestoreLine:
    """Flink takes the type. That does not show what values mean afterwards."""
    is_same = answer.word == "compatible"
    verdict = Verdict.COMPATIBLE_AS_IS if is_same else Verdict.AFTER_MIGRATION
    text = "takes the type as it is" if is_same else "migrates the type"
    count = f" and reads {answer.read} values" if answer.read else ""
    verdict_of_flink = f"{flink} {text}{count}"
    if line.verdict <= Verdict.AFTER_MIGRATION and not (state.info.kind == "map" and not is_same):
        return replace(line, verdict=verdict, reason=verdict_of_flink)
    if line.verdict is Verdict.UNKNOWN and state.is_derivable:
        verdict_of_rules = _by_rules(state, answer, rules, classes)
        worst = max(verdict, verdict_of_rules.verdict)
        if worst <= Verdict.AFTER_MIGRATION:
            return replace(line, verdict=worst, reason=verdict_of_flink)
        line = replace(line, verdict=worst, reason=verdict_of_rules.reason)
    if line.verdict <= Verdict.AFTER_MIGRATION:
        return line
    return replace(line, reason=f"{line.reason} ({verdict_of_flink}, which does not show this)")


def _by_rules(
    state: StateOfJob, answer: Answer, rules: Rules, classes: JobClasses
) -> Compatibility:
    """The rules for the type that Flink made: they know what restores with another meaning."""
    stored = state.info.meta.as_key_value().value_serializer
    registry = state.operator.snapshot.registry
    try:
        wanted = read_with_unknown(
            DataInput(answer.wanted), SnapshotContext(registry), _read_snapshot, exact=True
        )
    except FormatError:
        return Compatibility(Verdict.UNKNOWN, "the job declares a type that dstl cannot read")
    if any(
        isinstance(part, PojoSerializer) and (part.registered or part.others)
        for part in parts_of(stored)
    ):
        return Compatibility(Verdict.UNKNOWN, "the subclasses in the state may have changed")
    is_map = state.info.kind == "map"
    verdicts = [
        compatibility_of_state(stored, wanted, is_map=is_map, rules=rules),
        verdict_on_removed_fields(stored, wanted, classes),
        values_of_subclasses(state.operator, state.info),
    ]
    return max(verdicts, key=lambda compatibility: compatibility.verdict)


def _read_snapshot(data: DataInput, context: SnapshotContext) -> AnySerializer:
    return context.read_snapshot(data)
