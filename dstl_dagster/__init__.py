"""The Dagster plugin: state as lineage-tracked assets.

Importing it loads no PySpark; ``DstlSparkResource`` does, on first use of its name.
"""

from typing import TYPE_CHECKING, Any

from dagster_shared.libraries import DagsterLibraryRegistry

from dstl_core import __version__
from dstl_dagster.metadata import checkpoint_metadata
from dstl_dagster.storage_resource import DstlStorageResource

if TYPE_CHECKING:
    from dstl_dagster.spark_resource import DstlSparkResource

__all__ = ["DstlSparkResource", "DstlStorageResource", "checkpoint_metadata"]

DagsterLibraryRegistry.register("dagster-dstl", __version__, is_dagster_package=False)


def __getattr__(name: str) -> Any:
    if name == "DstlSparkResource":
        from dstl_dagster.spark_resource import DstlSparkResource

        return DstlSparkResource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
