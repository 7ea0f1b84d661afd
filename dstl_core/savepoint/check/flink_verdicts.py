"""What real Flink says of the states of a job, and what becomes of the verdicts of the rules."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.serializers import AnySerializer, TtlSerializer
from dstl_core.codec.serializers.avro import AvroSerializer
from dstl_core.codec.serializers.base import write_snapshot
from dstl_core.codec.serializers.opaque import KryoSerializer
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.serializers.structs import EnumSerializer
from dstl_core.errors import NotInColumnsError, UnreadableValueError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.check.compatibility import Verdict
from dstl_core.savepoint.check.flink_answers import Answer, FlinkInstallation, Question
from dstl_core.savepoint.check.hidden_changes import holds, parts_of, values_of_subclasses
from dstl_core.savepoint.check.restore_check import RestoreLine
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.read.stored_records import read_records

_SINGLE_VALUES = ("value", "reducing", "aggregating")
_KINDS = (*_SINGLE_VALUES, "list", "map")
_MOST_VALUES = 10_000
_MOST_BYTES = 16 << 20
_WHOLE = 64 << 20
"""Up to this size the records of a state are read at once, above it by key group."""


@dataclass(frozen=True)
class StateOfJob:
    """A state of a snapshot and the class of the job that declares it.

    Args:
        function: None if it is not known.
        is_derivable: Whether the rules knew all but its type, so that Flink's type decides.
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
) -> list[RestoreLine]:
    """The lines with what Flink says of their states. It runs code of the jars.

    Args:
        lines: The verdicts of the rules.
        states: Operator and state to what is known of it.
        flink: The Flink to ask.
        jars: Jars of the job.

    Raises:
        ConfigError: Java or Flink does not run.
        FormatError: The snapshot is damaged.
    """
    found = list(lines)
    questions: list[tuple[int, StateOfJob, Question]] = []
    for at, line in enumerate(lines):
        state = states.get((line.operator, line.state))
        question = None if state is None else _question(state)
        if state is not None and question is not None:
            questions.append((at, state, question))
    if questions:
        answers = flink.ask([each for _, _, each in questions], jars)
        for (at, state, question), answer in zip(questions, answers, strict=True):
            found[at] = _merged(found[at], state, question, answer, f"Flink {flink.release}")
    return found


def _question(state: StateOfJob) -> Question | None:
    """None if no class tells what the state is: timers, windows, operator state, time to live."""
    info = state.info
    if info.kind not in _KINDS:
        return None
    stored = info.meta.as_key_value().value_serializer
    if holds(stored, TtlSerializer):
        return None
    value_class = None
    if state.function is None:
        value_class = _class_of(stored)
        if value_class is None:
            return None
    out = DataOutput()
    write_snapshot(out, stored)
    return Question(state.function, info.name, value_class, out.to_bytes(), _values(state))


def _class_of(stored: AnySerializer) -> str | None:
    if isinstance(stored, PojoSerializer):
        return stored.pojo_class
    return stored.enum_class if isinstance(stored, EnumSerializer) else None


def _values(state: StateOfJob) -> list[bytes]:
    operator, info = state.operator, state.info
    if info.kind not in _SINGLE_VALUES:
        return []
    groups = KeyGroupRange.of(0, operator.max_parallelism - 1)
    parts = [groups]
    if operator.state.state_size > _WHOLE:
        parts = [KeyGroupRange.of(each, each) for each in groups]
    found: list[bytes] = []
    size = 0
    try:
        for part in parts:
            records = read_records(operator, info.meta, part)
            for row in range(len(records)):
                found.append(records.value_bytes(row))
                size += len(found[-1])
                if len(found) >= _MOST_VALUES or size >= _MOST_BYTES:
                    return found
    except (NotInColumnsError, UnreadableValueError):
        return found
    return found


def _merged(
    line: RestoreLine, state: StateOfJob, question: Question, answer: Answer, flink: str
) -> RestoreLine:
    said = f": {answer.sentence}" if answer.sentence else ""
    match answer.word:
        case "incompatible":
            own = f"{flink} refuses its type" + (f" ({line.reason})" if line.reason else "")
            return replace(line, verdict=Verdict.INCOMPATIBLE, reason=own)
        case "unreadable":
            own = f"{flink} cannot load the state's header{said}"
            return replace(line, verdict=Verdict.INCOMPATIBLE, reason=own)
        case "fails":
            own = f"{flink} fails at value {answer.read + 1} of the state{said}"
            return replace(line, verdict=Verdict.INCOMPATIBLE, reason=own)
        case "compatible" | "migration":
            return _agreed(line, state, question, answer, flink)
    if line.verdict is Verdict.UNKNOWN:
        return replace(line, reason=f"{line.reason}; {flink} was not asked{said}")
    return line


def _agreed(
    line: RestoreLine, state: StateOfJob, question: Question, answer: Answer, flink: str
) -> RestoreLine:
    """Flink takes the type. That does not show what values mean afterwards."""
    is_same = answer.word == "compatible"
    verdict = Verdict.COMPATIBLE_AS_IS if is_same else Verdict.AFTER_MIGRATION
    text = "takes the type as it is" if is_same else "migrates the type"
    count = f" and reads {answer.read} values" if answer.read else ""
    own = f"{flink} {text}{count}"
    if line.verdict <= Verdict.AFTER_MIGRATION and not (state.info.kind == "map" and not is_same):
        return replace(line, verdict=verdict, reason=own)
    if line.verdict is Verdict.UNKNOWN and state.is_derivable and question.values:
        stored = state.info.meta.as_key_value().value_serializer
        hidden = values_of_subclasses(state.operator, state.info)
        if hidden.verdict is Verdict.COMPATIBLE_AS_IS and not _hides_values(stored):
            return replace(line, verdict=verdict, reason=own)
    if line.verdict <= Verdict.AFTER_MIGRATION:
        return line
    return replace(line, reason=f"{line.reason} ({own}, which does not show this)")


def _hides_values(stored: AnySerializer) -> bool:
    """Whether a class of the job may read values in another way, without an error."""
    return holds(stored, KryoSerializer, AvroSerializer) or any(
        isinstance(each, PojoSerializer) and bool(each.registered or each.others)
        for each in parts_of(stored)
    )
