"""The demo as Dagster assets: events, bootstrapped savepoint, daily epochs, savepoints, checks."""

from pathlib import Path

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dstl_core.errors import DstlError
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint import Snapshot, rewrite_savepoint
from dstl_core.spark import OperatorTransformation, SavepointWriter, StatefulJob, register
from dstl_dagster import DstlSparkResource, DstlStorageResource
from dstl_dagster.metadata import checkpoint_metadata, epochs_table
from examples.flights.events import KEY, ORDER_BY, aggregate, events_of, ingest
from examples.flights.pipeline import MAX_PARALLELISM, PARALLELISM, STATES, UID, flights_job

GROUP = "flights"
BOOTSTRAP_DAYS = ("2013-01-01", "2013-10-31")
NOVEMBER = dg.DailyPartitionsDefinition(start_date="2013-11-01", end_date="2013-12-01")
PLANNED_FAILURE = "2013-11-05"
MATERIALIZE_AT_RATIO = 1.0
"""The log is folded into the base once it is as large as the base."""
RENAMED_UID = "aircraft"
RESCALED = 256


def events_folder(storage: DstlStorageResource) -> Path:
    return Path(storage.base_path).absolute() / "events"


@dg.asset(group_name=GROUP, kinds={"parquet"})
def flight_events(storage: DstlStorageResource) -> dg.MaterializeResult:
    """All flights of 2013 that have a tail number, as Parquet by day."""
    counts = ingest(events_folder(storage))
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": counts.kept,
            "flights": counts.total,
            "dropped_without_tail_number": counts.dropped,
            "cancelled": counts.cancelled,
            "already_there": counts.already_there,
            "dagster/uri": str(events_folder(storage)),
        }
    )


@dg.asset(group_name=GROUP, kinds={"flink", "pyspark"}, deps=[flight_events])
def bootstrapped_savepoint(
    storage: DstlStorageResource, spark: DstlSparkResource
) -> dg.MaterializeResult:
    """The state after October, computed in bulk and written as a savepoint."""
    path = storage.savepoint("january-to-october")
    try:
        already_there = bool(Snapshot.load(path))
    except FileNotFoundError:
        already_there = False
        session = spark.spark_session
        state = aggregate(events_of(session, events_folder(storage), *BOOTSTRAP_DAYS))
        SavepointWriter.new_savepoint(
            session, max_parallelism=MAX_PARALLELISM, parallelism=PARALLELISM
        ).with_operator(
            OperatorIdentifier.for_uid(UID),
            OperatorTransformation.bootstrap_with(state).key_by(KEY).transform_columns(STATES),
        ).write(path)
    return dg.MaterializeResult(metadata={"dagster/uri": path, "already_there": already_there})


@dg.asset(
    key=["state", UID],
    group_name=GROUP,
    kinds={"flink", "pyspark"},
    partitions_def=NOVEMBER,
    backfill_policy=dg.BackfillPolicy.single_run(),
    retry_policy=dg.RetryPolicy(max_retries=1),
    deps=[
        flight_events,
        bootstrapped_savepoint,
        dg.AssetDep(
            dg.AssetKey(["state", UID]),
            partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1),
        ),
    ],
)
def state(
    context: dg.AssetExecutionContext, storage: DstlStorageResource, spark: DstlSparkResource
) -> dg.MaterializeResult:
    """Per-aircraft state, one epoch a day: restore, update, log, persist, commit."""
    session = spark.spark_session
    job = flights_job(session, storage.jobs)
    job.start(storage.savepoint("january-to-october"))
    for day in context.partition_keys:
        rows = events_of(session, events_folder(storage), day, day)
        if day == PLANNED_FAILURE and context.retry_number == 0:
            _fail_on_purpose(
                context, job, flights_job(session, storage.jobs, fail_after=300), day, rows
            )
        result = job.run(rows, input_id=day, order_by=ORDER_BY)
        context.log.info(str(result))
        sizes = job.state_size()
        metadata = checkpoint_metadata(result.checkpoint, job.latest_path(), sizes)
        metadata |= {
            "dagster/partition_row_count": result.facts["input"]["rows"],
            "keys_changed": result.facts["changed_keys"],
            "committed_before": result.committed_before,
        }
        context.add_asset_metadata(metadata, partition_key=day)
        if sizes.log_ratio > MATERIALIZE_AT_RATIO:
            job.materialize()
            context.log.info(
                f"materialized: the log had {sizes.log:,} bytes on {sizes.materialized:,} of state"
            )
    latest = job.latest()
    return dg.MaterializeResult(
        data_version=dg.DataVersion(latest.data_version) if latest else None
    )


def _fail_on_purpose(
    context: dg.AssetExecutionContext,
    job: StatefulJob,
    failing: StatefulJob,
    day: str,
    rows: DataFrame,
) -> None:
    """The first attempt at one day fails in the middle; Dagster's retry then does it again."""
    if any(each.facts.get("input", {}).get("id") == day for each in job.history()):
        return
    before = job.latest()
    try:
        failing.run(rows, input_id=day, order_by=ORDER_BY)
    except DstlError as error:
        if job.latest() != before:
            raise RuntimeError("an aborted epoch left a trace") from error
        context.log.info(f"epoch {day} was aborted and reset ({error}); it runs again")
        raise


