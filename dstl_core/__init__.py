"""Streaming state as a data asset, in Apache Flink's own on-disk formats.

Every name that a user writes is here. A name loads its module on first use, so that
``import dstl_core`` loads neither Spark nor Arrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dstl_core import aggregates, changelog, errors, functions, testing, windows
    from dstl_core.codec.columnar.types.type_registry import ColumnOptions
    from dstl_core.codec.serializers import Types
    from dstl_core.config import ChangelogOptions
    from dstl_core.functions import (
        BroadcastFunction,
        BroadcastStateBootstrapFunction,
        CheckpointedFunction,
        ColumnResult,
        KeyedColumnFunction,
        KeyedProcessFunction,
        KeyedStateBootstrapFunction,
        KeyedStateReaderFunction,
        ProcessFunction,
        ProcessWindowFunction,
        RichMapFunction,
        StateBootstrapFunction,
        WindowFunction,
        WindowReaderFunction,
    )
    from dstl_core.job.downstream.delta_sink import DeltaSink
    from dstl_core.job.downstream.parquet_sink import ParquetSink
    from dstl_core.job.spec.operators import AggregateOperator, KeyedOperator, ProcessOperator
    from dstl_core.local.local_engine import LocalEngine
    from dstl_core.model.ids import OperatorIdentifier
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
    from dstl_core.savepoint.edit.savepoint_edit import edit_savepoint
    from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
    from dstl_core.savepoint.migrate.declaration import Migration
    from dstl_core.savepoint.migrate.learn.proposal_file import propose_file
    from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
    from dstl_core.savepoint.read.snapshot import Snapshot
    from dstl_core.savepoint.report.snapshot_report import report_snapshot
    from dstl_core.spark.savepoints.data_source import register
    from dstl_core.spark.savepoints.savepoint_reader import SavepointReader
    from dstl_core.spark.savepoints.savepoint_writer import SavepointWriter
    from dstl_core.spark.savepoints.transformations import OperatorTransformation
    from dstl_core.state.backends.state_backend import (
        EmbeddedRocksDBStateBackend,
        HashMapStateBackend,
    )
    from dstl_core.state.tables.descriptor import (
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        ValueStateDescriptor,
    )
    from dstl_core.state.tables.ttl import StateTtlConfig
    from dstl_core.stateful_job import StatefulJob

__all__ = [
    "AggregateOperator",
    "AggregatingStateDescriptor",
    "BroadcastFunction",
    "BroadcastStateBootstrapFunction",
    "ChangelogOptions",
    "CheckpointedFunction",
    "ColumnOptions",
    "ColumnResult",
    "DeltaSink",
    "EmbeddedRocksDBStateBackend",
    "HashMapStateBackend",
    "JobDescription",
    "JobOperator",
    "JobState",
    "KeyedColumnFunction",
    "KeyedOperator",
    "KeyedProcessFunction",
    "KeyedStateBootstrapFunction",
    "KeyedStateReaderFunction",
    "ListStateDescriptor",
    "LocalEngine",
    "MapStateDescriptor",
    "Migration",
    "OperatorIdentifier",
    "OperatorTransformation",
    "ParquetSink",
    "ProcessFunction",
    "ProcessOperator",
    "ProcessWindowFunction",
    "ReducingStateDescriptor",
    "RichMapFunction",
    "SavepointMigration",
    "SavepointReader",
    "SavepointUpgrade",
    "SavepointWriter",
    "Snapshot",
    "StateBootstrapFunction",
    "StateTtlConfig",
    "StatefulJob",
    "Types",
    "ValueStateDescriptor",
    "WindowFunction",
    "WindowReaderFunction",
    "aggregates",
    "changelog",
    "check_jar",
    "check_restore",
    "edit_savepoint",
    "errors",
    "functions",
    "plan_restore",
    "propose_file",
    "register",
    "report_snapshot",
    "rewrite_savepoint",
    "testing",
    "verify_snapshot",
    "windows",
]

_HOME = {
    "BroadcastStateBootstrapFunction": "functions",
    "KeyedStateBootstrapFunction": "functions",
    "KeyedStateReaderFunction": "functions",
    "StateBootstrapFunction": "functions",
    "WindowReaderFunction": "functions",
    "ColumnResult": "functions",
    "KeyedColumnFunction": "functions",
    "BroadcastFunction": "functions",
    "ProcessFunction": "functions",
    "CheckpointedFunction": "functions",
    "KeyedProcessFunction": "functions",
    "RichMapFunction": "functions",
    "ProcessWindowFunction": "functions",
    "WindowFunction": "functions",
    "__version__": "version",
    "AggregateOperator": "job.spec.operators",
    "AggregatingStateDescriptor": "state.tables.descriptor",
    "ChangelogOptions": "config",
    "ColumnOptions": "codec.columnar.types.type_registry",
    "DeltaSink": "job.downstream.delta_sink",
    "EmbeddedRocksDBStateBackend": "state.backends.state_backend",
    "HashMapStateBackend": "state.backends.state_backend",
    "JobDescription": "savepoint.check.restore_plan",
    "JobOperator": "savepoint.check.restore_plan",
    "JobState": "savepoint.check.restore_plan",
    "KeyedOperator": "job.spec.operators",
    "ListStateDescriptor": "state.tables.descriptor",
    "MapStateDescriptor": "state.tables.descriptor",
    "Migration": "savepoint.migrate.declaration",
    "OperatorIdentifier": "model.ids",
    "ParquetSink": "job.downstream.parquet_sink",
    "OperatorTransformation": "spark.savepoints.transformations",
    "ProcessOperator": "job.spec.operators",
    "ReducingStateDescriptor": "state.tables.descriptor",
    "SavepointMigration": "savepoint.migrate.migrated_savepoint",
    "SavepointReader": "spark.savepoints.savepoint_reader",
    "SavepointUpgrade": "savepoint.edit.upgrade",
    "SavepointWriter": "spark.savepoints.savepoint_writer",
    "Snapshot": "savepoint.read.snapshot",
    "StateTtlConfig": "state.tables.ttl",
    "LocalEngine": "local.local_engine",
    "StatefulJob": "stateful_job",
    "Types": "codec.serializers",
    "ValueStateDescriptor": "state.tables.descriptor",
    "check_jar": "savepoint.check.jar_check",
    "check_restore": "savepoint.check.restore_check",
    "edit_savepoint": "savepoint.edit.savepoint_edit",
    "plan_restore": "savepoint.check.restore_plan",
    "propose_file": "savepoint.migrate.learn.proposal_file",
    "register": "spark.savepoints.data_source",
    "rewrite_savepoint": "savepoint.edit.rewrite",
    "report_snapshot": "savepoint.report.snapshot_report",
    "verify_snapshot": "savepoint.check.verify",
}
"""The module of each name, below ``dstl_core``."""

_NAMESPACES = ("aggregates", "changelog", "errors", "functions", "testing", "windows")


def __getattr__(name: str) -> Any:
    if name in _NAMESPACES:
        return importlib.import_module(f"dstl_core.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dstl_core.extras import extra_named

    with extra_named(f"dstl_core.{name}"):
        module = importlib.import_module(f"dstl_core.{_HOME[name]}")
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
