"""The demo as Dagster assets: events, bootstrapped savepoint, daily epochs, savepoints, checks."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from dstl_core import Snapshot
from dstl_dagster import (
    DstlSparkResource,
    DstlStorageResource,
    StatefulPipeline,
    build_pipeline_defs,
    checks,
    dstl_assets,
    run_epochs,
    snapshots,
)
from examples.flights.events import (
    COLUMNS,
    KEY,
    NAME,
    ORDER_BY,
    UID,
    aggregate,
    events_of,
    ingest,
    write_bootstrapped,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEMO_FOLDER = Path(os.environ.get("DSTL_DEMO_FOLDER", Path(__file__).parents[2] / ".demo"))
BOOTSTRAP_DAYS = ("2013-01-01", "2013-10-31")
BOOTSTRAPPED = "january-to-october"
NOVEMBER = dg.DailyPartitionsDefinition(start_date="2013-11-01", end_date="2013-12-01")
PLANNED_FAILURE = "2013-11-05"
RENAMED_UID = "aircraft"
RESCALED = 256

FLIGHTS = StatefulPipeline(
    NAME,
    UID,
    "examples.flights.pipeline:flights_job",
    starts_from=BOOTSTRAPPED,
    # The log is folded into the base once it is as large as the base.
    small_log_bytes=0,
    lineage={
        "state_key": [KEY],
        "flights": [KEY],
        "total_delay": ["dep_delay"],
        "cancelled": ["dep_delay"],
        "last_airport": ["dest", *ORDER_BY],
    },
)


def events_folder(base_path: str) -> Path:
    """Where the events lie: beside the state, or on this machine if the state is in a bucket."""
    is_local = "://" not in base_path
    return (Path(base_path.removeprefix("file:")) if is_local else DEMO_FOLDER) / "events"


@dg.asset(key_prefix=NAME, name="events", group_name=NAME, kinds={"parquet"})
def flight_events(storage: DstlStorageResource) -> dg.MaterializeResult:
    """All flights of 2013 that have a tail number, as Parquet by day."""
    counts = ingest(events_folder(storage.base_path))
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": counts.kept,
            "dagster/column_schema": dg.TableSchema([dg.TableColumn(name) for name in COLUMNS]),
            "flights": counts.total,
            "dropped_without_tail_number": counts.dropped,
            "cancelled": counts.cancelled,
            "already_there": counts.already_there,
            "dagster/uri": str(events_folder(storage.base_path)),
        }
    )


def bootstrap(session: "SparkSession", path: str) -> None:
    """The state after October, computed in bulk."""
    folder = events_folder(path.rsplit("/", 2)[0])  # <base>/savepoints/<name>
    write_bootstrapped(session, aggregate(events_of(session, folder, *BOOTSTRAP_DAYS)), path)


bootstrapped_savepoint = snapshots.build_bootstrapped_asset(
    BOOTSTRAPPED, bootstrap, group=NAME, deps=[flight_events]
)


@dstl_assets(
    pipeline=FLIGHTS,
    partitions_def=NOVEMBER,
    deps=[flight_events, bootstrapped_savepoint],
    retry_policy=dg.RetryPolicy(max_retries=1),
)
def state(
    context: dg.AssetExecutionContext, storage: DstlStorageResource, spark: DstlSparkResource
) -> Iterator[Any]:
    """Per-aircraft state, one epoch a day. The first attempt at one day fails in the middle."""
    store = FLIGHTS.store(storage)
    done = {each.facts.input.id for each in store.history() if each.facts.input}

    def rows_of(session: "SparkSession", day: str) -> "DataFrame":
        rows = events_of(session, events_folder(storage.base_path), day, day)
        if day == PLANNED_FAILURE and context.retry_number == 0 and day not in done:
            context.log.info(f"epoch {day} fails on purpose, is aborted and reset, and runs again")
            return with_planned_failure(rows)
        return rows

    yield from run_epochs(context, FLIGHTS, rows_of, storage=storage, engine=spark)


def with_planned_failure(rows: "DataFrame") -> "DataFrame":
    """The same rows, one of which cannot be read."""
    from pyspark.sql import functions as F

    broken = F.col("dest").eqNullSafe("LAX")
    failure = F.raise_error("planned failure in the middle of an epoch").cast("string")
    return rows.withColumn("dest", F.when(broken, failure).otherwise(F.col("dest")))


# ---------------------------------------------------------------------------------- checks


def compare(session: "DataFrame", expected: "DataFrame") -> tuple[int, int]:
    """Keys in all, and keys whose state differs from a plain aggregation."""
    from pyspark.sql import functions as F

    states = [name for name in expected.columns if name != KEY]
    got = session.select(F.col("state_key").alias(KEY), F.struct(*states).alias("got"))
    want = expected.select(KEY, F.struct(*states).alias("want"))
    both = got.join(want, KEY, "full_outer")
    differs = ~F.col("got").eqNullSafe(F.col("want"))
    row = both.agg(F.count("*").alias("keys"), F.sum(differs.cast("long")).alias("differ"))
    differences = row.collect()[0]
    return int(differences["keys"]), int(differences["differ"] or 0)


def _check(
    storage: DstlStorageResource, spark: DstlSparkResource, path: str
) -> dg.AssetCheckResult:
    from dstl_core import register

    session = spark.spark_session
    register(session)
    last_day = last_committed_day(storage)
    expected = aggregate(
        events_of(session, events_folder(storage.base_path), BOOTSTRAP_DAYS[0], last_day)
    )
    keys, differing = compare(session.read.format("savepoint").load(path), expected)
    return dg.AssetCheckResult(
        passed=differing == 0 and keys > 0,
        metadata={"keys": keys, "differing": differing, "up_to": last_day},
    )


def last_committed_day(storage: DstlStorageResource) -> str:
    """The day of the last epoch; the end of the bootstrap if there is none."""
    history = FLIGHTS.store(storage).history()
    days = [each.facts.input.id for each in history if each.facts.input]
    return str(days[-1]) if days else BOOTSTRAP_DAYS[1]


@dg.asset_check(asset=FLIGHTS.key("savepoint"), blocking=True)
def savepoint_equals_aggregation(
    storage: DstlStorageResource, spark: DstlSparkResource
) -> dg.AssetCheckResult:
    """Every aircraft's state in the savepoint equals a plain Spark aggregation of the events."""
    return _check(storage, spark, snapshots.savepoint_of(FLIGHTS)(storage))


