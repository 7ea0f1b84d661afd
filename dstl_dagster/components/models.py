"""Models of the parts of a component's YAML."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import dagster as dg
from pydantic import Field

from dstl_core.errors import ConfigError
from dstl_core.windows import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from dstl_dagster.attributes import shown
from dstl_dagster.pipelines.aggregates import EventTimeWindows
from dstl_dagster.resources.upload_resource import (
    BatchingUploads,
    DirectUploads,
    RetryOptions,
    UploadSchedulerResource,
)

if TYPE_CHECKING:
    from dstl_core.local.local_engine import LocalEngine


class PartitionsModel(dg.Model, dg.Resolvable):
    """Windows of input."""

    start: Annotated[str, shown("Start of the first window.", "2026-01-01", "2026-01-01-06:00")]
    end: Annotated[
        str | None, shown("End of the last window; by default windows go up to now.", "2027-01-01")
    ] = None
    every: Annotated[
        Literal["hour", "day", "week", "month"], shown("Length of a window.", "day", "hour")
    ] = "day"
    timezone: Annotated[str, shown("Time zone in which windows start.", "UTC", "Europe/Berlin")] = (
        "UTC"
    )

    def build(self) -> dg.TimeWindowPartitionsDefinition:
        """The windows.

        Raises:
            ConfigError: A date or the time zone is wrong, or there is no window.
        """
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
        try:
            definition: dg.TimeWindowPartitionsDefinition = kinds[self.every](
                start_date=start, end_date=self.end, timezone=self.timezone
            )
            first, end = definition.start, definition.end
        except (ValueError, KeyError) as error:  # a time zone that is none is a KeyError
            raise ConfigError(
                f"The partitions are wrong: expected dates such as 2026-01-01 and a time zone such "
                f"as Europe/Berlin, got {self.model_dump(exclude_none=True)}: {error}."
            ) from None
        if end is not None and end <= first:
            raise ConfigError(
                f"The partitions have no window: expected an end after the start {self.start!r}, "
                f"got {self.end!r}."
            )
        return definition


class EvolveModel(dg.Model, dg.Resolvable):
    """What becomes of state that an earlier definition of the pipeline wrote."""

    rename: Annotated[
        dict[str, str], shown("Old names of states to new ones.", {"total": "revenue"})
    ] = Field(default_factory=dict)
    drop: Annotated[list[str], shown("States that go.", ["visits"])] = Field(default_factory=list)
    start_empty: Annotated[
        list[str],
        shown("States that begin anew, with another aggregate or another type.", ["latest"]),
    ] = Field(default_factory=list)
    backfill: Annotated[
        list[str],
        shown("Aggregates that get the values of all windows until now.", ["largest"]),
    ] = Field(default_factory=list)
    rekey: Annotated[
        dict[str, str],
        shown("New keys by uid, as expressions over the old one.", {"totals": "key.f0"}),
    ] = Field(default_factory=dict)
    needs_approval: Annotated[
        bool, shown("Whether a change waits for the approval of its plan.", True)
    ] = False


class EventsModel(dg.Model, dg.Resolvable):
    """The source of the rows of a window."""

    path: Annotated[
        str,
        shown(
            "Path or URL of the files, or name of a table of Spark.",
            "{{ context.project_root }}/data/payments",
            "s3://bucket/payments",
        ),
    ]
    format: Annotated[
        str,
        shown(
            "Format of Spark's reader, or `table` for a table; without Spark `parquet`.",
            "parquet",
            "csv",
            "table",
        ),
    ] = "parquet"
    partition_column: Annotated[
        str, shown("Column that holds the partition key of a row's window.", "day")
    ]
    options: Annotated[dict[str, str], shown("Options of Spark's reader.", {"header": "true"})] = (
        Field(default={})
    )
    asset: Annotated[
        str | None, shown("Key of the asset that makes the events.", "raw/payments")
    ] = None

    def read(self, session: Any, partition_key: str) -> Any:
        """Reads the rows of one window.

        Args:
            session: A session of Spark, or a ``LocalEngine``.
            partition_key: The window.

        Raises:
            ConfigError: The local engine cannot read such events.
        """
        from dstl_core.local.local_engine import LocalEngine

        if isinstance(session, LocalEngine):
            return self._read_without_spark(session, partition_key)
        from pyspark.sql import functions as F

        reader = session.read.options(**self.options)
        rows = (
            reader.table(self.path)
            if self.format == "table"
            else reader.format(self.format).load(self.path)
        )
        from dstl_dagster.components.event_files import check_partition_column

        column = F.col(self.partition_column)
        [kind] = [field.dataType for field in rows.select(column).schema]
        is_text = kind.typeName() in ("string", "date", "void")
        check_partition_column(self.partition_column, kind.simpleString(), is_text=is_text)
        return rows.where(column.cast("string") == partition_key)

    def _read_without_spark(self, engine: "LocalEngine", partition_key: str) -> Any:
        from dstl_dagster.components.event_files import rows_of_window

        if self.format != "parquet" or self.options:
            raise ConfigError(
                f"The local engine reads events from Parquet files: expected the format 'parquet' "
                f"without options, got {self.format!r} with {self.options}; let the asset of the "
                f"events write Parquet, or give the component `engine: spark`."
            )
        return rows_of_window(engine, self.path, self.partition_column, partition_key)


class WindowModel(dg.Model, dg.Resolvable):
    """Windows of the aggregates, in event time. A duration is text or milliseconds."""

    event_time: Annotated[
        str, shown("Column with the time of a row: a timestamp, or milliseconds.", "created_at")
    ]
    size: Annotated[int | str | None, shown("Length of a window.", "1 h", 3_600_000)] = None
    gap: Annotated[
        int | str | None,
        shown("Instead of a length: sessions, which end after a gap without rows.", "30 min"),
    ] = None
    slide: Annotated[
        int | str | None, shown("Time from window to window; by default the size.", "10 min")
    ] = None
    offset: Annotated[
        int | str, shown("Where the first window after 1970 starts.", "30 min", -3_600_000)
    ] = 0
    out_of_orderness: Annotated[
        int | str,
        shown("How far the watermark stays behind the largest time of a batch.", "1 min"),
    ] = 0
    allowed_lateness: Annotated[
        int | str, shown("How long a window is kept after its end.", "1 min")
    ] = 0
    side_output_late_data: Annotated[
        str | None,
        shown(
            "Columns of the late rows, which are then an asset of their own.",
            "account string, amount bigint",
        ),
    ] = None

    def build(self) -> EventTimeWindows:
        """Raises ConfigError: There are no such windows."""
        window: WindowAssigner
        match self.size, self.gap, self.slide:
            case None, int() | str() as gap, None if not self.offset:
                window = EventTimeSessionWindows.with_gap(gap)
            case int() | str() as size, None, None:
                window = TumblingEventTimeWindows.of(size, self.offset)
            case int() | str() as size, None, int() | str() as slide:
                window = SlidingEventTimeWindows.of(size, slide, self.offset)
            case _:
                fields_set = self.model_dump(exclude_unset=True)
                raise ConfigError(
                    f"The window is wrong: expected size with or without slide and offset, or gap "
                    f"without them, for sessions; got {fields_set}."
                )
        return EventTimeWindows(
            window,
            self.event_time,
            self.out_of_orderness,
            self.allowed_lateness,
            self.side_output_late_data,
        )


class UploadsModel(dg.Model, dg.Resolvable):
    """How the changes of an epoch are uploaded."""

    kind: Annotated[
        Literal["direct", "batching"],
        shown("Each writer by itself, or several writers into shared files.", "batching"),
    ] = "batching"
    options: Annotated[
        dict[str, int],
        shown(
            "Fields of `DirectUploads` or `BatchingUploads`.",
            {"persist_delay_ms": 10, "num_threads": 5},
        ),
    ] = Field(default={})
    max_attempts: Annotated[int, shown("Attempts of one upload.", 3)] = 3
    compress: Annotated[bool, shown("Whether segments are compressed.", False)] = True

    def build(self) -> UploadSchedulerResource:
        """The options of the pipeline's uploads.

        Raises:
            ConfigError: An option is unknown or out of range, or two contradict each other.
        """
        kind: Any = {"direct": DirectUploads, "batching": BatchingUploads}[self.kind]
        known = set(kind.model_fields) - {"kind", "retry"}
        try:
            retry = RetryOptions(max_attempts=self.max_attempts)
            scheduler = kind(retry=retry, **self.options)
            wrong = set(self.options) - known
        except ConfigError:
            wrong = set(self.options)
        if wrong:
            raise ConfigError(
                f"The uploads of kind {self.kind!r} have wrong options: expected numbers above 0 "
                f"for {', '.join(sorted(known)) or 'nothing'}, got {self.options}."
            )
        resource = UploadSchedulerResource(scheduler=scheduler, compress=self.compress)
        resource.changelog_options()
        return resource


def asset_key_of(text: str) -> dg.AssetKey:
    if not text.strip("/"):
        raise ConfigError("An asset key is empty; write it as a/b.")
    return dg.AssetKey(text.split("/"))