@dg.asset(group_name=GROUP, kinds={"flink"}, deps=[state])
def checkpoint(storage: DstlStorageResource, spark: DstlSparkResource) -> dg.MaterializeResult:
    """The last committed checkpoint: a folder that real Flink restores."""
    job = flights_job(spark.spark_session, storage.jobs)
    latest = job.latest()
    if latest is None:
        raise dg.Failure("there is no checkpoint yet; materialize the state first")
    sizes = job.state_size()
    metadata = checkpoint_metadata(latest, job.latest_path(), sizes)
    return dg.MaterializeResult(
        metadata={**metadata, "commits": epochs_table(job.history())},
        data_version=dg.DataVersion(latest.data_version),
    )


@dg.asset(group_name=GROUP, kinds={"flink"}, deps=[checkpoint])
def savepoint(storage: DstlStorageResource, spark: DstlSparkResource) -> dg.MaterializeResult:
    """The state as a self-contained canonical savepoint."""
    job = flights_job(spark.spark_session, storage.jobs)
    latest = job.latest()
    name = f"after-checkpoint-{latest.checkpoint_id if latest else 0}"
    path = job.savepoint(storage.savepoint(name))
    return dg.MaterializeResult(metadata={"dagster/uri": path})


@dg.asset(group_name=GROUP, kinds={"flink"}, deps=[savepoint])
def rewritten_savepoint(
    storage: DstlStorageResource, spark: DstlSparkResource
) -> dg.MaterializeResult:
    """The savepoint under another uid and with twice the key groups."""
    latest = flights_job(spark.spark_session, storage.jobs).latest()
    number = latest.checkpoint_id if latest else 0
    path = storage.savepoint(f"after-checkpoint-{number}-rewritten")
    try:
        Snapshot.load(path)
    except FileNotFoundError:
        rewrite_savepoint(
            Snapshot.load(storage.savepoint(f"after-checkpoint-{number}")),
            path,
            rename={UID: RENAMED_UID},
            max_parallelism=RESCALED,
        )
    return dg.MaterializeResult(metadata={"dagster/uri": path})


# ---------------------------------------------------------------------------------- checks


def compare(session: DataFrame, expected: DataFrame) -> tuple[int, int]:
    """Keys in all, and keys whose state differs from a plain aggregation."""
    got = session.select(F.col("state_key").alias(KEY), F.struct(*STATES).alias("got"))
    want = expected.select(KEY, F.struct(*STATES).alias("want"))
    both = got.join(want, KEY, "full_outer")
    differs = ~F.col("got").eqNullSafe(F.col("want"))
    row = both.agg(F.count("*").alias("keys"), F.sum(differs.cast("long")).alias("differ"))
    found = row.collect()[0]
    return int(found["keys"]), int(found["differ"] or 0)


def _check(
    storage: DstlStorageResource, spark: DstlSparkResource, path: str
) -> dg.AssetCheckResult:
    session = spark.spark_session
    register(session)
    last_day = last_committed_day(flights_job(session, storage.jobs))
    expected = aggregate(events_of(session, events_folder(storage), BOOTSTRAP_DAYS[0], last_day))
    keys, differing = compare(session.read.format("savepoint").load(path), expected)
    return dg.AssetCheckResult(
        passed=differing == 0 and keys > 0,
        metadata={"keys": keys, "differing": differing, "up_to": last_day},
    )


def last_committed_day(job: StatefulJob) -> str:
    """The day of the last epoch; the end of the bootstrap if there is none."""
    days = [each.facts["input"]["id"] for each in job.history() if "input" in each.facts]
    return str(days[-1]) if days else BOOTSTRAP_DAYS[1]


@dg.asset_check(asset=checkpoint, blocking=True)
def checkpoint_equals_aggregation(
    storage: DstlStorageResource, spark: DstlSparkResource
) -> dg.AssetCheckResult:
    """Every aircraft's state equals a plain Spark aggregation of the same events."""
    return _check(storage, spark, flights_job(spark.spark_session, storage.jobs).latest_path())


@dg.asset_check(asset=savepoint)
def savepoint_equals_aggregation(
    storage: DstlStorageResource, spark: DstlSparkResource
) -> dg.AssetCheckResult:
    """The savepoint holds the same state."""
    latest = flights_job(spark.spark_session, storage.jobs).latest()
    number = latest.checkpoint_id if latest else 0
    return _check(storage, spark, storage.savepoint(f"after-checkpoint-{number}"))


@dg.asset_check(asset=rewritten_savepoint)
def rewritten_savepoint_equals_aggregation(
    storage: DstlStorageResource, spark: DstlSparkResource
) -> dg.AssetCheckResult:
    """The rewritten savepoint holds the same state, under its new uid."""
    latest = flights_job(spark.spark_session, storage.jobs).latest()
    number = latest.checkpoint_id if latest else 0
    return _check(storage, spark, storage.savepoint(f"after-checkpoint-{number}-rewritten"))


ASSETS = [
    flight_events,
    bootstrapped_savepoint,
    state,
    checkpoint,
    savepoint,
    rewritten_savepoint,
]
CHECKS = [
    checkpoint_equals_aggregation,
    savepoint_equals_aggregation,
    rewritten_savepoint_equals_aggregation,
]
