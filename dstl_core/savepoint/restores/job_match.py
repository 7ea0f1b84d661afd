"""Matches the operators and states of a snapshot with those of a job, and compares their types.

A job is a description. A template snapshot and a plan of Flink's REST API become one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.state_meta import (
    KEY_SERIALIZER,
    NAMESPACE_SERIALIZER,
    BackendStateType,
)
from dstl_core.errors import ConfigError
from dstl_core.model.ids import OperatorID, OperatorIdentifier, is_id_hex
from dstl_core.model.job_vertex import (
    VertexMember,
    advice_for,
    mixed_vertices,
    text_of_mixed,
)
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.state.tables.compatibility import (
    FLINK_VERSIONS,
    NEWEST,
    Compatibility,
    Rules,
    Verdict,
    compatibility_of,
    compatibility_of_state,
)

Fate = Literal["matched", "dropped", "new", "unknown"]
"""Whether a job has an operator or a state of a snapshot."""


@dataclass(frozen=True)
class JobState:
    """A state that a job declares. ``type`` is that of the whole value; None skips the check."""

    name: str
    kind: str | None = None
    type: AnySerializer | None = None
    namespace: AnySerializer | None = None
    map_key: AnySerializer | None = None
    """The type of the keys of broadcast state."""
    is_asynchronous: bool | None = None


@dataclass(frozen=True)
class JobOperator:
    """An operator of a job. A field that is None is not checked.

    ``max_parallelism_configured`` says whether the job sets the max parallelism, so that Flink
    refuses another. A snapshot does not record it.
    """

    identifier: OperatorIdentifier
    key_type: AnySerializer | None = None
    states: Sequence[JobState] | None = None
    max_parallelism: int | None = None
    parallelism: int | None = None
    max_parallelism_configured: bool = True


@dataclass(frozen=True)
class JobDescription:
    """A job as a list of operators. ``is_complete`` says that it has no other operators."""

    operators: Sequence[JobOperator]
    is_complete: bool = True
    note: str = ""

    @classmethod
    def from_snapshot(cls, template: Snapshot) -> JobDescription:
        """Describes the job that wrote a snapshot."""
        return cls([_job_operator(each) for each in template.operators])

    @classmethod
    def from_rest_plan(cls, plan: Mapping[str, Any]) -> JobDescription:
        """Describes a job by the answer of ``/jobs/:jobid/plan`` of Flink's REST API.

        A plan names only the first operator of each chain. The other operators of a chain count as
        unknown, not as dropped.

        Raises:
            ConfigError: It has another form.
        """
        nodes = plan.get("plan", plan).get("nodes")
        if not isinstance(nodes, list) or not all(
            isinstance(node, Mapping) and is_id_hex(str(node.get("id"))) for node in nodes
        ):
            raise ConfigError(
                "Not a job plan: expected Flink's /jobs/:jobid/plan with nodes and their ids."
            )
        operators = [
            JobOperator(
                OperatorIdentifier.for_uid_hash(node["id"]), parallelism=node.get("parallelism")
            )
            for node in nodes
        ]
        note = "a job plan names the first operator of each chain only"
        return cls(operators, is_complete=False, note=note)


def _job_operator(operator: OperatorSnapshot) -> JobOperator:
    key = operator.key_type
    return JobOperator(
        OperatorIdentifier(operator.operator_id, operator.uid or None),
        None if key is None else key.serializer,
        [_job_state(info) for info in operator.states + operator.operator_states],
        operator.max_parallelism,
        operator.parallelism,
        max_parallelism_configured=False,
    )


def _job_state(info: StateInfo) -> JobState:
    meta = info.meta.as_key_value()
    serializers = dict(meta.serializers)
    return JobState(
        info.name,
        info.kind,
        meta.value_serializer,
        serializers.get(NAMESPACE_SERIALIZER),
        serializers.get(KEY_SERIALIZER),
        info.meta.backend_state_type is BackendStateType.KEY_VALUE_V2,
    )


@dataclass(frozen=True)
class StateFate:
    """The result of a restore for one state."""

    name: str
    kind: str
    fate: Fate
    compatibility: Compatibility


@dataclass(frozen=True)
class OperatorFate:
    """The result of a restore for one operator. ``size`` is in bytes; a new operator has 0."""

    operator: str
    fate: Fate
    size: int
    states: Sequence[StateFate] = ()
    problems: Sequence[str] = ()
    doubts: Sequence[str] = ()
    """Possible problems that no file can confirm."""


@dataclass(frozen=True)
class JobMatch:
    """The operators of a snapshot and of a job.

    Args:
        operators: Those whose fate is known.
        unknown: Labels of those that an incomplete description may leave out.
    """

    operators: Sequence[OperatorFate]
    unknown: Sequence[str] = ()


def match_job(snapshot: Snapshot, job: JobDescription, rules: Rules = NEWEST) -> JobMatch:
    """Finds the operators that a job restores, drops or starts empty, and compares their types.

    It reads headers only.

    Args:
        snapshot: The snapshot to restore.
        job: The job.
        rules: The version of Flink that restores, and the one that wrote the snapshot.
    """
    by_id: dict[OperatorID, JobOperator] = {
        job_operator.identifier.operator_id: job_operator for job_operator in job.operators
    }
    # A job plan of Flink's REST API names one operator of each vertex.
    mixed = mixed_numbers(snapshot, by_id) if job.is_complete else {}
    fates, unknown = [], []
    for operator in snapshot.operators:
        declared = by_id.pop(operator.operator_id, None)
        if declared is not None:
            fates.append(_matched(operator, declared, rules, mixed.get(operator.operator_id)))
        elif job.is_complete:
            fates.append(OperatorFate(operator.label, "dropped", operator.state.state_size))
        else:
            unknown.append(operator.label)
    fates += [
        OperatorFate(str(job_operator.identifier), "new", 0) for job_operator in by_id.values()
    ]
    return JobMatch(fates, unknown)


METADATA_OF_FLINK_2 = 5
"""The first version of ``_metadata`` that Flink 1 never writes."""


def rules_of(snapshot: Snapshot, job: Snapshot) -> Rules:
    """The rules with which the Flink that wrote ``job`` restores a snapshot.

    They are those of 1.20 or of the newest known version.
    """
    to = FLINK_VERSIONS[0] if line_of(job) == 1 else None
    return Rules(to, line_of(snapshot))


def line_of(snapshot: Snapshot) -> int | None:
    """The major version of the Flink that wrote the values.

    None if dstl wrote the metadata, since dstl writes versions of both.
    """
    if snapshot.metadata.version >= METADATA_OF_FLINK_2:
        return 2
    return 1 if snapshot.file.sidecar is None else None


def mixed_numbers(
    snapshot: Snapshot, job: Mapping[OperatorID, JobOperator]
) -> Mapping[OperatorID, str]:
    """The doubt about keyed operators that may share a vertex with others of other numbers.

    An operator whose parallelism in the job is not known counts with the one in the snapshot.
    """
    members = {}
    for operator in snapshot.operators:
        declared = job.get(operator.operator_id)
        if declared is not None:
            parallelism = declared.parallelism or operator.parallelism
            members[operator.operator_id] = VertexMember(
                operator.label,
                operator.max_parallelism,
                (declared.max_parallelism, parallelism),
                bool(operator.keyed_handles),
            )
    texts = {
        id(member): text_of_mixed(group)
        for group in mixed_vertices(members.values())
        for member in group
        if member.is_keyed
    }
    return {key: texts[id(each)] for key, each in members.items() if id(each) in texts}


def _matched(
    operator: OperatorSnapshot, job: JobOperator, rules: Rules, mixed: str | None
) -> OperatorFate:
    problems, doubts = _problems(operator, job), _doubts(operator, job)
    if mixed is not None:
        doubts.append(mixed)
    stored = operator.key_type
    if stored is not None and job.key_type is not None:
        key = compatibility_of(stored.serializer, job.key_type, rules)
        if key.verdict is Verdict.UNKNOWN:
            doubts.append(f"key: {key.reason}")
        elif key.verdict is not Verdict.COMPATIBLE_AS_IS:
            # Flink refuses to migrate keys: their key groups would change.
            problems.append(f"key: {key.reason}")
    states = [] if job.states is None else _states(operator, job.states, rules)
    size = operator.state.state_size
    return OperatorFate(operator.label, "matched", size, states, problems, doubts)


def _doubts(operator: OperatorSnapshot, job: JobOperator) -> list[str]:
    stored, wanted = operator.max_parallelism, job.max_parallelism
    if wanted in (None, stored) or job.max_parallelism_configured:
        return []
    return [
        f"the max parallelism is {stored}, and {wanted} in the new job: Flink refuses it if the "
        f"job sets it, else takes that of the savepoint; {advice_for(stored, wanted)}"
    ]


def _problems(operator: OperatorSnapshot, job: JobOperator) -> list[str]:
    problems = []
    stored, wanted = operator.max_parallelism, job.max_parallelism
    if wanted not in (None, stored) and job.max_parallelism_configured:
        problems.append(
            f"max parallelism {stored} cannot become {wanted} on restore; "
            f"{advice_for(stored, wanted)}"
        )
    if job.parallelism is not None and job.parallelism > operator.max_parallelism:
        problems.append(
            f"parallelism {job.parallelism} is above the max parallelism {operator.max_parallelism}"
        )
    return problems


def _states(
    operator: OperatorSnapshot, declared: Sequence[JobState], rules: Rules
) -> list[StateFate]:
    stored = {info.name: info for info in operator.states + operator.operator_states}
    fates = []
    for state in declared:
        info = stored.pop(state.name, None)
        if info is None:
            fates.append(StateFate(state.name, state.kind or "", "new", Compatibility(Verdict(0))))
        else:
            fates.append(StateFate(info.name, info.kind, "matched", _fits(info, state, rules)))
    # Undeclared state of a matched operator is carried along silently, as Flink does.
    fates += [
        StateFate(info.name, info.kind, "dropped", Compatibility(Verdict(0)))
        for info in stored.values()
        if not info.meta.is_queue
    ]
    return fates


def _fits(info: StateInfo, state: JobState, rules: Rules) -> Compatibility:
    if state.kind not in (None, info.kind):
        return Compatibility(
            Verdict.INCOMPATIBLE, f"the kind changed from {info.kind} to {state.kind}"
        )
    if state.type is None:
        return Compatibility(Verdict.UNKNOWN, "the job does not say its type")
    stored = _job_state(info)
    assert stored.type is not None  # every state in a file has a type
    verdicts = [
        compatibility_of_state(stored.type, state.type, is_map=info.kind == "map", rules=rules)
    ]
    if stored.namespace is not None and state.namespace is not None:
        verdicts.append(_of_namespace(compatibility_of(stored.namespace, state.namespace, rules)))
    if stored.map_key is not None and state.map_key is not None:
        key = compatibility_of(stored.map_key, state.map_key, rules)
        verdicts.append(replace(key, reason=f"key: {key.reason}" if key.reason else ""))
    if state.is_asynchronous not in (None, stored.is_asynchronous):
        verdicts.append(
            Compatibility(Verdict.UNKNOWN, "one of the jobs has asynchronous state, the other not")
        )
    return max(verdicts, key=lambda compatibility: compatibility.verdict)


def _of_namespace(compatibility: Compatibility) -> Compatibility:
    """Namespaces never migrate. Keys of broadcast state do."""
    if compatibility.verdict is Verdict.AFTER_MIGRATION:
        return Compatibility(
            Verdict.INCOMPATIBLE, f"the namespace cannot migrate: {compatibility.reason}"
        )
    return replace(
        compatibility, reason=f"namespace: {compatibility.reason}" if compatibility.reason else ""
    )
