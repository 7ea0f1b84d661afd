"""The Dagster plugin: state as lineage-tracked assets.

The public names are loaded on first use; none of them loads Spark before a run needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dagster_shared.libraries import DagsterLibraryRegistry

from dstl_core import __version__

if TYPE_CHECKING:
    from dstl_dagster.asset_decorator import build_dstl_asset_specs, dstl_assets
    from dstl_dagster.epochs import run_epochs
    from dstl_dagster.pipeline import StatefulPipeline
    from dstl_dagster.savepoint_resource import SavepointResource
    from dstl_dagster.snapshot_assets import (
        build_bootstrapped_asset,
        build_materialization_asset,
        build_rewritten_asset,
        build_savepoint_asset,
    )
    from dstl_dagster.spark_resource import DstlSparkResource
    from dstl_dagster.storage_resource import (
        AzureCredentials,
        DstlStorageResource,
        EnvironmentCredentials,
        GcsCredentials,
        S3Credentials,
    )
    from dstl_dagster.translator import DagsterDstlTranslator, DstlTranslatorData
    from dstl_dagster.upload_resource import BatchingUploads, DirectUploads, UploadSchedulerResource

_MODULES = {
    "asset_decorator": ("build_dstl_asset_specs", "dstl_assets"),
    "epochs": ("run_epochs",),
    "pipeline": ("StatefulPipeline",),
    "savepoint_resource": ("SavepointResource",),
    "snapshot_assets": (
        "build_bootstrapped_asset",
        "build_materialization_asset",
        "build_rewritten_asset",
        "build_savepoint_asset",
    ),
    "spark_resource": ("DstlSparkResource",),
    "storage_resource": (
        "AzureCredentials",
        "DstlStorageResource",
        "EnvironmentCredentials",
        "GcsCredentials",
        "S3Credentials",
    ),
    "translator": ("DagsterDstlTranslator", "DstlTranslatorData"),
    "upload_resource": ("BatchingUploads", "DirectUploads", "UploadSchedulerResource"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AzureCredentials",
    "BatchingUploads",
    "DagsterDstlTranslator",
    "DirectUploads",
    "DstlSparkResource",
    "DstlStorageResource",
    "DstlTranslatorData",
    "EnvironmentCredentials",
    "GcsCredentials",
    "S3Credentials",
    "SavepointResource",
    "StatefulPipeline",
    "UploadSchedulerResource",
    "build_bootstrapped_asset",
    "build_dstl_asset_specs",
    "build_materialization_asset",
    "build_rewritten_asset",
    "build_savepoint_asset",
    "dstl_assets",
    "run_epochs",
]

DagsterLibraryRegistry.register("dagster-dstl", __version__, is_dagster_package=False)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"dstl_dagster.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
