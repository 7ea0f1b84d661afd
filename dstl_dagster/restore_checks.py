"""Asset checks of what a job would get from a snapshot: restore plan and types."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from dstl_core.errors import NoSuchOperatorError
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint import Snapshot
from dstl_dagster.checks import ERROR, Asset, lines_of
from dstl_dagster.sources import SnapshotSource
from dstl_dagster.storage_resource import DstlStorageResource


@dataclass(frozen=True)
class ExpectedOperator:
    """What a job expects of one operator of a snapshot.

    Args:
        uid: Its uid.
        states: State name to type, as ``dstl inspect`` prints it.
        max_parallelism: Fixed by the job; None takes that of the snapshot.
    """

    uid: str
    states: Mapping[str, str] = field(default_factory=dict)
    max_parallelism: int | None = None


ExpectedJob = Callable[[DstlStorageResource], list[ExpectedOperator]]


def expected_of(template: SnapshotSource) -> ExpectedJob:
    """A job as an earlier snapshot of it shows it."""

    def describe(storage: DstlStorageResource) -> list[ExpectedOperator]:
        return [
            ExpectedOperator(operator.label, _types(operator), operator.max_parallelism)
            for operator in Snapshot.load(template(storage)).operators
        ]

    return describe


def build_restore_plan_check(
    job: list[ExpectedOperator] | ExpectedJob,
    *,
    asset: Asset,
    source: SnapshotSource,
    name: str = "restore_plan",
    allow_dropped: bool = False,
    allow_new: bool = True,
    blocking: bool = False,
) -> dg.AssetChecksDefinition:
    """What would happen if a job restored from a snapshot: matched, dropped and new operators.

    State that no operator of the job claims would be dropped, and Flink refuses that unless it is
    told otherwise. The key groups of an operator cannot change.

    Args:
        job: The operators of the job, or ``expected_of`` a snapshot of it.
        asset: What is checked.
        source: The snapshot.
        name: Of the check.
        allow_dropped: Whether operators may lose their state.
        allow_new: Whether operators may start empty.
        blocking: Whether a failure stops what comes after the asset.
    """

    @dg.asset_check(asset=asset, name=name, blocking=blocking)
    def restore_plan(storage: DstlStorageResource) -> dg.AssetCheckResult:
        snapshot = Snapshot.load(source(storage))
        plan = plan_restore(snapshot, job(storage) if callable(job) else job)
        problems = [*plan.conflicts]
        problems += [] if allow_dropped else [f"{uid} would be dropped" for uid in plan.dropped]
        problems += [] if allow_new else [f"{uid} would start empty" for uid in plan.new]
        return dg.AssetCheckResult(
            passed=not problems,
            severity=ERROR,
            metadata={
                "matched": lines_of(plan.matched),
                "dropped": lines_of(plan.dropped),
                "new": lines_of(plan.new),
                "problems": lines_of(problems),
            },
        )

    return restore_plan


@dataclass(frozen=True)
class OperatorPlan:
    """Operators by what a restore does to them, and what stands against it."""

    matched: list[str]
    dropped: list[str]
    new: list[str]
    conflicts: list[str]


def plan_restore(snapshot: Snapshot, job: list[ExpectedOperator]) -> OperatorPlan:
    """Matches operators by id, and fixed max parallelism. Types are not compared."""
    matched, new, conflicts = [], [], []
    claimed = set()
    for expected in job:
        try:
            found = snapshot[expected.uid]
        except NoSuchOperatorError:
            new.append(expected.uid)
            continue
        claimed.add(found.operator_id)
        matched.append(expected.uid)
        if expected.max_parallelism not in (None, found.max_parallelism):
            conflicts.append(
                f"{expected.uid} has {found.max_parallelism} key groups, the job "
                f"{expected.max_parallelism}"
            )
    dropped = [each.label for each in snapshot.operators if each.operator_id not in claimed]
    return OperatorPlan(matched, dropped, new, conflicts)


def build_schema_check(
    job: list[ExpectedOperator] | ExpectedJob,
    *,
    asset: Asset,
    source: SnapshotSource,
    name: str = "schema",
    severity: dg.AssetCheckSeverity = ERROR,
    blocking: bool = False,
) -> dg.AssetChecksDefinition:
    """The states that both a job and a snapshot have are of the same kind and type.

    A type that differs in any way is a finding, also where Flink could migrate it.
    """

    @dg.asset_check(asset=asset, name=name, blocking=blocking)
    def schema(storage: DstlStorageResource) -> dg.AssetCheckResult:
        snapshot = Snapshot.load(source(storage))
        expected = job(storage) if callable(job) else job
        ids = {each.operator_id for each in snapshot.operators}
        problems = []
        compared = 0
        for operator in expected:
            if OperatorID.for_uid(operator.uid) not in ids:
                continue
            found = _types(snapshot[f"uid:{operator.uid}"])
            for state in sorted(found.keys() & operator.states.keys()):
                compared += 1
                if found[state] != operator.states[state]:
                    problems.append(
                        f"{operator.uid}.{state} is {found[state]}, the job expects "
                        f"{operator.states[state]}"
                    )
        return dg.AssetCheckResult(
            passed=not problems,
            severity=severity,
            metadata={"states_compared": compared, "problems": lines_of(problems)},
        )

    return schema


def _types(operator: Any) -> dict[str, str]:
    infos = operator.states + operator.operator_states
    return {info.name: f"{info.kind} {info.type}" for info in infos}
