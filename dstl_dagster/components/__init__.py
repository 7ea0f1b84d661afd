"""Components: pipelines and savepoints in YAML."""

from dstl_dagster.components.savepoint import SavepointComponent
from dstl_dagster.components.stateful_pipeline import StatefulPipelineComponent

__all__ = ["SavepointComponent", "StatefulPipelineComponent"]
