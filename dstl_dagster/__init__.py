"""The Dagster plugin: state as lineage-tracked assets.

A public name loads its module on first use. None of them loads Spark before a run needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagster_shared.libraries import DagsterLibraryRegistry

from dstl_core.lazy_names import lazy_names
from dstl_core.version import __version__

if TYPE_CHECKING:
    from dstl_core.checkpoint.store.pipeline_store import PipelineStore as PipelineStore
    from dstl_dagster.checks.restore_checks import (
        build_restore_plan_check as build_restore_plan_check,
        build_schema_check as build_schema_check,
        expected_of as expected_of,
    )
    from dstl_dagster.checks.state_checks import (
        build_diff_size_check as build_diff_size_check,
        build_state_check as build_state_check,
    )
    from dstl_dagster.checks.store_checks import (
        build_pipeline_checks as build_pipeline_checks,
        build_verify_check as build_verify_check,
    )
    from dstl_dagster.components import (
        DstlResourcesComponent as DstlResourcesComponent,
        SavepointComponent as SavepointComponent,
        StatefulPipelineComponent as StatefulPipelineComponent,
    )
    from dstl_dagster.io_manager import DstlIOManager as DstlIOManager
    from dstl_dagster.metadata import report_metadata as report_metadata
    from dstl_dagster.pipeline_defs import build_pipeline_defs as build_pipeline_defs
    from dstl_dagster.pipelines.aggregates import (
        EventTimeWindows as EventTimeWindows,
        aggregating_pipeline as aggregating_pipeline,
    )
    from dstl_dagster.pipelines.asset_decorator import (
        build_dstl_asset_specs as build_dstl_asset_specs,
        dstl_assets as dstl_assets,
    )
    from dstl_dagster.pipelines.epoch_runs import (
        EpochConfig as EpochConfig,
        InputConfig as InputConfig,
    )
    from dstl_dagster.pipelines.epochs import run_epochs as run_epochs
    from dstl_dagster.pipelines.jobs import (
        build_gc_job as build_gc_job,
        build_materialization_job as build_materialization_job,
        build_report_job as build_report_job,
        build_reset_job as build_reset_job,
        build_savepoint_job as build_savepoint_job,
        build_verify_job as build_verify_job,
    )
    from dstl_dagster.pipelines.merged_output import (
        merge_output as merge_output,
        output_changes as output_changes,
    )
    from dstl_dagster.pipelines.pipeline import StatefulPipeline as StatefulPipeline
    from dstl_dagster.pipelines.protocol_ops import (
        build_confirm_op as build_confirm_op,
        build_persist_op as build_persist_op,
        build_protocol_job as build_protocol_job,
    )
    from dstl_dagster.pipelines.schedules import (
        build_epochs_schedule as build_epochs_schedule,
        build_materialization_schedule as build_materialization_schedule,
        build_verify_schedule as build_verify_schedule,
    )
    from dstl_dagster.resources.flink_client import (
        FlinkClient as FlinkClient,
        FlinkClusterError as FlinkClusterError,
    )
    from dstl_dagster.resources.flink_resource import (
        FlinkClusterResource as FlinkClusterResource,
        build_flink_savepoint_asset as build_flink_savepoint_asset,
    )
    from dstl_dagster.resources.local_engine_resource import (
        DstlLocalEngineResource as DstlLocalEngineResource,
    )
    from dstl_dagster.resources.savepoint_resource import SavepointResource as SavepointResource
    from dstl_dagster.resources.spark_resource import DstlSparkResource as DstlSparkResource
    from dstl_dagster.resources.storage_resource import (
        AzureCredentials as AzureCredentials,
        DstlStorageResource as DstlStorageResource,
        EnvironmentCredentials as EnvironmentCredentials,
        GcsCredentials as GcsCredentials,
        S3Credentials as S3Credentials,
    )
    from dstl_dagster.resources.upload_resource import (
        BatchingUploads as BatchingUploads,
        DirectUploads as DirectUploads,
        UploadSchedulerResource as UploadSchedulerResource,
    )
    from dstl_dagster.sensors import (
        build_external_checkpoint_sensor as build_external_checkpoint_sensor,
        build_input_sensor as build_input_sensor,
        build_reset_sensors as build_reset_sensors,
        build_sweeper_sensor as build_sweeper_sensor,
        build_truncation_sensor as build_truncation_sensor,
    )
    from dstl_dagster.snapshots.snapshot_assets import (
        build_bootstrapped_asset as build_bootstrapped_asset,
        build_materialization_asset as build_materialization_asset,
        build_rewritten_asset as build_rewritten_asset,
        build_savepoint_asset as build_savepoint_asset,
    )
    from dstl_dagster.snapshots.sources import (
        checkpoint_of as checkpoint_of,
        savepoint_of as savepoint_of,
        snapshot_at as snapshot_at,
    )
    from dstl_dagster.translator import (
        DagsterDstlTranslator as DagsterDstlTranslator,
        DstlTranslatorData as DstlTranslatorData,
    )

DagsterLibraryRegistry.register("dagster-dstl", __version__, is_dagster_package=False)


__getattr__, __dir__ = lazy_names(__name__)
