"""The State Processor API without Spark: look into snapshots, read them, write and edit them."""

from dstl_core.savepoint.rewrite import rewrite_savepoint
from dstl_core.savepoint.snapshot import OperatorSnapshot, Snapshot, StateInfo

__all__ = ["OperatorSnapshot", "Snapshot", "StateInfo", "rewrite_savepoint"]
