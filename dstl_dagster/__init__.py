"""The Dagster plugin: state as lineage-tracked assets.

A public name loads its module on first use. None of them loads Spark before a run needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dagster_shared.libraries import DagsterLibraryRegistry

from dstl_core.extras import extra_named
from dstl_core.version import __version__

if TYPE_CHECKING:
    from dstl_core.checkpoint.store.pipeline_store import PipelineStore
    from dstl_dagster.checks.restore_checks import (
        build_restore_plan_check,
        build_schema_check,
        expected_of,
    )
    from dstl_dagster.checks.state_checks import build_diff_size_check, build_state_check
    from dstl_dagster.checks.store_checks import build_pipeline_checks, build_verify_check
    from dstl_dagster.components import (
        DstlResourcesComponent,
        SavepointComponent,
        StatefulPipelineComponent,
    )
    from dstl_dagster.io_manager import DstlIOManager
    from dstl_dagster.metadata import report_metadata
    from dstl_dagster.pipeline_defs import build_pipeline_defs
    from dstl_dagster.pipelines.aggregates import EventTimeWindows, aggregating_pipeline
    from dstl_dagster.pipelines.asset_decorator import build_dstl_asset_specs, dstl_assets
    from dstl_dagster.pipelines.epoch_runs import EpochConfig, InputConfig
    from dstl_dagster.pipelines.epochs import run_epochs
    from dstl_dagster.pipelines.jobs import (
        build_gc_job,
        build_materialization_job,
        build_report_job,
        build_reset_job,
        build_savepoint_job,
        build_verify_job,
    )
    from dstl_dagster.pipelines.merged_output import merge_output, output_changes
    from dstl_dagster.pipelines.pipeline import StatefulPipeline
    from dstl_dagster.pipelines.protocol_ops import (
        build_confirm_op,
        build_persist_op,
        build_protocol_job,
    )
    from dstl_dagster.pipelines.schedules import (
        build_epochs_schedule,
        build_materialization_schedule,
        build_verify_schedule,
    )
    from dstl_dagster.resources.flink_client import FlinkClient, FlinkClusterError
    from dstl_dagster.resources.flink_resource import (
        FlinkClusterResource,
        build_flink_savepoint_asset,
    )
    from dstl_dagster.resources.local_engine_resource import DstlLocalEngineResource
    from dstl_dagster.resources.savepoint_resource import SavepointResource
    from dstl_dagster.resources.spark_resource import DstlSparkResource
    from dstl_dagster.resources.storage_resource import (
        AzureCredentials,
        DstlStorageResource,
        EnvironmentCredentials,
        GcsCredentials,
        S3Credentials,
    )
    from dstl_dagster.resources.upload_resource import (
        BatchingUploads,
        DirectUploads,
        UploadSchedulerResource,
    )
    from dstl_dagster.sensors import (
        build_external_checkpoint_sensor,
        build_input_sensor,
        build_reset_sensors,
        build_sweeper_sensor,
        build_truncation_sensor,
    )
    from dstl_dagster.snapshots.snapshot_assets import (
        build_bootstrapped_asset,
        build_materialization_asset,
        build_rewritten_asset,
        build_savepoint_asset,
    )
    from dstl_dagster.snapshots.sources import checkpoint_of, savepoint_of, snapshot_at
    from dstl_dagster.translator import DagsterDstlTranslator, DstlTranslatorData

_MODULES = {
    "pipelines.aggregates": (
        "EventTimeWindows",
        "aggregating_pipeline",
    ),
    "resources.flink_resource": (
        "FlinkClusterResource",
        "build_flink_savepoint_asset",
    ),
    "resources.flink_client": (
        "FlinkClient",
        "FlinkClusterError",
    ),
    "io_manager": ("DstlIOManager",),
    "components": (
        "DstlResourcesComponent",
        "SavepointComponent",
        "StatefulPipelineComponent",
    ),
    "checks.store_checks": (
        "build_pipeline_checks",
        "build_verify_check",
    ),
    "checks.state_checks": (
        "build_diff_size_check",
        "build_state_check",
    ),
    "checks.restore_checks": (
        "build_restore_plan_check",
        "build_schema_check",
        "expected_of",
    ),
    "snapshots.sources": (
        "checkpoint_of",
        "savepoint_of",
        "snapshot_at",
    ),
    "pipelines.jobs": (
        "build_gc_job",
        "build_report_job",
        "build_reset_job",
        "build_savepoint_job",
        "build_materialization_job",
        "build_verify_job",
    ),
    "sensors": (
        "build_external_checkpoint_sensor",
        "build_input_sensor",
        "build_reset_sensors",
        "build_sweeper_sensor",
        "build_truncation_sensor",
    ),
    "pipelines.schedules": (
        "build_epochs_schedule",
        "build_materialization_schedule",
        "build_verify_schedule",
    ),
    "pipeline_defs": ("build_pipeline_defs",),
    "pipelines.protocol_ops": ("build_confirm_op", "build_persist_op", "build_protocol_job"),
    "pipelines.asset_decorator": ("build_dstl_asset_specs", "dstl_assets"),
    "pipelines.epoch_runs": ("EpochConfig", "InputConfig"),
    "pipelines.epochs": ("run_epochs",),
    "pipelines.merged_output": ("merge_output", "output_changes"),
    # ``StatefulPipeline.store`` gives a store of dstl_core.
    "pipelines.pipeline": ("PipelineStore", "StatefulPipeline"),
    "metadata": ("report_metadata",),
    "resources.savepoint_resource": ("SavepointResource",),
    "snapshots.snapshot_assets": (
        "build_bootstrapped_asset",
        "build_materialization_asset",
        "build_rewritten_asset",
        "build_savepoint_asset",
    ),
    "resources.local_engine_resource": ("DstlLocalEngineResource",),
    "resources.spark_resource": ("DstlSparkResource",),
    "resources.storage_resource": (
        "AzureCredentials",
        "DstlStorageResource",
        "EnvironmentCredentials",
        "GcsCredentials",
        "S3Credentials",
    ),
    "translator": ("DagsterDstlTranslator", "DstlTranslatorData"),
    "resources.upload_resource": ("BatchingUploads", "DirectUploads", "UploadSchedulerResource"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AzureCredentials",
    "BatchingUploads",
    "DagsterDstlTranslator",
    "DirectUploads",
    "DstlIOManager",
    "DstlLocalEngineResource",
    "DstlResourcesComponent",
    "DstlSparkResource",
    "DstlStorageResource",
    "DstlTranslatorData",
    "EnvironmentCredentials",
    "EpochConfig",
    "EventTimeWindows",
    "FlinkClient",
    "FlinkClusterError",
    "FlinkClusterResource",
    "GcsCredentials",
    "InputConfig",
    "PipelineStore",
    "S3Credentials",
    "SavepointComponent",
    "SavepointResource",
    "StatefulPipeline",
    "StatefulPipelineComponent",
    "UploadSchedulerResource",
    "aggregating_pipeline",
    "build_bootstrapped_asset",
    "build_confirm_op",
    "build_diff_size_check",
    "build_dstl_asset_specs",
    "build_epochs_schedule",
    "build_external_checkpoint_sensor",
    "build_flink_savepoint_asset",
    "build_gc_job",
    "build_input_sensor",
    "build_materialization_asset",
    "build_materialization_job",
    "build_materialization_schedule",
    "build_persist_op",
    "build_pipeline_checks",
    "build_pipeline_defs",
    "build_protocol_job",
    "build_report_job",
    "build_reset_job",
    "build_reset_sensors",
    "build_restore_plan_check",
    "build_rewritten_asset",
    "build_savepoint_asset",
    "build_savepoint_job",
    "build_schema_check",
    "build_state_check",
    "build_sweeper_sensor",
    "build_truncation_sensor",
    "build_verify_check",
    "build_verify_job",
    "build_verify_schedule",
    "checkpoint_of",
    "dstl_assets",
    "expected_of",
    "merge_output",
    "output_changes",
    "report_metadata",
    "run_epochs",
    "savepoint_of",
    "snapshot_at",
]

DagsterLibraryRegistry.register("dagster-dstl", __version__, is_dagster_package=False)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        with extra_named(f"dstl_dagster.{name}"):
            module = importlib.import_module(f"dstl_dagster.{_HOME[name]}")
        value = getattr(module, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
