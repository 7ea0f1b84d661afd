"""The events of a component without Spark: the same rows as Spark reads, or an error that helps."""

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dstl_core import LocalEngine
from dstl_core.errors import ConfigError
from dstl_core.storage.file_io import FsspecFileIO
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
    read = engine.to_arrow(events.read(engine, key))
    return sorted(read.select(["account", "amount"]).to_pylist(), key=str)


@pytest.mark.parametrize(("every", "flavor"), LAYOUTS)
def test_a_window_has_its_rows(tmp_path: Path, every: str, flavor: str) -> None:
    engine, events = LocalEngine(), events_in(tmp_path, every, flavor)
    expected = [{"account": "ada", "amount": 1}, {"account": "bob", "amount": 2}]
    assert rows_of(engine, events, KEYS[every]) == expected
    assert rows_of(engine, events, OTHERS[every]) == [{"account": "eve", "amount": 4}]
    assert rows_of(engine, events, ABSENT[every]) == []
    [kind] = {events.read(engine, key[every]).schema.field("at").type for key in (KEYS, ABSENT)}
    assert kind == (pa.date32() if (every, flavor) == ("by day", "folders") else pa.string())


@pytest.mark.parametrize("day", [KEYS["by day"], ABSENT["by day"]])
def test_the_requests_do_not_grow_with_the_days(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, day: str
) -> None:
    requests: list[Any] = []
    listing = FsspecFileIO.list_folder

    def counted(files: FsspecFileIO, location: Any) -> Any:
        requests.append(location)
        return listing(files, location)

    monkeypatch.setattr(FsspecFileIO, "list_folder", counted)
    counts = []
    for days in (2, 40):
        folder = tmp_path / str(days)
        events = events_in(folder, "by day", "folders")
        for number in range(days):
            at = f"2025-{1 + number // 28:02}-{1 + number % 28:02}"
            pq.write_table(pa.table({"account": ["ada"], "amount": [1]}), made(folder, at))
        requests.clear()
        events.read(LocalEngine(), day)
        counts.append(len(requests))
    assert counts[0] == counts[1] > 0


def made(folder: Path, day: str) -> Path:
    (folder / f"at={day}").mkdir()
    return folder / f"at={day}" / "rows.parquet"


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


COLUMNS_WITHOUT_A_KEY = {
    "bigint": [20260102],
    "timestamp_ntz": [datetime(2026, 1, 2)],
    "double": [1.5],
    "boolean": [True],
    "binary": [b"\xff"],
    "array<string>": [["2026-01-02"]],
    "struct<a:bigint>": [{"a": 1}],
}


@pytest.mark.parametrize("kind", COLUMNS_WITHOUT_A_KEY)
def test_a_column_that_no_key_equals_is_refused(tmp_path: Path, kind: str) -> None:
    rows = pa.table({"account": ["ada"], "at": COLUMNS_WITHOUT_A_KEY[kind]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    events = EventsModel(path=str(tmp_path), partition_column="at")
    message = f"partition_column 'at' is {re.escape(kind)}, and no window would have a row: "
    with pytest.raises(ConfigError, match=message):
        events.read(LocalEngine(), "2026-01-02")


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["bigint", "timestamp_ntz"])
def test_spark_refuses_the_same_columns(tmp_path: Path, kind: str) -> None:
    rows = pa.table({"account": ["ada"], "at": COLUMNS_WITHOUT_A_KEY[kind]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    events = EventsModel(path=str(tmp_path), partition_column="at")
    with pytest.raises(ConfigError, match=f"partition_column 'at' is {kind}, and no window"):
        events.read(SPARK.spark_session, "2026-01-02")


def test_folders_that_are_no_windows_are_refused(tmp_path: Path) -> None:
    def read(*names: str) -> Any:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for name in names:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"account": ["ada"]}), path)
        events = EventsModel(path=str(folder), partition_column="at")
        return rows_in(events.read(LocalEngine(), "2026-01-02"))

    with pytest.raises(ConfigError, match=r"'at' is a number \(20260102\), and no window would"):
        read("at=20260102/a.parquet", "at=__HIVE_DEFAULT_PARTITION__/a.parquet")
    with pytest.raises(ConfigError, match=r"folders at=\.\. and beside them 'a.parquet', which"):
        read("at=2026-01-02/a.parquet", "a.parquet")
    with pytest.raises(ConfigError, match=r"at=\.\. and beside them 'by=2026-01-02', which"):
        read("at=2026-01-02/a.parquet", "by=2026-01-02/a.parquet")
    # Rows of no window, and what a writer leaves, are no rows of another one.
    assert read("at=2026-01-02/a.parquet", "at=__HIVE_DEFAULT_PARTITION__/a.parquet", "_x/a") == 1
    # The last two are one value in two forms.
    assert read("at=x/a.parquet", "at=2026-01-02/a.parquet", "at=2026%2D01%2D02/a.parquet") == 2


def rows_in(rows: Any) -> int:
    return LocalEngine().to_arrow(rows).num_rows


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
