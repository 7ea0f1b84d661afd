"""The State Processor API without Spark: inspects, reads, writes and edits snapshots.

A name loads its module on first use.
"""

from typing import TYPE_CHECKING

from dstl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dstl_core.codec.columnar.types.type_registry import ColumnOptions as ColumnOptions
    from dstl_core.model.ids import OperatorIdentifier as OperatorIdentifier
    from dstl_core.savepoint.restores.flink_answers import FlinkInstallation as FlinkInstallation
    from dstl_core.savepoint.restores.job_match import (
        JobDescription as JobDescription,
        JobOperator as JobOperator,
        JobState as JobState,
    )
    from dstl_core.savepoint.restores.restore_check import check_restore as check_restore
    from dstl_core.savepoint.verify.verify import verify_snapshot as verify_snapshot
    from dstl_core.savepoint.edit.rewrite import rewrite_savepoint as rewrite_savepoint
    from dstl_core.savepoint.edit.savepoint_edit import (
        SavepointEdit as SavepointEdit,
        edit_savepoint as edit_savepoint,
    )
    from dstl_core.savepoint.edit.upgrade import SavepointUpgrade as SavepointUpgrade
    from dstl_core.savepoint.migrate.declaration import Migration as Migration
    from dstl_core.savepoint.migrate.proposal.proposal_file import propose_file as propose_file
    from dstl_core.savepoint.migrate.migrated_savepoint import (
        SavepointMigration as SavepointMigration,
    )
    from dstl_core.savepoint.read.snapshot import (
        OperatorSnapshot as OperatorSnapshot,
        Snapshot as Snapshot,
    )
    from dstl_core.savepoint.report.snapshot_report import (
        SnapshotReport as SnapshotReport,
        report_snapshot as report_snapshot,
    )


__getattr__, __dir__ = lazy_names(__name__)