@dg.asset_check(asset=FLIGHTS.key("rewritten"))
def rewritten_equals_aggregation(
    context: dg.AssetCheckExecutionContext, storage: DstlStorageResource, spark: DstlSparkResource
) -> dg.AssetCheckResult:
    """The rewritten savepoint holds the same state, under its new uid."""
    event = context.instance.get_latest_materialization_event(FLIGHTS.key("rewritten"))
    materialization = event.asset_materialization if event is not None else None
    if materialization is None:
        return dg.AssetCheckResult(passed=False, description="there is no rewritten savepoint")
    path = str(materialization.metadata["dagster/uri"].value)
    [operator] = Snapshot.load(path).operators
    result = _check(storage, spark, path)
    return dg.AssetCheckResult(
        passed=result.passed and operator.uid == RENAMED_UID, metadata=result.metadata
    )


DEFS = build_pipeline_defs(
    FLIGHTS,
    [flight_events, bootstrapped_savepoint, state],
    checks=[
        rewritten_equals_aggregation,
        checks.StateCheck(
            "SELECT state_key FROM {state} WHERE cancelled > flights OR flights < 1",
            name="counts_make_sense",
        ),
    ],
    savepoint_checks=[
        savepoint_equals_aggregation,
        checks.RestoreCheck(snapshots.snapshot_at(BOOTSTRAPPED)),
        checks.SchemaCheck(snapshots.snapshot_at(BOOTSTRAPPED)),
        checks.DiffCheck(snapshots.snapshot_at(BOOTSTRAPPED), max_changed_ratio=1.0),
    ],
    rewrite=snapshots.Rewrite(rename={UID: RENAMED_UID}, max_parallelism=RESCALED),
    sensor_interval_seconds=5,
    sensors_running=True,
)
ASSETS: list[Any] = list(DEFS.assets or [])
ALL_CHECKS: list[Any] = list(DEFS.asset_checks or [])
