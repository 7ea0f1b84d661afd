"""Models of the parts of a component's YAML."""

from typing import Any, Literal

import dagster as dg
from pydantic import Field

from dstl_core.aggregates import How
from dstl_core.errors import ConfigError
from dstl_dagster.pipelines.aggregates import Aggregate


class PartitionsModel(dg.Model, dg.Resolvable):
    """Windows of input."""

    start: str = Field(description="First window, e.g. 2026-01-01.")
    end: str | None = Field(default=None, description="Where the windows end; none: today.")
    every: Literal["hour", "day", "week", "month"] = "day"
    timezone: str = "UTC"

    def build(self) -> dg.TimeWindowPartitionsDefinition:
        kinds: dict[str, Any] = {
            "hour": dg.HourlyPartitionsDefinition,
            "day": dg.DailyPartitionsDefinition,
            "week": dg.WeeklyPartitionsDefinition,
            "month": dg.MonthlyPartitionsDefinition,
        }
        # Dagster gives hours a key with minutes; the others take a date.
        start = self.start
        if self.every == "hour" and len(start) == len("2026-01-01"):
            start = f"{start}-00:00"
        definition: dg.TimeWindowPartitionsDefinition = kinds[self.every](
            start_date=start, end_date=self.end, timezone=self.timezone
        )
        return definition


class EventsModel(dg.Model, dg.Resolvable):
    """The source of the rows of a window."""

    path: str = Field(description="Table name or path that Spark reads.")
    format: str = Field(default="parquet", description="Spark format; table: a table's name.")
    partition_column: str = Field(description="Column that holds the partition key.")
    options: dict[str, str] = Field(default={}, description="Options of Spark's reader.")
    asset: str | None = Field(default=None, description="Asset key of the events, a/b.")

    def read(self, session: Any, partition_key: str) -> Any:
        """Reads the rows of one window."""
        from pyspark.sql import functions as F

        reader = session.read.options(**self.options)
        rows = (
            reader.table(self.path)
            if self.format == "table"
            else reader.format(self.format).load(self.path)
        )
        return rows.where(F.col(self.partition_column).cast("string") == partition_key)


class AggregateModel(dg.Model, dg.Resolvable):
    """One state: an aggregate of the rows of a key."""

    how: How
    column: str | None = None
    type: str | None = Field(
        default=None, description="Type of the state; long, or double for averages, if not given."
    )
    order_by: str | None = Field(
        default=None, description="Column of the order of first, last, min_by and max_by."
    )
    order_type: str | None = Field(default=None, description="Type of that order; long by default.")

    def build(self) -> Aggregate:
        return Aggregate(self.how, self.column, self.type, self.order_by, self.order_type)


class RewriteModel(dg.Model, dg.Resolvable):
    """An edited copy of a savepoint."""

    name: str = Field(default="rewritten", description="Last part of the asset's key.")
    rename: dict[str, str] = Field(default={}, description="Operator to its new uid.")
    remove: list[str] = Field(default=[], description="Operators to leave out.")
    max_parallelism: int | None = Field(default=None, description="New number of key groups.")

    def edit(self) -> dict[str, Any]:
        return {
            "rename": self.rename,
            "remove": self.remove,
            "max_parallelism": self.max_parallelism,
        }


class StateCheckModel(dg.Model, dg.Resolvable):
    """A query that returns the violations; ``{state}`` is the operator's keyed state.

    Single braces need no escape in YAML, because templates there have double braces.
    """

    uid: str
    sql: str
    name: str | None = None
    severity: Literal["error", "warn"] = "error"
    blocking: bool = False

    def arguments(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "severity": dg.AssetCheckSeverity[self.severity.upper()],
            "blocking": self.blocking,
        }


def asset_key_of(text: str) -> dg.AssetKey:
    """An asset key from ``a/b``."""
    if not text.strip("/"):
        raise ConfigError("An asset key is empty; write it as a/b.")
    return dg.AssetKey(text.split("/"))
