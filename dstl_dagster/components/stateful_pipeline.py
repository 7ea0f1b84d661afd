"""``StatefulPipelineComponent``: keyed state between runs, in YAML only."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import dagster as dg

from dstl_core.codec.columnar.types.declared_schema import schema_of
from dstl_core.errors import ConfigError
from dstl_core.model.state_size import SMALL_LOG_BYTES
from dstl_dagster.attributes import shown
from dstl_dagster.checks.state_checks import StateCheck
from dstl_dagster.components.models import (
    EventsModel,
    EvolveModel,
    PartitionsModel,
    UploadsModel,
    WindowModel,
    asset_key_of,
)
from dstl_dagster.components.scaffolders import StatefulPipelineScaffolder
from dstl_dagster.components.state_models import StateModel, aggregates_of, declared
from dstl_dagster.components.translation import ComponentTranslator, Translation, translated
from dstl_dagster.option_kinds import check_options
from dstl_dagster.pipeline_defs import build_pipeline_defs
from dstl_dagster.pipelines.aggregates import aggregating_pipeline
from dstl_dagster.pipelines.asset_decorator import DEFAULT_RETRIES, dstl_assets
from dstl_dagster.pipelines.epochs import run_epochs
from dstl_dagster.pipelines.pipeline import NUM_RETAINED, StatefulPipeline
from dstl_dagster.resources.storage_resource import DstlStorageResource
from dstl_dagster.snapshots.edits import Rewrite
from dstl_dagster.translator import SPARK, DstlTranslatorData

_OTHERS = dict.fromkeys(["columns", "evolve", "uploads"])
"""Attributes that are another thing in YAML than in Python."""


@dg.scaffold_with(StatefulPipelineScaffolder)
@dataclass
class StatefulPipelineComponent(dg.Component, dg.Resolvable):
    """A pipeline with keyed state: its epochs, checkpoint, savepoints, sensors and checks.

    Give either ``states`` (aggregates of the rows of a key) or ``job`` (``package.module:function``
    that makes the job, as in ``StatefulPipeline``). The resources ``storage``, ``spark`` and
    ``local`` come from a ``DstlResourcesComponent``, or from the project's definitions.

    To change asset specs or execution, override ``get_asset_spec`` or ``execute`` in a subclass.
    """

    name: Annotated[
        str, shown("Name of the pipeline, and first part of its asset keys.", "payments")
    ]
    uid: Annotated[str, shown("Uid of the operator that holds the state.", "totals")]
    events: Annotated[
        EventsModel,
        shown("Source of the rows.", {"path": "data/payments", "partition_column": "day"}),
    ]
    partitions: Annotated[
        PartitionsModel, shown("Windows of input, one per partition.", {"start": "2026-01-01"})
    ]
    key_by: Annotated[str | None, shown("Column of the key; `states` need it.", "account")] = None
    key_type: Annotated[
        str | None, shown("Type of the key; by default that of `columns`.", "string", "bigint")
    ] = None
    columns: Annotated[
        str | None,
        shown(
            "Types of columns, for the key and the states that declare none. With a `job`, the "
            "columns that its functions get; by default those that they declare, or all.",
            "account string, amount bigint",
        ),
    ] = None
    ignore_columns: Annotated[
        list[str],
        shown("Patterns of columns that the functions of the `job` do not get.", ["_dlt_*"]),
    ] = field(default_factory=list)
    states: Annotated[
        dict[str, Any],
        dg.Resolver(
            declared,
            model_field_type=dict[str, StateModel],
            description="Name of each state to its aggregate.",
            examples=[{"total": {"how": "sum", "column": "amount"}}],
        ),
    ] = field(default_factory=dict)
    job: Annotated[
        str | None,
        shown("Function that makes the job, instead of `states`.", "my_project.jobs:open_job"),
    ] = None
    order_by: Annotated[
        list[str], shown("Columns by which the rows of a key apply.", ["created_at"])
    ] = field(default_factory=list)
    window: Annotated[
        WindowModel | None,
        shown(
            "Windows in event time: the aggregates are those of each key and window.",
            {"event_time": "created_at", "size": "1 h"},
        ),
    ] = None
    output: Annotated[
        bool | list[str] | None,
        shown(
            "Aggregates that an epoch gives for keys that changed, or for windows that fire; true "
            "gives all. By default all of windows, else none.",
            ["total"],
        ),
    ] = None
    engine: Annotated[
        str,
        shown(
            "Resource that runs the pipeline: `spark`; `local`, which needs neither Spark nor "
            "Java; or one of your project.",
            "local",
        ),
    ] = SPARK
    parallelism: Annotated[int, shown("Number of subtasks.", 2)] = 2
    max_parallelism: Annotated[
        int, shown("Number of key groups, fixed for the life of the state.", 128)
    ] = 128
    starts_from: Annotated[
        str | None, shown("Savepoint that the first epoch starts from.", "savepoints/orders")
    ] = None
    allow_non_restored_state: Annotated[
        bool, shown("Whether to leave out state of operators that the job lacks.", True)
    ] = False
    evolve: Annotated[
        EvolveModel | None,
        shown(
            "What becomes of state that an earlier definition wrote. Wider types are converted.",
            {"rename": {"total": "revenue"}},
        ),
    ] = None
    num_retained: Annotated[
        int, shown("Committed checkpoints that are kept at least; a run can go back to each.", 32)
    ] = NUM_RETAINED
    retain: Annotated[
        str | None,
        shown("Duration: younger checkpoints are kept as well, whatever their number.", "14 days"),
    ] = None
    materialize_at_ratio: Annotated[
        float | None,
        shown("Size of the log against the base at which a run folds the log into it.", 1.0),
    ] = 1.0
    small_log_bytes: Annotated[
        int, shown("Size below which a log stays as it is, whatever the ratio.", 1_048_576)
    ] = SMALL_LOG_BYTES
    uploads: Annotated[
        UploadsModel | None,
        shown("How changes are uploaded.", {"kind": "batching", "options": {"num_threads": 5}}),
    ] = None
    outputs: Annotated[
        list[str],
        shown(
            "Operators of the `job` whose output is an asset; `<uid>.late` for late rows.",
            ["totals"],
        ),
    ] = field(default_factory=list)
    serializers: Annotated[
        str | None,
        shown(
            "Registry of types with the serializers of the `job`.", "my_project.types:serializers"
        ),
    ] = None
    show_keys: Annotated[bool, shown("Whether metadata may show keys and values.", True)] = False
    rewrite: Annotated[
        Rewrite | None,
        shown("An edited copy of each savepoint.", {"rename": {"totals": "sums"}}),
    ] = None
    checks: Annotated[
        list[StateCheck],
        shown(
            "Checks of the state in SQL.",
            [{"uid": "totals", "sql": "SELECT state_key FROM {state} WHERE total < 0"}],
        ),
    ] = field(default_factory=list)
    max_retries: Annotated[int, shown("Times that Dagster retries a failed run of epochs.", 3)] = 3
    pool: Annotated[str | None, shown("Dagster's concurrency pool.", "payments")] = None
    io_manager_key: Annotated[
        str | None,
        shown(
            "Resource that loads state and output where an input names none: a `DstlIOManager`.",
            "dstl",
        ),
    ] = None
    op_tags: Annotated[
        dict[str, str], shown("Tags of the op of the epochs.", {"dagster/priority": "2"})
    ] = field(default_factory=dict)
    automation_condition: Annotated[
        dg.AutomationCondition | None,
        shown(
            "Condition under which Dagster runs the epochs of new windows by itself.",
            "{{ dg.AutomationCondition.on_cron('15 * * * *') }}",
            model_field_type=str | None,
        ),
    ] = None
    epochs_schedule: Annotated[
        str | None,
        shown("Cron of a schedule that runs all windows which are due.", "10 0 * * *"),
    ] = None
    max_log_ratio: Annotated[
        float, shown("Size of the log against the base at which the sensor acts.", 1.0)
    ] = 1.0
    sensor_interval_seconds: Annotated[int, shown("Seconds between two ticks of a sensor.", 60)] = (
        60
    )
    sensors_running: Annotated[bool, shown("Whether sensors run by default.", True)] = False
    materialization_schedule: Annotated[
        str | None, shown("Cron of the materialization; null for none.", "0 3 * * *")
    ] = "0 3 * * *"
    verify_schedule: Annotated[
        str | None, shown("Cron of the full check of the checkpoint; null for none.", "30 4 * * *")
    ] = "30 4 * * *"
    with_jobs: Annotated[
        bool, shown("Whether there are jobs, and the sensors and schedules of jobs.", False)
    ] = True
    with_sensors: Annotated[bool, shown("Whether there are sensors.", False)] = True
    unique_keys: Annotated[
        bool,
        shown(
            "Whether the last part of each asset key names the pipeline; false keeps the keys of "
            "versions before, e.g. `payments/state/totals`.",
            False,
        ),
    ] = True
    translation: Translation = None

    @property
    def pipeline(self) -> StatefulPipeline:
        """The pipeline that the YAML describes.

        Raises:
            ConfigError: Attributes contradict each other: both a job and states, or neither.
        """
        if (self.job is None) == (not self.states):
            raise ConfigError(f"The pipeline {self.name!r} needs either states or a job, not both.")
        shared: dict[str, Any] = {
            "starts_from": self.starts_from,
            "allow_non_restored_state": self.allow_non_restored_state,
            "evolve": None if self.evolve is None else self.evolve.model_dump(),
            "num_retained": self.num_retained,
            "retain": self.retain,
            "materialize_at_ratio": self.materialize_at_ratio,
            "small_log_bytes": self.small_log_bytes,
            "uploads": None if self.uploads is None else self.uploads.build(),
            "show_keys": self.show_keys,
            "engine": self.engine,
            "translator": ComponentTranslator(self),
        }
        if self.job is not None:
            if self.window is not None:
                raise ConfigError(
                    f"The pipeline {self.name!r} has a window, which belongs to states; the "
                    f"function of its job declares its own windows."
                )
            return StatefulPipeline(
                self.name,
                self.uid,
                self.job,
                order_by=self.order_by,
                outputs=self.outputs,
                columns=None
                if self.columns is None
                else schema_of(self.columns, "The columns of the job").names,
                ignore_columns=self.ignore_columns,
                serializers=self.serializers,
                **shared,
            )
        self._refuse_options_of_a_job()
        if self.key_by is None:
            raise ConfigError(f"The pipeline {self.name!r} has states but no key_by.")
        return aggregating_pipeline(
            self.name,
            uid=self.uid,
            key_by=self.key_by,
            key_type=self.key_type,
            schema=self.columns,
            states=aggregates_of(self.name, self.states),
            output=self.output,
            parallelism=self.parallelism,
            max_parallelism=self.max_parallelism,
            windows=None if self.window is None else self.window.build(),
            **shared,
        )

    def _refuse_options_of_a_job(self) -> None:
        """Raises ConfigError if states come with what only the function of a job can use."""
        reasons = {
            "serializers": "states have built-in types",
            "ignore_columns": "states read only the columns that they name",
            "order_by": "states that depend on an order have their own",
            "outputs": "states have output",
        }
        for option, reason in reasons.items():
            if getattr(self, option):
                verb = "belongs" if option == "order_by" else "belong"
                article = "an " if option == "order_by" else ""
                raise ConfigError(
                    f"The pipeline {self.name!r} has {article}{option}, which {verb} to a job; "
                    f"{reason}."
                )

    def get_asset_spec(self, data: DstlTranslatorData) -> dg.AssetSpec:
        """The spec of one part; override it to rename or describe assets."""
        return translated(self.translation, data, unique_keys=self.unique_keys)

    def execute(
        self, context: dg.AssetExecutionContext, storage: DstlStorageResource, engine: Any
    ) -> Iterator[Any]:
        """Runs the epochs of a run; override it to add to that."""
        yield from run_epochs(
            context, self.pipeline, self.events.read, storage=storage, engine=engine
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        owner = f"pipeline {self.name!r}"
        check_options(owner, type(self), vars(self), but=_OTHERS)
        check_options(f"the events of {owner}", EventsModel, vars(self.events))
        if self.evolve is not None:
            check_options(f"evolve of {owner}", EvolveModel, vars(self.evolve))
        pipeline = self.pipeline
        component = self
        upstream = [asset_key_of(self.events.asset)] if self.events.asset else []

        @dstl_assets(
            pipeline=pipeline,
            partitions_def=self.partitions.build(),
            deps=upstream,
            pool=self.pool,
            io_manager_key=self.io_manager_key,
            op_tags=self.op_tags,
            automation_condition=self.automation_condition,
            retry_policy=DEFAULT_RETRIES._replace(max_retries=self.max_retries),
            required_resource_keys={"storage", self.engine},
        )
        def epochs(context: dg.AssetExecutionContext) -> Iterator[Any]:
            resources = context.resources
            engine = getattr(resources, component.engine)
            yield from component.execute(context, resources.storage, engine)

        return build_pipeline_defs(
            pipeline,
            [epochs],
            checks=self.checks,
            rewrite=self.rewrite,
            max_log_ratio=self.max_log_ratio,
            sensor_interval_seconds=self.sensor_interval_seconds,
            sensors_running=self.sensors_running,
            epochs_schedule=self.epochs_schedule,
            materialization_schedule=self.materialization_schedule,
            verify_schedule=self.verify_schedule,
            with_jobs=self.with_jobs,
            with_sensors=self.with_sensors,
        )
