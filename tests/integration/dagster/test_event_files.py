"""The events of a component without Spark: the same rows as Spark reads, or an error that helps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dstl_core import LocalEngine
from dstl_core.errors import ConfigError
from dstl_dagster.components.models import EventsModel
from tests.integration.dagster.small_pipeline import SPARK

KEYS = {"by day": "2026-01-02", "by hour": "2026-01-02-06:00"}
OTHERS = {"by day": "2026-01-03", "by hour": "2026-01-02-07:00"}
ABSENT = {"by day": "2026-01-04", "by hour": "2026-01-02-08:00"}
LAYOUTS = [(every, flavor) for every in KEYS for flavor in ("folders", "files")]


def events_in(folder: Path, every: str, flavor: str) -> EventsModel:
    """Three rows: two of one window, and one of another window."""
    keys = [KEYS[every], KEYS[every], OTHERS[every]]
    rows = pa.table({"account": ["ada", "bob", "eve"], "amount": [1, 2, 4], "at": keys})
    partitions = ds.partitioning(pa.schema([("at", pa.string())]), flavor="hive")
    ds.write_dataset(
        rows, folder, format="parquet", partitioning=partitions if flavor == "folders" else None
    )
    return EventsModel(path=str(folder), partition_column="at")


def rows_of(engine: LocalEngine, events: EventsModel, key: str) -> list[Mapping[str, Any]]:
    found = engine.to_arrow(events.read(engine, key))
    return sorted(found.select(["account", "amount"]).to_pylist(), key=str)


@pytest.mark.parametrize(("every", "flavor"), LAYOUTS)
def test_a_window_has_its_rows(tmp_path: Path, every: str, flavor: str) -> None:
    engine, events = LocalEngine(), events_in(tmp_path, every, flavor)
    expected = [{"account": "ada", "amount": 1}, {"account": "bob", "amount": 2}]
    assert rows_of(engine, events, KEYS[every]) == expected
    assert rows_of(engine, events, OTHERS[every]) == [{"account": "eve", "amount": 4}]
    assert rows_of(engine, events, ABSENT[every]) == []
    [kind] = {events.read(engine, key[every]).schema.field("at").type for key in (KEYS, ABSENT)}
    assert kind == (pa.date32() if (every, flavor) == ("by day", "folders") else pa.string())


@pytest.mark.spark
@pytest.mark.parametrize(("every", "flavor"), LAYOUTS)
def test_spark_reads_the_same_rows(tmp_path: Path, every: str, flavor: str) -> None:
    from dstl_core.spark.job.spark_engine import SparkEngine

    session = SPARK.spark_session
    events = events_in(tmp_path, every, flavor)
    for key in (KEYS[every], ABSENT[every]):
        on_spark = SparkEngine(session).fingerprint(events.read(session, key))
        local = LocalEngine()
        assert local.fingerprint(events.read(local, key)) == on_spark
        assert on_spark.rows == (2 if key == KEYS[every] else 0)


def test_a_folder_without_files_is_a_window_without_rows(tmp_path: Path) -> None:
    events = events_in(tmp_path, "by day", "folders")
    (tmp_path / f"at={ABSENT['by day']}").mkdir()
    (tmp_path / f"at={ABSENT['by day']}" / "_SUCCESS").touch()
    assert rows_of(LocalEngine(), events, ABSENT["by day"]) == []


def test_events_that_only_spark_reads_are_named(tmp_path: Path) -> None:
    def read(**changes: Any) -> Any:
        events = EventsModel(**{"path": str(tmp_path), "partition_column": "day", **changes})
        return events.read(LocalEngine(), "2026-01-01")

    with pytest.raises(ConfigError, match="There is no Parquet file at"):
        read()
    with pytest.raises(ConfigError, match=r"expected the format 'parquet' .* got 'csv' with \{\}"):
        read(format="csv")
    with pytest.raises(ConfigError, match=r"got 'parquet' with \{'mergeSchema': 'true'\}"):
        read(options={"mergeSchema": "true"})
    (tmp_path / "x").mkdir()
    pq.write_table(pa.table({"account": ["ada"]}), tmp_path / "x" / "rows.parquet")
    with pytest.raises(ConfigError, match=r"no partition_column 'day' .* got the columns account"):
        read(path=str(tmp_path / "x"))
    nested = tmp_path / "nested" / "day=2026-01-01" / "shop=1"
    nested.mkdir(parents=True)
    pq.write_table(pa.table({"account": ["ada"]}), nested / "rows.parquet")
    with pytest.raises(ConfigError, match=r"has partition folders \(shop=1\)"):
        read(path=str(tmp_path / "nested"))
