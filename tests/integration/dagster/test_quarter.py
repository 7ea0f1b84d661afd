"""A quarter of a pipeline's life: late rows, restated days, changed definitions, an outage.

Automation requests the days. A table in another code location follows the output. After each week
the state, the output of its last day and the table equal what DuckDB computes from all rows.
"""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import dagster as dg
import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import dstl_dagster as dstl
from dstl_core import Snapshot, aggregates
from dstl_core.sinks import DeltaSink
from dstl_dagster.pipelines.windows import REWIND_TAG
from tests.integration.dagster.conftest import instance_in
from tests.integration.dagster.small_pipeline import LOCAL, SPARK

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
]
START = dt.date(2026, 1, 1)
DAYS = dg.DailyPartitionsDefinition("2026-01-01")
CRON = dg.AutomationCondition.on_cron("0 6 * * *")
RENAMED, ADDED, DROPPED = 12, 50, 75
"""The days with a changed definition."""
RESTATED = {6: 4, 15: 10, 53: 48, 68: 66, 85: 80}
"""Days on which an earlier one is corrected, and the earlier one."""
OUTAGE = range(55, 62)
OUTPUT = dg.AssetKey(["sales", "sales_output_totals"])
SHOPS = [f"shop-{number:03}" for number in range(40)]


def key_of(day: int) -> str:
    return (START + dt.timedelta(days=day)).isoformat()


def sales_of(random: Random, day: int) -> pa.Table:
    """Rows of a day; a fifth of them are of the week before. No two have the same time."""
    count = random.randint(0, 30)
    lags = [0 if random.random() < 0.8 else random.randint(1, 7) for _ in range(count)]
    minutes = random.sample(range(1440), count)
    times = [
        (day - lag) * 1440 * 90 + minute * 90 + day
        for lag, minute in zip(lags, minutes, strict=True)
    ]
    return pa.table(
        {
            "shop": pa.array([random.choice(SHOPS) for _ in range(count)], pa.string()),
            "amount": pa.array([random.randint(-50, 1000) for _ in range(count)], pa.int64()),
            "item": pa.array([f"item-{random.randint(1, 9)}-{t}" for t in times], pa.string()),
            "time": pa.array(times, pa.int64()),
        }
    )


def pipeline_on(day: int) -> dstl.StatefulPipeline:
    """The definition that is in force on a day."""
    total = "total" if day < RENAMED else "revenue"
    states: dict[str, Any] = {"sales": aggregates.count(), total: aggregates.sum("amount")}
    evolve: dict[str, Any] = {} if day < RENAMED else {"rename": {"total": "revenue"}}
    if day < DROPPED:
        states["largest"] = aggregates.max("amount")
    else:
        evolve["drop"] = ["largest"]
    if day >= ADDED:
        states["latest"] = aggregates.max_by("item", "time")
    amount = "int" if day < ADDED else "bigint"
    return dstl.aggregating_pipeline(
        "sales",
        uid="totals",
        key_by="shop",
        states=states,
        schema=f"shop string, amount {amount}, item string, time bigint",
        engine="engine",
        output=True,
        evolve=evolve or None,
    )


