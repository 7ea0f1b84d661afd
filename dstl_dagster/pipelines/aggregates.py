"""Pipelines of declared aggregates: a state per aggregate of the rows of a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dstl_core.aggregates import DEFAULT_SIZES, FIXED_TYPES, How, check_how
from dstl_core.aggregates import Aggregate as DeclaredAggregate
from dstl_core.codec.declared_type import SchemaLike, TypeLike, declared_type
from dstl_core.codec.python_values import function_type, stored_type
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.errors import ConfigError
from dstl_core.flink_text import DurationLike
from dstl_core.functions import WINDOW_CONTENTS
from dstl_dagster.pipelines.pipeline import NUM_RETAINED, SMALL_LOG_BYTES, StatefulPipeline
from dstl_dagster.resources.upload_resource import UploadSchedulerResource
from dstl_dagster.translator import SPARK, DagsterDstlTranslator

if TYPE_CHECKING:
    from dstl_core.job.spec.operators import AggregateOperator
    from dstl_core.state.windows.windowing import WindowAssigner
    from dstl_core.stateful_job import StatefulJob


@dataclass(frozen=True)
class Aggregate:
    """One aggregate per key: one state, or several. ``dstl_core.aggregates`` says what each keeps.

    Args:
        how: Name of the aggregate, for example ``"sum"``.
        column: The column to aggregate; count needs none.
        type: Type of the state in any form, e.g. ``"double"`` or ``"timestamp"``. By default that
            of avg (its sum), variance and stddev is double, that of all others long. Of a list it
            is the type of a value.
        order_by: Column of the order for first, last, min_by, max_by, collect_list and last_values.
            The order is state, too. Without it, first and last take the rows in the order of the
            pipeline.
        order_type: Type of that order in any form; long by default.
        size: How many values a list keeps, or the size of a sketch: ``lg_k`` or ``k``.
        points: The probabilities of quantiles, or where the buckets of a histogram meet.

    Raises:
        ConfigError: There is no such aggregate, it lacks its column or its order, or its type
            cannot hold it.
    """

    how: How
    column: str | None = None
    type: TypeLike | None = None
    order_by: str | None = None
    order_type: TypeLike | None = None
    size: int | None = None
    points: Sequence[float] = ()

    def __post_init__(self) -> None:
        check_how(self.how)
        # Arrow is loaded only where aggregates are declared.
        from dstl_core.operators.merge_choice import merge_of

        # Refuses what the type cannot hold.
        declared = self.declared([self.column or ""])
        merge_of("", self.how, declared, self.state_type, self.order_state_type)

    @property
    def is_in_order_of_pipeline(self) -> bool:
        """Whether it takes the rows in the order of the pipeline."""
        return self.how in ("first", "last") and self.order_by is None

    @property
    def state_type(self) -> AnySerializer:
        """The Flink type of the state."""
        return _stored(self._type, f"The aggregate {self.how} of {self.column!r}")

    @property
    def _type(self) -> TypeLike:
        """The type of the state as it was declared, with the digits of a decimal."""
        if self.how.startswith("count"):
            return Types.LONG
        return FIXED_TYPES.get(self.how, "long") if self.type is None else self.type

    @property
    def _order_type(self) -> TypeLike:
        return "long" if self.order_type is None else self.order_type

    @property
    def order_state_type(self) -> AnySerializer:
        """The Flink type of the state of the order."""
        where = f"The order of the aggregate {self.how} of {self.column!r}"
        return _stored(self._order_type, where)

    def declared(self, order_by: Sequence[str]) -> DeclaredAggregate:
        """The aggregate of the operator. ``order_by`` is the order of the pipeline."""
        column = None if self.how == "count" else self.column
        if self.is_in_order_of_pipeline:
            order = tuple(order_by)
            return DeclaredAggregate(self.how, column, self._type, order, keeps_order=False)
        return DeclaredAggregate(
            self.how,
            column,
            self._type,
            () if self.order_by is None else (self.order_by,),
            self._order_type,
            size=DEFAULT_SIZES.get(self.how, 0) if self.size is None else self.size,
            points=self.points,
        )


def _stored(given: TypeLike, where: str) -> AnySerializer:
    return stored_type(function_type(declared_type(given, where)))


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
    """Makes the job of a pipeline of aggregates."""

    name: str
    uid: str
    key_by: str
    key_type: TypeLike
    states: Mapping[str, Aggregate]
    parallelism: int
    max_parallelism: int
    order_by: Sequence[str] = ()
    output: bool | Sequence[str] | None = None
    windows: EventTimeWindows | None = None

    @property
    def operator(self) -> AggregateOperator:
        """The operator of the job."""
        from dstl_core.job.spec.operators import AggregateOperator

        windows = {} if self.windows is None else vars(self.windows)
        return AggregateOperator(
            self.uid,
            self.key_by,
            {name: each.declared(self.order_by) for name, each in self.states.items()},
            self.key_type,
            output=self.output,
            **windows,
        )

    @property
    def outputs(self) -> list[str]:
        """The names of what the operator gives."""
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
    key_type: TypeLike = "string",
    order_by: Sequence[str] = (),
    output: bool | Sequence[str] | None = None,
    windows: EventTimeWindows | None = None,
    parallelism: int = 2,
    max_parallelism: int = 128,
    starts_from: str | None = None,
    num_retained: int = NUM_RETAINED,
    retain: str | None = None,
    materialize_at_ratio: float | None = 1.0,
    small_log_bytes: int = SMALL_LOG_BYTES,
    uploads: UploadSchedulerResource | None = None,
    show_keys: bool = False,
    engine: str = SPARK,
    translator: DagsterDstlTranslator | None = None,
) -> StatefulPipeline:
    """A pipeline that keeps one state per aggregate and key.

    Args:
        name: Name of the pipeline.
        uid: Uid of the operator.
        key_by: Column of the key.
        states: State name to aggregate.
        key_type: Type of the key in any form, e.g. ``"bigint"``.
        order_by: Order of a key's rows; first and last need one, unless they have their own.
        output: The aggregates that an epoch gives, as an asset of its own: for each key that
            changed or window that fires. True: all; None: all with ``windows``, else none.
        windows: Windows in event time: the aggregates are those of each key and window.
        parallelism: Number of subtasks.
        max_parallelism: Number of key groups.
        starts_from: Savepoint to start from.
        num_retained: Committed checkpoints that are kept at least; a run can go back to each.
        retain: As in ``StatefulPipeline``.
        materialize_at_ratio: As in ``StatefulPipeline``.
        small_log_bytes: As in ``StatefulPipeline``.
        uploads: How changes are uploaded.
        show_keys: Whether metadata may show keys and values.
        engine: As in ``StatefulPipeline``.
        translator: Names of the assets.

    Raises:
        ConfigError: There is no state, a type is unknown, or an order is missing.
    """
    _check(name, states, key_type, order_by, windows)
    job = AggregatingJob(
        name, uid, key_by, key_type, states, parallelism, max_parallelism, order_by, output, windows
    )
    return StatefulPipeline(
        name,
        uid,
        job,
        order_by=order_by,
        starts_from=starts_from,
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


def _check(
    name: str,
    states: Mapping[str, Aggregate],
    key_type: TypeLike,
    order_by: Sequence[str],
    windows: EventTimeWindows | None,
) -> None:
    if not states:
        raise ConfigError(f"The pipeline {name!r} has no state; give it at least one aggregate.")
    if not isinstance(states, Mapping):
        raise ConfigError(
            f"The states of pipeline {name!r} are wrong: expected a mapping of names to "
            f"aggregates, got a {type(states).__name__}."
        )
    for state, each in states.items():
        if not isinstance(each, Aggregate):
            raise ConfigError(
                f"The state {state!r} of pipeline {name!r} is wrong: expected an "
                f"Aggregate of dstl_dagster, such as Aggregate('count'), got {each!r}."
            )
    if not order_by and any(each.is_in_order_of_pipeline for each in states.values()):
        raise ConfigError(f"The pipeline {name!r} takes the first or last value; give an order_by.")
    declared_type(key_type, f"The key of pipeline {name!r}")
    _check_windows(name, windows)


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
