"""The Dagster plugin: state as lineage-tracked assets.

A public name loads its module on first use. None of them loads Spark before a run needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagster_shared.libraries import DagsterLibraryRegistry

from dstl_core.lazy_names import lazy_names
from dstl_core.version import __version__

if TYPE_CHECKING:
    from dstl_dagster import (
        checks as checks,
        pipelines as pipelines,
        resources as resources,
        snapshots as snapshots,
    )
    from dstl_dagster.components import (
        DstlResourcesComponent as DstlResourcesComponent,
        SavepointComponent as SavepointComponent,
        StatefulPipelineComponent as StatefulPipelineComponent,
    )
    from dstl_dagster.io_manager import DstlIOManager as DstlIOManager
    from dstl_dagster.pipeline_defs import build_pipeline_defs as build_pipeline_defs
    from dstl_dagster.pipelines.aggregates import (
        EventTimeWindows as EventTimeWindows,
        aggregating_pipeline as aggregating_pipeline,
    )
    from dstl_dagster.pipelines.asset_decorator import (
        build_dstl_asset_specs as build_dstl_asset_specs,
        dstl_assets as dstl_assets,
    )
    from dstl_dagster.pipelines.epochs import run_epochs as run_epochs
    from dstl_dagster.pipelines.merged_output import (
        merge_output as merge_output,
        output_changes as output_changes,
    )
    from dstl_dagster.pipelines.pipeline import StatefulPipeline as StatefulPipeline
    from dstl_dagster.resources.flink_resource import FlinkClusterResource as FlinkClusterResource
    from dstl_dagster.resources.local_engine_resource import (
        DstlLocalEngineResource as DstlLocalEngineResource,
    )
    from dstl_dagster.resources.savepoint_resource import SavepointResource as SavepointResource
    from dstl_dagster.resources.spark_resource import DstlSparkResource as DstlSparkResource
    from dstl_dagster.resources.storage_resource import DstlStorageResource as DstlStorageResource
    from dstl_dagster.savepoint_defs import build_savepoint_defs as build_savepoint_defs
    from dstl_dagster.translator import (
        DagsterDstlTranslator as DagsterDstlTranslator,
        DstlTranslatorData as DstlTranslatorData,
    )

DagsterLibraryRegistry.register("dagster-dstl", __version__, is_dagster_package=False)


__getattr__, __dir__ = lazy_names(__name__)
