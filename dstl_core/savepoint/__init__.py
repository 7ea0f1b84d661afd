"""The State Processor API without Spark: look into snapshots, read them, write and edit them."""

from dstl_core.savepoint.edit import SavepointEdit, edit_savepoint
from dstl_core.savepoint.gc import collect_garbage
from dstl_core.savepoint.restore_plan import (
    JobDescription,
    JobOperator,
    JobState,
    RestorePlan,
    plan_restore,
)
from dstl_core.savepoint.rewrite import rewrite_savepoint
from dstl_core.savepoint.snapshot import OperatorSnapshot, Snapshot, StateInfo
from dstl_core.savepoint.verify import verify_snapshot

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
