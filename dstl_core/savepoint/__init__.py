"""The State Processor API without Spark: inspects, reads, writes and edits snapshots.

A name loads its module on first use.
"""

from typing import TYPE_CHECKING

from dstl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dstl_core.model.ids import OperatorIdentifier
    from dstl_core.savepoint.check.flink_answers import FlinkInstallation
    from dstl_core.savepoint.check.jar_check import check_jar
    from dstl_core.savepoint.check.restore_check import check_restore
    from dstl_core.savepoint.check.restore_plan import (
        JobDescription,
        JobOperator,
        JobState,
        plan_restore,
    )
    from dstl_core.savepoint.check.verify import verify_snapshot
    from dstl_core.savepoint.edit.rewrite import rewrite_savepoint
    from dstl_core.savepoint.edit.savepoint_edit import SavepointEdit, edit_savepoint
    from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
    from dstl_core.savepoint.migrate.declaration import Migration
    from dstl_core.savepoint.migrate.learn.proposal_file import propose_file
    from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
    from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
    from dstl_core.savepoint.report.snapshot_report import SnapshotReport, report_snapshot

__all__ = [
    "FlinkInstallation",
    "JobDescription",
    "JobOperator",
    "JobState",
    "Migration",
    "OperatorIdentifier",
    "OperatorSnapshot",
    "SavepointEdit",
    "SavepointMigration",
    "SavepointUpgrade",
    "Snapshot",
    "SnapshotReport",
    "check_jar",
    "check_restore",
    "edit_savepoint",
    "plan_restore",
    "propose_file",
    "report_snapshot",
    "rewrite_savepoint",
    "verify_snapshot",
]

__getattr__, __dir__ = lazy_names(__name__)
