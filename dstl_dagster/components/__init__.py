"""Components: pipelines, savepoints and resources in YAML."""

from dstl_dagster.components.dstl_resources import DstlResourcesComponent
from dstl_dagster.components.savepoint import SavepointComponent
from dstl_dagster.components.stateful_pipeline import StatefulPipelineComponent

__all__ = ["DstlResourcesComponent", "SavepointComponent", "StatefulPipelineComponent"]
