"""``StatefulPipelineComponent``: keyed state between runs, in YAML only."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from dstl_core.errors import ConfigError
from dstl_dagster.checks.state_checks import build_state_check
from dstl_dagster.components.models import (
    AggregateModel,
    EventsModel,
    PartitionsModel,
    RewriteModel,
    StateCheckModel,
    asset_key_of,
)
from dstl_dagster.pipeline_defs import build_pipeline_defs
from dstl_dagster.pipelines.aggregates import aggregating_pipeline
from dstl_dagster.pipelines.asset_decorator import dstl_assets
from dstl_dagster.pipelines.epochs import run_epochs
from dstl_dagster.pipelines.pipeline import NUM_RETAINED, StatefulPipeline
from dstl_dagster.resources.spark_resource import DstlSparkResource
from dstl_dagster.resources.storage_resource import DstlStorageResource
from dstl_dagster.snapshots.sources import checkpoint_of
from dstl_dagster.translator import DagsterDstlTranslator, DstlTranslatorData


class _ComponentTranslator(DagsterDstlTranslator):
    def __init__(self, component: "StatefulPipelineComponent") -> None:
        self._component = component

    def get_asset_spec(self, data: DstlTranslatorData) -> dg.AssetSpec:
        return self._component.get_asset_spec(data)


class StatefulPipelineScaffolder(dg.Scaffolder[Any]):
    """Writes a ``defs.yaml`` for a folder of Parquet files."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        dg.scaffold_component(
            request,
            {
                "name": "payments",
                "uid": "totals",
                "events": {"path": "data/payments", "partition_column": "day"},
                "partitions": {"start": "2026-01-01"},
                "key_by": "account",
                "states": {
                    "payments": {"how": "count"},
                    "total": {"how": "sum", "column": "amount", "type": "double"},
                },
            },
        )


@dg.scaffold_with(StatefulPipelineScaffolder)
@dataclass
class StatefulPipelineComponent(dg.Component, dg.Resolvable):
    """A pipeline with keyed state: its epochs, checkpoint, savepoints, sensors and checks.

    Give either ``states`` (aggregates of the rows of a key) or ``job`` (``package.module:function``
    that makes the job, as in ``StatefulPipeline``). The resources ``storage`` and ``spark`` come
    from the project's definitions.

    To change asset specs or execution, override ``get_asset_spec`` or ``execute`` in a subclass.
    """

    name: str
    uid: str
    events: EventsModel
    partitions: PartitionsModel
    key_by: str | None = None
    key_type: str = "string"
    states: dict[str, AggregateModel] = field(default_factory=dict)
    job: str | None = None
    order_by: list[str] = field(default_factory=list)
    parallelism: int = 2
    max_parallelism: int = 128
    starts_from: str | None = None
    num_retained: int = NUM_RETAINED
    materialize_at_ratio: float | None = 1.0
    rewrite: RewriteModel | None = None
    checks: list[StateCheckModel] = field(default_factory=list)
    pool: str | None = None
    max_log_ratio: float = 1.0
    sensor_interval_seconds: int = 60
    sensors_running: bool = False
    materialization_cron: str | None = "0 3 * * *"
    verify_cron: str | None = "30 4 * * *"
    with_jobs: bool = True
    with_sensors: bool = True

    @property
    def pipeline(self) -> StatefulPipeline:
        """The pipeline that the YAML describes.

        Raises:
            ConfigError: Both a job and states are given, or neither is.
        """
        translator = _ComponentTranslator(self)
        if (self.job is None) == (not self.states):
            raise ConfigError(f"The pipeline {self.name!r} needs either states or a job, not both.")
        if self.job is not None:
            return StatefulPipeline(
                self.name,
                self.uid,
                self.job,
                order_by=self.order_by,
                starts_from=self.starts_from,
                num_retained=self.num_retained,
                materialize_at_ratio=self.materialize_at_ratio,
                translator=translator,
            )
        if self.key_by is None:
            raise ConfigError(f"The pipeline {self.name!r} has states but no key_by.")
        return aggregating_pipeline(
            self.name,
            uid=self.uid,
            key_by=self.key_by,
            key_type=self.key_type,
            states={name: state.build() for name, state in self.states.items()},
            order_by=self.order_by,
            parallelism=self.parallelism,
            max_parallelism=self.max_parallelism,
            starts_from=self.starts_from,
            num_retained=self.num_retained,
            materialize_at_ratio=self.materialize_at_ratio,
            translator=translator,
        )

    def get_asset_spec(self, data: DstlTranslatorData) -> dg.AssetSpec:
        """The spec of one part; override it to rename or describe assets."""
        return DagsterDstlTranslator().get_asset_spec(data)

    def execute(
        self,
        context: dg.AssetExecutionContext,
        storage: DstlStorageResource,
        spark: DstlSparkResource,
    ) -> Iterator[Any]:
        """Runs the epochs of a run; override it to add to that."""
        yield from run_epochs(
            context, self.pipeline, self.events.read, storage=storage, spark=spark
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of the pipeline."""
        pipeline = self.pipeline
        component = self
        upstream = [asset_key_of(self.events.asset)] if self.events.asset else []

        @dstl_assets(
            pipeline=pipeline,
            partitions_def=self.partitions.build(),
            deps=upstream,
            pool=self.pool,
        )
        def epochs(
            context: dg.AssetExecutionContext,
            storage: DstlStorageResource,
            spark: DstlSparkResource,
        ) -> Iterator[Any]:
            yield from component.execute(context, storage, spark)

        rewrite = self.rewrite
        defs = build_pipeline_defs(
            pipeline,
            [epochs],
            rewrite=None if rewrite is None else {"name": rewrite.name, **rewrite.edit()},
            max_log_ratio=self.max_log_ratio,
            sensor_interval_seconds=self.sensor_interval_seconds,
            sensors_running=self.sensors_running,
            materialization_cron=self.materialization_cron,
            verify_cron=self.verify_cron,
            with_jobs=self.with_jobs,
            with_sensors=self.with_sensors,
        )
        checks = [
            build_state_check(
                check.uid,
                check.sql,
                asset=pipeline.key("checkpoint"),
                source=checkpoint_of(pipeline),
                **check.arguments(),
            )
            for check in self.checks
        ]
        return dg.Definitions.merge(defs, dg.Definitions(asset_checks=checks))
