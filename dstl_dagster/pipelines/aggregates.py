"""Pipelines of declared aggregates: a state per aggregate of the rows of a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dstl_core.codec.declared_type import SchemaLike, TypeLike
from dstl_core.errors import ConfigError
from dstl_core.flink_text import DurationLike
from dstl_core.functions import WINDOW_CONTENTS
from dstl_core.model.key_group import check_parallelism
from dstl_core.model.state_size import SMALL_LOG_BYTES
from dstl_dagster.option_kinds import check_options
from dstl_dagster.pipelines.pipeline import NUM_RETAINED, StatefulPipeline
from dstl_dagster.resources.upload_resource import UploadSchedulerResource
from dstl_dagster.translator import SPARK, DagsterDstlTranslator

if TYPE_CHECKING:
    from dstl_core.aggregates import Aggregate
    from dstl_core.job.spec.operators import AggregateOperator
    from dstl_core.state.windows.windowing import WindowAssigner
    from dstl_core.stateful_job import StatefulJob


@dataclass(frozen=True)
class EventTimeWindows:
    """Windows of the aggregates of a pipeline, as in ``AggregateOperator``. The output has their
    start and end in milliseconds.

    Args:
        window: Tumbling, sliding or session windows in event time, of ``dstl_core.windows``.
        event_time: The column with the time of a row: a timestamp, or milliseconds.
        out_of_orderness_ms: How far the watermark stays behind the largest time of a batch:
            milliseconds, text such as ``"5 min"``, or a ``timedelta``.
        allowed_lateness: How long a window is kept after its end, in the same forms.
        side_output_late_data: Columns of late rows, as a schema in any form. With it they are the
            output ``<uid>.late``, and an asset of its own.
    """

    window: WindowAssigner
    event_time: str
    out_of_orderness_ms: DurationLike = 0
    allowed_lateness: DurationLike = 0
    side_output_late_data: SchemaLike = None


@dataclass(frozen=True)
class AggregatingJob:
    """Makes the job of a pipeline of aggregates.

    Raises:
        ConfigError: The windows are no ``EventTimeWindows``, or there are more subtasks than key
            groups.
    """

    name: str
    uid: str
    key_by: str
    states: Mapping[str, Aggregate]
    parallelism: int
    max_parallelism: int
    key_type: TypeLike = None
    schema: SchemaLike = None
    output: bool | Sequence[str] | None = None
    windows: EventTimeWindows | None = None

    def __post_init__(self) -> None:
        _check_windows(self.name, self.windows)
        check_parallelism(self.parallelism, self.max_parallelism, self.uid)

    @property
    def operator(self) -> AggregateOperator:
        from dstl_core.job.spec.operators import AggregateOperator

        windows = {} if self.windows is None else vars(self.windows)
        return AggregateOperator(
            self.uid,
            self.key_by,
            self.states,
            self.key_type,
            self.schema,
            output=self.output,
            **windows,
        )

    @property
    def outputs(self) -> list[str]:
        from dstl_core.job.spec.operators import output_names_of

        return output_names_of(self.operator)

    def __call__(self, session: Any, base_path: str) -> StatefulJob:
        from dstl_core.stateful_job import StatefulJob

        return StatefulJob(
            session,
            self.name,
            base_path,
            self.operator,
            parallelism=self.parallelism,
            max_parallelism=self.max_parallelism,
        )


def aggregating_pipeline(
    name: str,
    *,
    uid: str,
    key_by: str,
    states: Mapping[str, Aggregate],
    key_type: TypeLike = None,
    schema: SchemaLike = None,
    output: bool | Sequence[str] | None = None,
    windows: EventTimeWindows | None = None,
    parallelism: int = 2,
    max_parallelism: int = 128,
    starts_from: str | None = None,
    allow_non_restored_state: bool = False,
    evolve: Mapping[str, Any] | None = None,
    num_retained: int = NUM_RETAINED,
    retain: str | None = None,
    materialize_at_ratio: float | None = 1.0,
    small_log_bytes: float = SMALL_LOG_BYTES,
    uploads: UploadSchedulerResource | None = None,
    show_keys: bool = False,
    engine: str = SPARK,
    translator: DagsterDstlTranslator | None = None,
) -> StatefulPipeline:
    """A pipeline of a state per aggregate and key. Raises ConfigError if a type is unknown.

    Args:
        name: Name of the pipeline.
        uid: Uid of the operator.
        key_by: Column of the key.
        states: State name to aggregate, of ``dstl_core.aggregates``.
        key_type: Type of the key in any form, e.g. ``"bigint"``; None: from ``schema``.
        schema: The columns of the rows in any form, for types that are not declared.
        output: The aggregates that an epoch gives. True: all; None: all with ``windows``, or none.
        windows: Windows in event time: the aggregates are those of each key and window.
        parallelism: Number of subtasks.
        max_parallelism: Number of key groups.
        starts_from: Savepoint to start from.
        allow_non_restored_state: As in ``StatefulPipeline``.
        evolve: As in ``StatefulPipeline``, by names of ``states``.
        num_retained: As in ``StatefulPipeline``.
        retain: As in ``StatefulPipeline``.
        materialize_at_ratio: As in ``StatefulPipeline``.
        small_log_bytes: As in ``StatefulPipeline``.
        uploads: How changes are uploaded.
        show_keys: Whether metadata may show keys and values.
        engine: As in ``StatefulPipeline``.
        translator: Names of the assets.
    """
    check_options(f"pipeline {name!r}", aggregating_pipeline, locals())
    groups = (parallelism, max_parallelism)
    job = AggregatingJob(name, uid, key_by, states, *groups, key_type, schema, output, windows)
    return StatefulPipeline(
        name,
        uid,
        job,
        starts_from=starts_from,
        allow_non_restored_state=allow_non_restored_state,
        evolve=evolve,
        materialize_at_ratio=materialize_at_ratio,
        small_log_bytes=small_log_bytes,
        uploads=uploads,
        outputs=job.outputs,
        show_keys=show_keys,
        num_retained=num_retained,
        retain=retain,
        lineage=_lineage(job.operator, key_by),
        engine=engine,
        translator=translator or DagsterDstlTranslator(),
    )


def _check_windows(name: str, windows: Any) -> None:
    if windows is not None and not isinstance(windows, EventTimeWindows):
        raise ConfigError(
            f"The windows of pipeline {name!r} are wrong: expected EventTimeWindows(..), got "
            f"{windows!r}."
        )


def _lineage(operator: AggregateOperator, key_by: str) -> dict[str, list[str]]:
    """The columns of the events that each column of the state comes from."""
    if operator.window is not None:
        return {"state_key": [key_by], WINDOW_CONTENTS: operator.columns}
    states = {
        state.name: list(aggregate.columns) or [key_by]
        for (_, aggregate), merge in zip(operator.items, operator.function.merges, strict=True)
        for state in merge.states
    }
    return {"state_key": [key_by], **states}
