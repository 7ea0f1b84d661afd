"""The stateful job: for each aircraft its flights, delay, cancellations and last airport."""

from __future__ import annotations

from pyspark.sql import SparkSession

from dstl_core import AggregateOperator, StatefulJob, aggregates
from examples.flights.events import (
    DELAY,
    KEY,
    MAX_PARALLELISM,
    NAME,
    ORDER_BY,
    PARALLELISM,
    STATES,
    UID,
)

AIRCRAFT = AggregateOperator(
    UID,
    KEY,
    {
        "flights": aggregates.count(),
        "total_delay": aggregates.sum(DELAY, STATES["total_delay"]),
        "cancelled": aggregates.count_null("dep_delay"),
        # The days come in order: the last flight of the last day is the last one.
        "last_airport": aggregates.last(
            "dest", ORDER_BY, STATES["last_airport"], keeps_order=False
        ),
    },
    key_type="string",
    output=True,
)


def flights_job(spark: SparkSession, base_path: str) -> StatefulJob:
    """The job on its state under ``base_path``. Its output is the aircraft of each day."""
    return StatefulJob(
        spark,
        NAME,
        base_path,
        AIRCRAFT,
        parallelism=PARALLELISM,
        max_parallelism=MAX_PARALLELISM,
    )
