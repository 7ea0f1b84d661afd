"""Asset checks of a future restore: whether operators match and types fit. They need no Spark."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import dagster as dg

from dstl_core.savepoint.check.restore_plan import (
    JobDescription,
    OperatorFate,
    RestorePlan,
    StateFate,
    plan_restore,
)
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.state.tables.compatibility import Verdict
from dstl_dagster.checks.snapshot_check import (
    ERROR,
    WARN,
    Asset,
    Severity,
    SnapshotCheck,
    check_source,
    lines_of,
    severity_of,
)
from dstl_dagster.resources.storage_resource import DstlStorageResource
from dstl_dagster.snapshots.typed_source import SnapshotSource, load_from, registry_of

ExpectedJob = JobDescription | SnapshotSource | Callable[[DstlStorageResource], JobDescription]
"""A job: its description, a function that returns one when the check runs, or a source of a
snapshot that the job wrote.
"""


@dataclass(frozen=True)
class RestoreCheck(SnapshotCheck):
    """Checks whether a job can restore a snapshot; shows matched, dropped and new operators.

    The check fails if Flink would refuse the restore: for state that no operator of the job has
    (unless ``allow_dropped``), another max parallelism, another key, types that cannot evolve. It
    warns of ``doubts``, which no file can settle: the max parallelism of a snapshot of the job may
    be one that the job sets.

    Args:
        job: The job: a snapshot that it wrote (``snapshot_at(place)``), a ``JobDescription``, or a
            function that asks Flink (``JobDescription.from_rest_plan``).
        name: Name of the check.
        allow_dropped: Whether operators may lose their state.
        allow_new: Whether operators may start empty.
        blocking: Whether a failure stops downstream assets.
    """

    job: ExpectedJob
    name: str = "restore_plan"
    allow_dropped: bool = False
    allow_new: bool = True
    blocking: bool = False

    def definition(
        self, asset: Asset, source: SnapshotSource, uid: str | None = None
    ) -> dg.AssetChecksDefinition:
        _check_job(self.job)

        @dg.asset_check(asset=asset, name=self.name, blocking=self.blocking)
        def restore_plan(storage: DstlStorageResource) -> dg.AssetCheckResult:
            return self._result(_plan(self.job, source, storage))

        return restore_plan

    def _result(self, plan: RestorePlan) -> dg.AssetCheckResult:
        by_fate: dict[str, list[OperatorFate]] = {"matched": [], "dropped": [], "new": []}
        for operator in plan.operators:
            by_fate[operator.fate].append(operator)
        problems = list(plan.problems)
        if not self.allow_dropped:
            lost = [operator for operator in by_fate["dropped"] if operator.size]
            problems += [f"{each.operator} would lose {each.size:,} bytes" for each in lost]
        if not self.allow_new:
            problems += [f"{each.operator} would start empty" for each in by_fate["new"]]
        fates = {
            fate: lines_of([f"{each.operator}, {each.size:,} bytes" for each in operators])
            for fate, operators in by_fate.items()
        }
        return dg.AssetCheckResult(
            passed=not problems and not plan.doubts,
            severity=ERROR if problems else WARN,
            metadata={
                **fates,
                "problems": lines_of(problems),
                "doubts": lines_of(plan.doubts),
                "notes": lines_of(plan.notes),
            },
        )


@dataclass(frozen=True)
class SchemaCheck(SnapshotCheck):
    """Checks that the types of a job fit those of a snapshot, by Flink's rules of evolution.

    It compares the states that both have. Types that only the job's own classes can compare are
    counted; they do not fail the check.

    Args:
        job: See ``RestoreCheck``.
        name: Name of the check.
        allow_migration: Whether the check passes if Flink has to convert values.
        severity: ``"warn"`` never stops downstream assets.
        blocking: Whether a failure stops downstream assets.
    """

    job: ExpectedJob
    name: str = "schema"
    allow_migration: bool = True
    severity: Severity = "error"
    blocking: bool = False

    def definition(
        self, asset: Asset, source: SnapshotSource, uid: str | None = None
    ) -> dg.AssetChecksDefinition:
        _check_job(self.job)
        severity = severity_of(self.severity)

        @dg.asset_check(asset=asset, name=self.name, blocking=self.blocking)
        def schema(storage: DstlStorageResource) -> dg.AssetCheckResult:
            compared = list(_compared(_plan(self.job, source, storage)))
            worst = Verdict.INCOMPATIBLE if self.allow_migration else Verdict.AFTER_MIGRATION
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


def _check_job(job: ExpectedJob) -> None:
    if not isinstance(job, JobDescription):
        check_source("job of a check", job)


def _plan(job: ExpectedJob, source: SnapshotSource, storage: DstlStorageResource) -> RestorePlan:
    return plan_restore(load_from(source, storage), _expected(job, storage))


def _expected(job: ExpectedJob, storage: DstlStorageResource) -> JobDescription:
    """What the job expects; that of the job which wrote it, if ``job`` finds a snapshot."""
    if isinstance(job, JobDescription):
        return job
    described = job(storage)
    if isinstance(described, JobDescription):
        return described
    snapshot = Snapshot.load(described, serializers=registry_of(job))  # type: ignore[arg-type]
    return JobDescription.from_snapshot(snapshot)


def _compared(plan: RestorePlan) -> Iterator[tuple[OperatorFate, StateFate]]:
    for operator in plan.operators:
        for state in operator.states:
            if state.fate == "matched":
                yield operator, state
