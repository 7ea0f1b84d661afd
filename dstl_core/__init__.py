"""Streaming state as a data asset, in Apache Flink's own on-disk formats.

What a first program needs is here: jobs, operators, descriptors of state, snapshots, and the
functions that do what the commands do. The base classes of functions are in ``functions``, the rest
of the work on savepoints in ``savepoint``. A name loads its module on first use, so that
``import dstl_core`` loads neither Spark nor Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dstl_core import (
        aggregates as aggregates,
        errors as errors,
        functions as functions,
        savepoint as savepoint,
        windows as windows,
    )
    from dstl_core.codec.serializers import Types as Types
    from dstl_core.job.spec.operators import (
        AggregateOperator as AggregateOperator,
        KeyedOperator as KeyedOperator,
        ProcessOperator as ProcessOperator,
    )
    from dstl_core.local.local_engine import LocalEngine as LocalEngine
    from dstl_core.model.ids import OperatorIdentifier as OperatorIdentifier
    from dstl_core.savepoint.restores.restore_check import check_restore as check_restore
    from dstl_core.savepoint.verify.verify import verify_snapshot as verify_snapshot
    from dstl_core.savepoint.edit.rewrite import rewrite_savepoint as rewrite_savepoint
    from dstl_core.savepoint.edit.savepoint_edit import edit_savepoint as edit_savepoint
    from dstl_core.savepoint.read.snapshot import Snapshot as Snapshot
    from dstl_core.savepoint.report.snapshot_report import report_snapshot as report_snapshot
    from dstl_core.spark.savepoints.data_source import register as register
    from dstl_core.spark.savepoints.savepoint_reader import SavepointReader as SavepointReader
    from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter as SavepointWriter
    from dstl_core.operator_transformation import (
        OperatorTransformation as OperatorTransformation,
    )
    from dstl_core.state.backends.state_backend import (
        EmbeddedRocksDBStateBackend as EmbeddedRocksDBStateBackend,
        HashMapStateBackend as HashMapStateBackend,
    )
    from dstl_core.state.tables.descriptor import (
        AggregatingStateDescriptor as AggregatingStateDescriptor,
        ListStateDescriptor as ListStateDescriptor,
        MapStateDescriptor as MapStateDescriptor,
        ReducingStateDescriptor as ReducingStateDescriptor,
        ValueStateDescriptor as ValueStateDescriptor,
    )
    from dstl_core.state.tables.ttl import StateTtlConfig as StateTtlConfig
    from dstl_core.stateful_job import StatefulJob as StatefulJob
    from dstl_core.version import __version__ as __version__


__getattr__, __dir__ = lazy_names(__name__)
