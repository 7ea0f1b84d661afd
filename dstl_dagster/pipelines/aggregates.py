"""Pipelines of declared aggregates: a state per aggregate of the rows of a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from dstl_core.aggregates import Aggregate as DeclaredAggregate
from dstl_core.codec.declared_type import TypeLike, declared_type
from dstl_core.codec.python_values import function_type, stored_type
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.errors import ConfigError
from dstl_dagster.pipelines.pipeline import NUM_RETAINED, StatefulPipeline
from dstl_dagster.translator import DagsterDstlTranslator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dstl_core.spark.job.stateful_job import StatefulJob

_IN_ORDER = ("first", "last")
_TYPES = {"avg": "double", "variance": "double", "bool_and": "boolean", "bool_or": "boolean"}
How = Literal[
    "count",
    "count_null",
    "sum",
    "min",
    "max",
    "first",
    "last",
    "avg",
    "variance",
    "bool_and",
    "bool_or",
]


@dataclass(frozen=True)
class Aggregate:
    """One aggregate per key, a state or, for avg and variance, several.

    Args:
        how: count (rows), count_null, sum, min, max, first, last, avg, variance, bool_and, bool_or.
            Null values count for count and count_null only. ``dstl_core.aggregates`` says what each
            keeps.
        column: The column to aggregate; count needs none.
        type: Type of the state in any form, e.g. ``"double"`` or ``"timestamp"``. By default that
            of avg (its sum) and variance is double, that of all others long.
    """

    how: How
    column: str | None = None
    type: TypeLike | None = None

    def __post_init__(self) -> None:
        if self.how not in get_args(How):
            known = ", ".join(get_args(How))
            raise ConfigError(f"An aggregate is one of {known}, got {self.how!r}.")
        self.state_names(self.how)  # refuses what the type cannot hold

    @property
    def state_type(self) -> AnySerializer:
        """The Flink type of the state."""
        if self.how.startswith("count"):
            return Types.LONG
        given = _TYPES.get(self.how, "long") if self.type is None else self.type
        where = f"The aggregate {self.how} of {self.column!r}"
        return stored_type(function_type(declared_type(given, where)))

    def state_names(self, name: str) -> list[str]:
        """The states of an aggregate of this name."""
        # Arrow is loaded only where aggregates are declared.
        from dstl_core.operators.aggregate_merge import merge_of

        merge = merge_of(name, self.declared([self.column or ""]), self.state_type, Types.LONG)
        return [each.name for each in merge.states]

    def declared(self, order_by: Sequence[str]) -> DeclaredAggregate:
        """The aggregate of the operator, whose rows come in an order, batch by batch."""
        column = None if self.how == "count" else self.column
        if self.how not in _IN_ORDER:
            return DeclaredAggregate(self.how, column, self.state_type)
        order = tuple(order_by)
        return DeclaredAggregate(self.how, column, self.state_type, order, keeps_order=False)


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

    def __call__(self, session: SparkSession, base_path: str) -> StatefulJob:
        from dstl_core.spark.job.stateful_job import StatefulJob
        from dstl_core.spark.task.operators import AggregateOperator

        declared = {name: each.declared(self.order_by) for name, each in self.states.items()}
        operator = AggregateOperator(self.uid, self.key_by, declared, self.key_type)
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
    materialize_at_ratio: float | None = 1.0,
    translator: DagsterDstlTranslator | None = None,
) -> StatefulPipeline:
    """A pipeline that keeps one state per aggregate and key.

    Args:
        name: Name of the pipeline.
        uid: Uid of the operator.
        key_by: Column of the key.
        states: State name to aggregate.
        key_type: Type of the key in any form, e.g. ``"bigint"``.
        order_by: Order of a key's rows; first and last need one.
        parallelism: Number of subtasks.
        max_parallelism: Number of key groups.
        starts_from: Savepoint to start from.
        num_retained: Committed checkpoints that are kept; a run can go back to each.
        materialize_at_ratio: As in ``StatefulPipeline``.
        translator: Names of the assets.

    Raises:
        ConfigError: There is no state, a type is unknown, or an order is missing.
    """
    if not states:
        raise ConfigError(f"The pipeline {name!r} has no state; give it at least one aggregate.")
    if not order_by and any(each.how in _IN_ORDER for each in states.values()):
        raise ConfigError(f"The pipeline {name!r} takes the first or last value; give an order_by.")
    declared_type(key_type, f"The key of pipeline {name!r}")
    job = AggregatingJob(
        name, uid, key_by, key_type, states, parallelism, max_parallelism, order_by
    )
    lineage = {
        state: [each.column or key_by]
        for aggregate, each in states.items()
        for state in each.state_names(aggregate)
    }
    return StatefulPipeline(
        name,
        uid,
        job,
        order_by=order_by,
        starts_from=starts_from,
        materialize_at_ratio=materialize_at_ratio,
        num_retained=num_retained,
        lineage={"state_key": [key_by], **lineage},
        translator=translator or DagsterDstlTranslator(),
    )
