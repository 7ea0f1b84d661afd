"""Asset checks of a future restore: whether operators match and types fit. They need no Spark."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import dagster as dg

from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.restores.job_match import JobDescription
from dstl_core.savepoint.restores.restore_check import check_restore
from dstl_core.savepoint.restores.restore_result import RestoreLine, RestoreResult
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
from dstl_dagster.snapshots.typed_source import SnapshotSource, load_from, resource_for

ExpectedJob = JobDescription | SnapshotSource | Callable[[DstlStorageResource], JobDescription]
"""A job: its description, a function that returns one when the check runs, or a source of a
snapshot that the job wrote.
"""


@dataclass(frozen=True)
class RestoreCheck(SnapshotCheck):
    """Checks whether a job can restore a snapshot; shows matched, dropped and new operators.

    It asks ``check_restore``, as ``dstl check`` does. The check fails if Flink would refuse the
    restore, or would lose or change values: for state that the job does not have (unless
    ``allow_dropped``), another max parallelism, another key, types that cannot evolve. It warns of
    ``doubts`` about operators, which no file can settle: the max parallelism of a snapshot of the
    job may be one that the job sets. States of which the job shows too little are counted as
    ``unknown``; they do not fail the check.

    Args:
        job: The job: a snapshot that it wrote (``snapshot_at(place)``), a ``JobDescription``, or a
            function that asks Flink (``FlinkClient.plan``).
        name: Name of the check.
        allow_dropped: Whether state may be lost.
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
            return self._result(_checked(self.job, source, storage))

        return restore_plan

    def _result(self, restore: RestoreResult) -> dg.AssetCheckResult:
        fates = {
            fate: [operator for operator in restore.operators if operator.fate == fate]
            for fate in ("matched", "dropped", "new")
        }
        lines = [line for line in restore.lines if line.fate != "dropped" or not self.allow_dropped]
        problems = _texts(line for line in lines if line.verdict is Verdict.INCOMPATIBLE)
        if not self.allow_new:
            problems += [f"{operator.operator} would start empty" for operator in fates["new"]]
        unknown = [line for line in lines if line.verdict is Verdict.UNKNOWN]
        doubts = [line for line in unknown if line.state is None and line.fate != "unknown"]
        return dg.AssetCheckResult(
            passed=not problems and not doubts,
            severity=ERROR if problems else WARN,
            metadata={
                **{
                    fate: lines_of([f"{each.operator}, {each.size:,} bytes" for each in operators])
                    for fate, operators in fates.items()
                },
                "problems": lines_of(problems),
                "doubts": lines_of(_texts(doubts)),
                "unknown": lines_of(_texts(line for line in unknown if line not in doubts)),
                "notes": lines_of(restore.notes),
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
            lines = _checked(self.job, source, storage).lines
            compared = [line for line in lines if line.state is not None and line.fate == "matched"]
            worst = Verdict.INCOMPATIBLE if self.allow_migration else Verdict.AFTER_MIGRATION
            problems = _texts(
                line for line in compared if line.verdict in (worst, Verdict.INCOMPATIBLE)
            )
            verdicts = [line.verdict for line in compared]
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


def _checked(
    job: ExpectedJob, source: SnapshotSource, storage: DstlStorageResource
) -> RestoreResult:
    return check_restore(load_from(source, storage), _expected(job, storage))


def _expected(job: ExpectedJob, storage: DstlStorageResource) -> JobDescription | Snapshot:
    """The description of the job, or the snapshot that it wrote."""
    if isinstance(job, JobDescription):
        return job
    described = job(storage)
    if isinstance(described, JobDescription):
        return described
    return resource_for(job, storage).load(described)  # type: ignore[arg-type]


def _texts(lines: Iterable[RestoreLine]) -> list[str]:
    return [
        f"{line.operator if line.state is None else f'{line.operator}.{line.state}'}: {line.reason}"
        for line in lines
    ]
