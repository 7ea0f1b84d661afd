"""Asset checks of a future restore: whether operators match and types fit."""

from collections.abc import Callable, Iterator

import dagster as dg

from dstl_core.savepoint.check.restore_plan import (
    JobDescription,
    OperatorFate,
    RestorePlan,
    StateFate,
    plan_restore,
)
from dstl_core.state.tables.compatibility import Verdict
from dstl_dagster.checks.store_checks import ERROR, Asset, lines_of
from dstl_dagster.resources.storage_resource import DstlStorageResource
from dstl_dagster.snapshots.typed_source import SnapshotSource, load_from

ExpectedJob = JobDescription | Callable[[DstlStorageResource], JobDescription]
"""A job, or a function that finds it when the check runs."""


def expected_of(template: SnapshotSource) -> ExpectedJob:
    """The job that wrote a snapshot."""
    return lambda storage: JobDescription.from_snapshot(load_from(template, storage))


def build_restore_plan_check(
    job: ExpectedJob,
    *,
    asset: Asset,
    source: SnapshotSource,
    name: str = "restore_plan",
    allow_dropped: bool = False,
    allow_new: bool = True,
    blocking: bool = False,
) -> dg.AssetChecksDefinition:
    """Checks whether a job can restore a snapshot; shows matched, dropped and new operators.

    The check fails if Flink would refuse the restore: for state that no operator of the job has
    (unless ``allow_dropped``), another max parallelism, another key, types that cannot evolve. It
    warns of ``doubts``, which no file can settle: the max parallelism of a snapshot of the job may
    be one that the job sets.

    Args:
        job: The job, ``expected_of`` a snapshot of it, or a function that asks Flink
            (``JobDescription.from_rest_plan``).
        asset: The asset that is checked.
        source: The snapshot.
        name: Name of the check.
        allow_dropped: Whether operators may lose their state.
        allow_new: Whether operators may start empty.
        blocking: Whether a failure stops downstream assets.
    """

    @dg.asset_check(asset=asset, name=name, blocking=blocking)
    def restore_plan(storage: DstlStorageResource) -> dg.AssetCheckResult:
        plan = _plan(job, source, storage)
        by_fate: dict[str, list[OperatorFate]] = {"matched": [], "dropped": [], "new": []}
        for operator in plan.operators:
            by_fate[operator.fate].append(operator)
        problems = list(plan.problems)
        if not allow_dropped:
            lost = [each for each in by_fate["dropped"] if each.size]
            problems += [f"{each.operator} would lose {each.size:,} bytes" for each in lost]
        if not allow_new:
            problems += [f"{each.operator} would start empty" for each in by_fate["new"]]
        fates = {
            fate: lines_of([f"{each.operator}, {each.size:,} bytes" for each in states])
            for fate, states in by_fate.items()
        }
        return dg.AssetCheckResult(
            passed=not problems and not plan.doubts,
            severity=ERROR if problems else dg.AssetCheckSeverity.WARN,
            metadata={
                **fates,
                "problems": lines_of(problems),
                "doubts": lines_of(plan.doubts),
                "notes": lines_of(plan.notes),
            },
        )

    return restore_plan


def build_schema_check(
    job: ExpectedJob,
    *,
    asset: Asset,
    source: SnapshotSource,
    name: str = "schema",
    allow_migration: bool = True,
    severity: dg.AssetCheckSeverity = ERROR,
    blocking: bool = False,
) -> dg.AssetChecksDefinition:
    """Checks that the types of a job fit those of a snapshot, by Flink's rules of evolution.

    It compares the states that both have. Types that only the job's own classes can compare are
    counted; they do not fail the check.

    Args:
        job: See ``build_restore_plan_check``.
        asset: The asset that is checked.
        source: The snapshot.
        name: Name of the check.
        allow_migration: Whether the check passes if Flink has to convert values.
        severity: WARN never stops downstream assets.
        blocking: Whether a failure stops downstream assets.
    """

    @dg.asset_check(asset=asset, name=name, blocking=blocking)
    def schema(storage: DstlStorageResource) -> dg.AssetCheckResult:
        compared = list(_compared(_plan(job, source, storage)))
        worst = Verdict.AFTER_MIGRATION if not allow_migration else Verdict.INCOMPATIBLE
        problems = [
            f"{operator.operator}.{state.name}: {state.compatibility.reason}"
            for operator, state in compared
            if state.compatibility.verdict in (worst, Verdict.INCOMPATIBLE)
        ]
        verdicts = [state.compatibility.verdict for _, state in compared]
        return dg.AssetCheckResult(
            passed=not problems,
            severity=severity,
            metadata={
                "states_compared": len(compared),
                "after_migration": verdicts.count(Verdict.AFTER_MIGRATION),
                "unknown": verdicts.count(Verdict.UNKNOWN),
                "problems": lines_of(problems),
            },
        )

    return schema


def _plan(job: ExpectedJob, source: SnapshotSource, storage: DstlStorageResource) -> RestorePlan:
    expected = job if isinstance(job, JobDescription) else job(storage)
    return plan_restore(load_from(source, storage), expected)


def _compared(plan: RestorePlan) -> Iterator[tuple[OperatorFate, StateFate]]:
    for operator in plan.operators:
        for state in operator.states:
            if state.fate == "matched":
                yield operator, state
