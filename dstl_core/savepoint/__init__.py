"""The State Processor API without Spark: look into snapshots, read them, write and edit them."""

from dstl_core.savepoint.check.gc import collect_garbage
from dstl_core.savepoint.check.verify import verify_snapshot
from dstl_core.savepoint.edit.restore_plan import (
    JobDescription,
    JobOperator,
    JobState,
    RestorePlan,
    plan_restore,
)
from dstl_core.savepoint.edit.rewrite import rewrite_savepoint
from dstl_core.savepoint.edit.savepoint_edit import SavepointEdit, edit_savepoint
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot

__all__ = [
    "JobDescription",
    "JobOperator",
    "JobState",
    "OperatorSnapshot",
    "RestorePlan",
    "SavepointEdit",
    "Snapshot",
    "StateInfo",
    "collect_garbage",
    "edit_savepoint",
    "plan_restore",
    "rewrite_savepoint",
    "verify_snapshot",
]