class Quarter:
    """Two code locations on one instance, and the rows of all days so far."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, engine: Any) -> None:
        self.storage = dstl.DstlStorageResource(base_path=str(folder / "data"))
        self.resources = {"storage": self.storage, "engine": engine}
        self.table = f"{self.storage.base_path}/totals"
        self.instance = instance
        self.random = Random(90)
        self.rows: dict[str, pa.Table] = {}
        self.latest_since = ADDED
        """The first day that the aggregate ``latest`` has seen."""
        self._cursor: Any = None
        self._requested(0, dt.datetime.combine(START, dt.time(12)))  # the daemon starts

    def pipelines(self, day: int) -> dg.Definitions:
        """The code location of the team that owns the pipeline."""
        pipeline = pipeline_on(day)
        amount = pa.int32() if day < ADDED else pa.int64()

        def batch(_: Any, window: str) -> pa.Table:
            rows = self.rows[window]
            return rows.set_column(1, "amount", rows["amount"].cast(amount))

        @dstl.dstl_assets(
            pipeline=pipeline, partitions_def=DAYS, automation_condition=CRON, retry_policy=None
        )
        def sales(
            context: dg.AssetExecutionContext,
            storage: dstl.DstlStorageResource,
            engine: dg.ResourceParam[Any],
        ) -> Iterator[Any]:
            yield from dstl.run_epochs(context, pipeline, batch, storage=storage, engine=engine)

        return dg.Definitions([sales], resources=self.resources)

    def tables(self, day: int) -> dg.Definitions:
        """The code location of another team, with a Delta table behind the output."""
        pipeline, table = pipeline_on(day), self.table

        @dg.asset(deps=[OUTPUT])
        def totals(storage: dstl.DstlStorageResource) -> dg.MaterializeResult[None]:
            return dstl.merge_output(pipeline, storage, DeltaSink(table))

        return dg.Definitions([totals], resources=self.resources)

    def requested_on(self, day: int) -> list[str]:
        """The windows that the daemon requests on the morning after a day."""
        morning = START + dt.timedelta(days=day + 1)
        return self._requested(day, dt.datetime.combine(morning, dt.time(6, 1)))

    def _requested(self, day: int, at: dt.datetime) -> list[str]:
        evaluation = dg.evaluate_automation_conditions(
            defs=self.pipelines(day),
            instance=self.instance,
            cursor=self._cursor,
            evaluation_time=at,
        )
        self._cursor = evaluation.cursor
        return sorted(evaluation.get_requested_partitions(pipeline_on(day).key("state")))

    def run(self, day: int, *windows: str, rewind: bool = False) -> None:
        """Runs windows, then what is behind them, each in its own location."""
        for window in windows:
            self._materialize(self.pipelines(day), window, {REWIND_TAG: "true"} if rewind else {})
        self._materialize(self.tables(day), None, {})

    def _materialize(
        self, location: dg.Definitions, window: str | None, tags: dict[str, str]
    ) -> None:
        [assets] = location.assets or ()
        assert isinstance(assets, dg.AssetsDefinition)
        ran = dg.materialize(
            [assets],
            partition_key=window,
            instance=self.instance,
            resources=self.resources,
            tags=tags,
        )
        assert ran.success

    # ------------------------------------------------------------------------- what is compared

    def recomputed(self, day: int, *, only: str | None = None) -> list[tuple[Any, ...]]:
        """The columns of the definition of a day for each shop, by DuckDB.

        Args:
            day: The day.
            only: A window; only shops of its batch are in the result.
        """
        tables = [
            rows.append_column("day", pa.array([window] * rows.num_rows, pa.string()))
            for window, rows in self.rows.items()
        ]
        sales = pa.concat_tables(tables)  # noqa: F841  # DuckDB reads it
        columns = ["shop", "count(*)", "sum(amount)::bigint"]
        columns += ["max(amount)"] if day < DROPPED else []
        since = key_of(self.latest_since)
        columns += [f"max_by(item, time) FILTER (day >= '{since}')"] if day >= ADDED else []
        where = (
            "" if only is None else f"WHERE shop IN (SELECT shop FROM sales WHERE day = '{only}')"
        )
        return duckdb.sql(
            f"SELECT {', '.join(columns)} FROM sales {where} GROUP BY shop ORDER BY shop"
        ).fetchall()

    def columns(self, day: int) -> list[str]:
        names = ["shop", "sales", "total" if day < RENAMED else "revenue"]
        return names + ["largest"] * (day < DROPPED) + ["latest"] * (day >= ADDED)

    def state(self, day: int) -> list[tuple[Any, ...]]:
        store = pipeline_on(day).store(self.storage)
        operator = Snapshot.load(store.path_of(store.require_latest()))["uid:totals"]
        states = [
            {entry.key: entry.value for entry in operator.keyed_entries(name)}
            for name in self.columns(day)[1:]
        ]
        return [(shop, *(state.get(shop) for state in states)) for shop in sorted(states[0])]

    def output_of(self, day: int, window: str) -> list[tuple[Any, ...]]:
        """The output of a window, as an asset gets it."""

        @dg.asset(
            partitions_def=DAYS,
            ins={"rows": dg.AssetIn(OUTPUT, input_manager_key="loader")},
        )
        def touched(rows: pa.Table) -> list[Any]:
            return rows.to_pylist()

        [sales] = self.pipelines(day).assets or ()
        ran = dg.materialize(
            [sales, touched],  # type: ignore[list-item]  # they are assets
            selection=[touched],
            partition_key=window,
            instance=self.instance,
            resources={
                **self.resources,
                "loader": dstl.DstlIOManager(storage=self.storage, spark=SPARK),
            },
        )
        rows = ran.output_for_node("touched")
        return sorted(tuple(row[name] for name in self.columns(day)) for row in rows)

    def behind(self, day: int) -> list[tuple[Any, ...]]:
        rows = DeltaTable(self.table).to_pyarrow_table().to_pylist()
        return sorted(tuple(row[name] for name in self.columns(day)) for row in rows)

    def check(self, day: int) -> None:
        expected = self.recomputed(day)
        assert self.state(day) == expected
        assert self.behind(day) == expected
        assert self.output_of(day, key_of(day)) == self.recomputed(day, only=key_of(day))


def live(quarter: Quarter, days: range) -> None:
    for day in days:
        window = key_of(day)
        quarter.rows[window] = sales_of(quarter.random, day)
        if day in OUTAGE:
            continue  # no daemon, and no run
        assert quarter.requested_on(day) == [window]
        # What the outage left out is launched by hand, in order; automation asks for the last day.
        missed = [key_of(each) for each in OUTAGE] if day == OUTAGE.stop else []
        quarter.run(day, *missed, window)
        first = RESTATED.get(day)
        if first is not None:
            quarter.rows[key_of(first)] = sales_of(quarter.random, first)
            quarter.run(day, key_of(first), rewind=True)  # and all later days again
            if day >= ADDED:
                quarter.latest_since = min(quarter.latest_since, first)
        if day % 7 == 6 or day in RESTATED or day in (RENAMED, ADDED, DROPPED):
            quarter.check(day)


@pytest.mark.slow
def test_eighteen_days_in_one_process(tmp_path: Path) -> None:
    with instance_in(tmp_path) as instance:
        live(Quarter(tmp_path, instance, LOCAL), range(18))


@pytest.mark.soak
@pytest.mark.parametrize("engine", [LOCAL, pytest.param(SPARK, marks=pytest.mark.spark)])
def test_a_quarter(tmp_path: Path, engine: Any) -> None:
    with instance_in(tmp_path) as instance:
        live(Quarter(tmp_path, instance, engine), range(90))
