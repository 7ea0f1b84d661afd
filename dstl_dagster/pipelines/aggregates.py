"""Pipelines without a function of one's own: a state per aggregate of the rows of a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from dstl_core.codec.declared_type import TypeLike, declared_type
from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError
from dstl_core.functions import Context, KeyedProcessFunction, Row, RuntimeContext
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_dagster.pipelines.pipeline import NUM_RETAINED, StatefulPipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dstl_core.spark.job.stateful_job import StatefulJob

How = Literal["count", "count_null", "sum", "min", "max", "first", "last"]
_ORDERED = ("first", "last")
_WITHOUT_COLUMN = ("count",)


@dataclass(frozen=True)
class Aggregate:
    """One state per key.

    Args:
        how: count (rows), count_null, sum, min, max, first, last. Null values count for count and
            count_null only.
        column: What is aggregated; count needs none.
        type: Type of the state in any form, e.g. ``"double"`` or ``"timestamp"``; counts are long.
    """

    how: How
    column: str | None = None
    type: TypeLike = "long"

    def __post_init__(self) -> None:
        if self.how not in get_args(How):
            known = ", ".join(get_args(How))
            raise ConfigError(f"An aggregate is one of {known}, got {self.how!r}.")
        if self.column is None and self.how not in _WITHOUT_COLUMN:
            raise ConfigError(f"The aggregate {self.how} needs a column.")
        declared_type(self.type, f"The aggregate {self.how} of {self.column!r}")

    @property
    def state_type(self) -> TypeLike:
        return Types.LONG if self.how.startswith("count") else self.type

    def fold(self, held: Any, value: Any) -> Any:
        """What the state holds after a row whose column has ``value``; None: as before."""
        match self.how:
            case "count":
                return (held or 0) + 1
            case "count_null":
                return (held or 0) + (value is None)
            case _ if value is None:
                return None
            case "sum":
                return value if held is None else held + value
            case "min":
                return value if held is None else min(held, value)
            case "max":
                return value if held is None else max(held, value)
            case "first":
                return value if held is None else None
            case _:
                return value


class AggregatingFunction(KeyedProcessFunction):
    """Folds each row into the states of its key."""

    def __init__(self, states: Mapping[str, Aggregate]) -> None:
        self._aggregates = dict(states)
        # Read by the job before it accepts a batch without an order.
        self.order_insensitive = not any(each.how in _ORDERED for each in states.values())

    def open(self, runtime_context: RuntimeContext) -> None:
        self._states = [
            (aggregate, runtime_context.get_state(ValueStateDescriptor(name, aggregate.state_type)))
            for name, aggregate in self._aggregates.items()
        ]

    def process_element(self, value: Row, ctx: Context) -> None:
        for aggregate, state in self._states:
            column = aggregate.column
            result = aggregate.fold(state.value(), None if column is None else value[column])
            if result is not None:
                state.update(result)


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

    def __call__(self, session: SparkSession, base_path: str) -> StatefulJob:
        from dstl_core.spark.job.stateful_job import StatefulJob
        from dstl_core.spark.task.operators import KeyedOperator

        operator = KeyedOperator(
            self.uid, self.key_by, self.key_type, AggregatingFunction(self.states)
        )
        return StatefulJob(
            session,
            self.name,
            base_path,
            operator,
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
    parallelism: int = 2,
    max_parallelism: int = 128,
    starts_from: str | None = None,
    num_retained: int = NUM_RETAINED,
) -> StatefulPipeline:
    """A pipeline that keeps one state per aggregate and key.

    Args:
        name: Of the pipeline.
        uid: Of its operator.
        key_by: Column of the key.
        states: State name to aggregate.
        key_type: Type of the key in any form, e.g. ``"bigint"``.
        order_by: Order of a key's rows; first and last need one.
        parallelism: Subtasks.
        max_parallelism: Key groups.
        starts_from: Savepoint to start from.
        num_retained: Committed checkpoints that are kept; a run can go back to each.

    Raises:
        ConfigError: There is no state, a type is unknown, or an order is missing.
    """
    if not states:
        raise ConfigError(f"The pipeline {name!r} has no state; give it at least one aggregate.")
    if not order_by and any(each.how in _ORDERED for each in states.values()):
        raise ConfigError(f"The pipeline {name!r} takes the first or last value; give an order_by.")
    declared_type(key_type, f"The key of pipeline {name!r}")
    job = AggregatingJob(name, uid, key_by, key_type, states, parallelism, max_parallelism)
    pipeline = StatefulPipeline(
        name, uid, job, order_by=order_by, starts_from=starts_from, num_retained=num_retained
    )
    lineage = {state: [each.column or key_by] for state, each in states.items()}
    return replace(pipeline, lineage={"state_key": [key_by], **lineage})
