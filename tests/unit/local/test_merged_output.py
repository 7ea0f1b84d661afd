"""Tables behind a job: rows by hand, for each kind of output and each way in which output lacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyiceberg.catalog import load_catalog

from dstl_core import (
    AggregateOperator,
    KeyedOperator,
    LocalEngine,
    StatefulJob,
    aggregates,
    windows,
)
from dstl_core.errors import CheckpointError, ConfigError
from dstl_core.functions import KeyedProcessFunction
from dstl_core.sinks import DeltaSink, IcebergSink, ParquetSink
from dstl_core.testing import ManualClock
from tests.delta_log import rows_of_delta

Sink = DeltaSink | IcebergSink | ParquetSink
TOTALS = {"n": aggregates.count(), "total": aggregates.sum("v")}


class Large(KeyedProcessFunction):
    """Gives the values above 10."""

    order_insensitive = True

    def process_element(self, value: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        if value["v"] > 10:
            yield {"k": value["k"], "v": value["v"]}


def totals(**options: Any) -> AggregateOperator:
    schema = "k string, v bigint, t bigint"
    return AggregateOperator("totals", "k", TOTALS, schema=schema, **{"output": True, **options})


def large(*, output: bool = True) -> KeyedOperator:
    return KeyedOperator("large", "k", "string", Large(), "k string, v bigint" if output else None)


def job_of(base: Path, operator: Any, **options: Any) -> StatefulJob:
    engine = LocalEngine(threads=1)
    return StatefulJob(engine, "job", str(base), operator, num_retained=99, **options)


def batch(*rows: tuple[str, int], time: int = 0) -> pa.Table:
    keys, values = zip(*rows, strict=True)
    return pa.table({"k": keys, "v": values, "t": pa.array([time] * len(rows), pa.int64())})


def rows_in(sink: Sink) -> list[tuple[Any, ...]]:
    if isinstance(sink, ParquetSink):
        table = pq.read_table(sink.path)
    elif isinstance(sink, IcebergSink):
        table = (
            load_catalog(sink.catalog, **sink.properties).load_table(sink.table).scan().to_arrow()
        )
    else:
        table = DeltaTable(sink.path).to_pyarrow_table()
        assert tuples_of(rows_of_delta(sink.path)) == tuples_of(table)
    return tuples_of(table)


def tuples_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.fixture(params=["delta", "iceberg", "parquet"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    if request.param == "delta":
        return DeltaSink(str(tmp_path / "delta"))
    if request.param == "iceberg":
        return iceberg_in(tmp_path)
    return ParquetSink(str(tmp_path / "tables" / "totals.parquet"))


def iceberg_in(folder: Path) -> IcebergSink:
    """A table in a new catalog on SQLite."""
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }
    load_catalog("lake", **properties).create_namespace("shop")
    return IcebergSink("shop.totals", "lake", properties)


def test_a_restated_day_takes_back_what_it_no_longer_has(sink: Sink, tmp_path: Path) -> None:
    job = job_of(tmp_path, totals())
    job.run(batch(("a", 1), ("b", 2)), 1)
    job.run(batch(("b", 3), ("c", 4)), 2)
    merged = job.merge_into(sink)
    assert (merged.since, merged.whole, merged.counts) == (None, True, {"insert": 3})
    assert rows_in(sink) == [("a", 1, 1), ("b", 2, 5), ("c", 1, 4)]
    job.run(batch(("a", 9)), 2, rewind=True)
    merged = job.merge_into(sink)
    assert (merged.undone, merged.applied, merged.whole) == (1, 1, False)
    assert merged.counts == {"update": 2, "delete": 1}
    assert rows_in(sink) == [("a", 2, 10), ("b", 1, 2)]


def test_a_repeated_merge_changes_nothing(sink: Sink, tmp_path: Path) -> None:
    job = job_of(tmp_path, totals())
    job.run(batch(("a", 1)), 1)
    job.merge_into(sink)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*.parquet"))
    assert job.merge_into(sink).counts == {}
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*.parquet")) == before


def version_of(sink: Sink) -> Any:
    if isinstance(sink, DeltaSink):
        return DeltaTable(sink.path).version()
    if isinstance(sink, ParquetSink):
        return Path(sink.path).read_bytes()
    table = load_catalog(sink.catalog, **sink.properties).load_table(sink.table)
    return table.current_snapshot().snapshot_id


def set_back(sink: Sink, version: Any) -> None:
    """As somebody does who does not know of the pipeline."""
    if isinstance(sink, DeltaSink):
        DeltaTable(sink.path).restore(version)
    elif isinstance(sink, ParquetSink):
        Path(sink.path).write_bytes(version)
    else:
        table = load_catalog(sink.catalog, **sink.properties).load_table(sink.table)
        table.manage_snapshots().rollback_to_snapshot(version).commit()


@pytest.mark.parametrize("kind", ["totals", "functions"])
def test_a_table_that_was_set_back_gets_its_rows_again(
    sink: Sink, tmp_path: Path, kind: str
) -> None:
    job = job_of(tmp_path, totals() if kind == "totals" else large())
    job.run(batch(("a", 11), ("b", 12)), 1)
    job.merge_into(sink)
    first = rows_in(sink)
    version = version_of(sink)
    for number, rows in enumerate(((("a", 13),), (("c", 14), ("b", 15))), 2):
        job.run(batch(*rows), number)
        job.merge_into(sink)
    third = rows_in(sink)
    for _ in range(2):
        set_back(sink, version)
        assert rows_in(sink) == first
        merged = job.merge_into(sink)
        assert (merged.applied, rows_in(sink)) == (2, third)
        assert (job.merge_into(sink).applied, rows_in(sink)) == (0, third)
    set_back(sink, version)
    job.run(batch(("c", 20)), 3, rewind=True)
    job.merge_into(sink)
    if kind == "totals":
        assert rows_in(sink) == [("a", 2, 24), ("b", 1, 12), ("c", 1, 20)]
    else:
        assert [row[:2] for row in rows_in(sink)] == [("a", 11), ("a", 13), ("b", 12), ("c", 20)]


def test_a_table_that_was_set_back_to_a_version_without_a_log_is_refused(tmp_path: Path) -> None:
    sink, job = DeltaSink(str(tmp_path / "delta")), job_of(tmp_path, totals())
    for number in (1, 2):
        job.run(batch(("a", 1)), number)
        job.merge_into(sink)
    table = DeltaTable(sink.path)
    table.restore(0)
    table.create_checkpoint()
    for version in (0, 1):  # as the cleaning of old metadata does
        (tmp_path / "delta" / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(ConfigError, match="was set back, and the checkpoint of its rows is not"):
        job.merge_into(sink)
    assert tuples_of(DeltaTable(sink.path).to_pyarrow_table()) == [("a", 1, 1)]


def test_windows_have_a_row_per_key_and_window(sink: Sink, tmp_path: Path) -> None:
    tumbling = windows.TumblingEventTimeWindows.of("10 ms")
    job = job_of(tmp_path, totals(window=tumbling, event_time="t"))
    job.run(batch(("a", 1), ("b", 2), time=5), 1)
    job.run(batch(("a", 3), time=15), 2)
    job.run(batch(("c", 4), time=25), 3)
    job.merge_into(sink)
    first = [("a", 0, 10, 1, 1), ("b", 0, 10, 1, 2)]
    assert rows_in(sink) == [first[0], ("a", 10, 20, 1, 3), first[1]]
    job.run(batch(("b", 7), time=15), 2, rewind=True)
    assert job.merge_into(sink).counts == {"delete": 1, "update": 2}
    assert rows_in(sink) == first
    job.run(batch(("c", 4), time=25), 3)
    assert job.merge_into(sink).counts == {"insert": 1}
    assert rows_in(sink) == [*first, ("b", 10, 20, 1, 7)]


@pytest.mark.parametrize("kind", ["windows", "functions"])
def test_a_rewind_is_taken_back_where_only_some_epochs_keep_their_output(
    sink: Sink, tmp_path: Path, kind: str
) -> None:
    tumbling = windows.TumblingEventTimeWindows.of("10 ms")
    operator = totals(window=tumbling, event_time="t") if kind == "windows" else large()
    job = job_of(tmp_path, operator, num_retained_outputs=3)
    for number in range(1, 7):
        job.run(batch(("a", 10 * number), time=10 * number), number)
        job.merge_into(sink)
    job.run(batch(("b", 77), time=52), 5, rewind=True)
    job.run(batch(("b", 88), time=62), 6)
    job.merge_into(sink)
    if kind == "windows":  # the last one, from 60 on, has not fired
        fired = [("a", 10 * number, 10 * number + 10, 1, 10 * number) for number in range(1, 5)]
        assert rows_in(sink) == [*fired, ("b", 50, 60, 1, 77)]
    else:
        assert sorted(row[1] for row in rows_in(sink)) == [20, 30, 40, 77, 88]


def test_a_table_of_a_functions_rows_has_those_of_the_epochs_that_count(
    sink: Sink, tmp_path: Path
) -> None:
    job = job_of(tmp_path, large())
    for number, rows in enumerate(((("a", 11), ("b", 1)), (("b", 12),), (("c", 2),)), 1):
        job.run(batch(*rows), number)
        job.merge_into(sink)
    assert rows_in(sink) == [("a", 11, 2), ("b", 12, 3)]
    job.run(batch(("c", 3)), 2, rewind=True)
    assert job.merge_into(sink).undone == 1  # the epoch without rows left the table as it was
    assert rows_in(sink) == [("a", 11, 2)]
    job.run(batch(("d", 30), ("d", 31)), 3)
    job.merge_into(sink)
    assert rows_in(sink) == [("a", 11, 2), ("d", 30, 6), ("d", 31, 6)]


def test_a_functions_rows_are_a_table_of_the_last_one_of_each_key(
    sink: Sink, tmp_path: Path
) -> None:
    job = job_of(tmp_path, large())
    for number, value in enumerate((11, 12, 13), 1):
        job.run(batch(("a", value), ("b", 1)), number)
    job.merge_into(sink, key_by="k")
    assert rows_in(sink) == [("a", 13)]
    job.run(batch(("b", 20)), 3, rewind=True)
    job.merge_into(sink, key_by=["k"])
    assert rows_in(sink) == [("a", 12), ("b", 20)]
    job.run(batch(("a", 1)), 1, rewind=True)
    assert job.merge_into(sink, key_by="k").counts == {"delete": 2}
    assert rows_in(sink) == []


def test_a_table_is_made_anew_from_the_state_where_output_is_not_stored(
    sink: Sink, tmp_path: Path
) -> None:
    job_of(tmp_path, totals(output=False)).run(batch(("a", 1), ("b", 2)), 1)
    job = job_of(tmp_path, totals())
    job.run(batch(("a", 3)), 2)
    assert job.merge_into(sink).whole
    assert rows_in(sink) == [("a", 2, 4), ("b", 1, 2)]
    # The row of b before the undone epoch is in the state alone.
    job.run(batch(("b", 5)), 3)
    job.merge_into(sink)
    job.run(batch(("c", 6)), 3, rewind=True)
    assert job.merge_into(sink).whole
    assert rows_in(sink) == [("a", 2, 4), ("b", 1, 2), ("c", 1, 6)]


def test_a_table_is_made_anew_where_output_is_no_longer_kept(sink: Sink, tmp_path: Path) -> None:
    job = job_of(tmp_path, totals(), num_retained_outputs=1)
    job.run(batch(("a", 1)), 1)
    job.merge_into(sink)
    for number in (2, 3):
        job.run(batch(("b", number)), number)
    assert job.merge_into(sink).whole
    assert rows_in(sink) == [("a", 1, 1), ("b", 2, 5)]


def test_a_table_is_made_anew_with_other_columns_and_after_a_migration(
    sink: Sink, tmp_path: Path
) -> None:
    job_of(tmp_path, totals(output=["n"])).run(batch(("a", 1), ("b", 2)), 1)
    job_of(tmp_path, totals(output=["n"])).merge_into(sink)
    job = job_of(tmp_path, totals())
    job.run(batch(("a", 3)), 2)
    assert job.merge_into(sink).whole
    assert rows_in(sink) == [("a", 2, 4), ("b", 1, 2)]
    renamed = AggregateOperator(
        "totals", "k", {"n": aggregates.count(), "sum": aggregates.sum("v")},
        schema="k string, v bigint, t bigint", output=True,
    )  # fmt: skip
    job = job_of(tmp_path, renamed)
    job.migrate(rename={"total": "sum"})
    assert job.merge_into(sink).whole
    assert rows_in(sink) == [("a", 2, 4), ("b", 1, 2)]
    job.run(batch(("b", 1)), 3)
    assert not job.merge_into(sink).whole
    assert rows_in(sink) == [("a", 2, 4), ("b", 2, 3)]


def test_rows_of_a_function_that_are_not_stored_are_an_error(sink: Sink, tmp_path: Path) -> None:
    job_of(tmp_path, large(output=False)).run(batch(("a", 11)), 1)
    job = job_of(tmp_path, large())
    job.run(batch(("a", 12)), 2)
    with pytest.raises(ConfigError, match=r"the epoch of input 1 .checkpoint 2. stored no output"):
        job.merge_into(sink)
    job.run(batch(("a", 11)), 1, rewind=True)
    job.run(batch(("b", 12)), 2)
    job.merge_into(sink)
    assert rows_in(sink) == [("a", 11, 5), ("b", 12, 6)]


def test_a_table_that_something_else_has_filled_is_refused(sink: Sink, tmp_path: Path) -> None:
    rows = pa.table({"k": ["a"], "n": [1], "total": [1]})
    if isinstance(sink, ParquetSink):
        Path(sink.path).parent.mkdir()
        pq.write_table(rows, sink.path)
    elif isinstance(sink, IcebergSink):
        load_catalog(sink.catalog, **sink.properties).create_table(sink.table, rows.schema)
    else:
        write_deltalake(sink.path, rows)
    job = job_of(tmp_path, totals())
    job.run(batch(("a", 1)), 1)
    with pytest.raises(ConfigError, match=r"does not say that dstl:job:totals:\d+:k filled it"):
        job.merge_into(sink)


@pytest.mark.parametrize("epochs", [1, 5])
def test_a_table_of_a_pipeline_that_began_anew_is_refused(
    sink: Sink, tmp_path: Path, epochs: int
) -> None:
    """Also if it has a checkpoint with the id of the position."""
    old, new = (
        job_of(tmp_path / base, totals(), clock=ManualClock(now_ms=at))
        for base, at in (("old", 1000), ("new", 2000))
    )
    for number in range(3):
        old.run(batch(("a", 1)), number)
    old.merge_into(sink)
    for number in range(epochs):
        new.run(batch(("b", 1)), number)
    with pytest.raises(ConfigError, match="dstl:job:totals:2000:k filled it: something else did,"):
        new.merge_into(sink)
    old.merge_into(sink)
    assert rows_in(sink) == [("a", 3, 3)]


def test_a_position_that_the_pipeline_does_not_have_is_refused(tmp_path: Path) -> None:
    job = job_of(tmp_path, totals())
    job.run(batch(("a", 1)), 1)
    with pytest.raises(ConfigError, match="stands at checkpoint 4, which the pipeline does not"):
        job.changes(4)


def test_output_that_the_job_does_not_have_is_refused(sink: Sink, tmp_path: Path) -> None:
    job = job_of(tmp_path, totals(output=False))
    job.run(batch(("a", 1)), 1)
    with pytest.raises(ConfigError, match="has no output None to merge: expected one of none"):
        job.merge_into(sink)
    other = job_of(tmp_path / "other", totals())
    other.run(batch(("a", 1)), 1)
    with pytest.raises(ConfigError, match="no column 'x' to merge by; it has: k, n, total"):
        other.merge_into(sink, key_by="x")


def test_one_of_two_merges_at_once_is_refused(sink: Sink, tmp_path: Path) -> None:
    """Its changes are older than the table, and would stay there after the next rewind."""
    job = job_of(tmp_path, totals())
    job.run(batch(("a", 1)), 1)
    job.merge_into(sink)
    job.run(batch(("b", 1)), 2)

    class Overtaken(type(sink)):  # type: ignore[misc]
        def merge(self, *arguments: Any) -> None:
            job.run(batch(("c", 1)), 3)
            job.merge_into(sink)
            super().merge(*arguments)

    declared = {field.name: getattr(sink, field.name) for field in fields(sink)}
    with pytest.raises(CheckpointError, match="expected it at checkpoint 2, got 4; nothing is wr"):
        job.merge_into(Overtaken(**declared))
    job.run(batch(("d", 1)), 3, rewind=True)
    job.merge_into(sink)
    assert rows_in(sink) == [("a", 1, 1), ("b", 1, 1), ("d", 1, 1)]


def test_delta_refuses_a_merge_that_another_one_overtakes(tmp_path: Path) -> None:
    """The second merge has opened the table when the first one commits."""
    sink = DeltaSink(str(tmp_path / "delta"))
    job = job_of(tmp_path, totals())
    job.run(batch(("a", 1)), 1)
    job.merge_into(sink)
    job.run(batch(("b", 1)), 2)
    opened: list[Any] = []

    class Overtaken(DeltaSink):
        def _table(self) -> Any:
            opened.append(super()._table())
            if len(opened) == 2:  # after that of the position
                job.run(batch(("c", 1)), 3)
                job.merge_into(sink)
            return opened[-1]

    with pytest.raises(CommitFailedError):
        job.merge_into(Overtaken(sink.path))
    assert rows_in(sink) == [("a", 1, 1), ("b", 1, 1), ("c", 1, 1)]


@pytest.mark.parametrize("operator", [totals(), large()], ids=["keys", "rows"])
def test_iceberg_refuses_a_merge_that_another_one_overtakes(tmp_path: Path, operator: Any) -> None:
    """The other merge commits while the first one has written its files."""
    sink = iceberg_in(tmp_path)
    job = job_of(tmp_path, operator)
    job.run(batch(("a", 11)), 1)
    job.merge_into(sink)
    job.run(batch(("b", 12)), 2)

    class Overtaken(IcebergSink):
        @contextmanager
        def _committed(self, *arguments: Any) -> Iterator[Any]:
            with super()._committed(*arguments) as transaction:
                yield transaction
                job.run(batch(("c", 13)), 3)
                job.merge_into(sink)

    with pytest.raises(CheckpointError, match="was changed while a merge wrote it"):
        job.merge_into(Overtaken(sink.table, sink.catalog, sink.properties))
    for _ in range(2):
        assert [row[0] for row in rows_in(sink)] == ["a", "b", "c"]
        job.merge_into(sink)


def test_a_place_of_iceberg_that_is_not_there_is_refused(tmp_path: Path) -> None:
    properties = iceberg_in(tmp_path).properties
    job = job_of(tmp_path, totals())
    job.run(batch(("a", 1)), 1)
    with pytest.raises(ConfigError, match=r"'lake' has no namespace for the table no\.totals"):
        job.merge_into(IcebergSink("no.totals", "lake", properties))
    with pytest.raises(ConfigError, match=r"The catalog 'sea' of the table shop\.totals cannot be"):
        job.merge_into(IcebergSink("shop.totals", "sea"))


def test_one_of_two_merges_that_make_the_table_of_iceberg_is_refused(tmp_path: Path) -> None:
    sink = iceberg_in(tmp_path)
    job = job_of(tmp_path, totals())
    job.run(batch(("a", 1)), 1)

    class Overtaken(IcebergSink):
        def _create(self, *arguments: Any) -> None:
            job.merge_into(sink)
            super()._create(*arguments)

    with pytest.raises(CheckpointError, match="was changed while a merge wrote it"):
        job.merge_into(Overtaken(sink.table, sink.catalog, sink.properties))
    assert rows_in(sink) == [("a", 1, 1)]


@pytest.mark.parametrize("number", [float("nan"), -0.0])
def test_numbers_that_tables_compare_otherwise_are_no_keys(tmp_path: Path, number: float) -> None:
    operator = AggregateOperator("u", "k", TOTALS, schema="k double, v bigint", output=True)
    job = job_of(tmp_path, operator)
    job.run(pa.table({"k": [1.5, number], "v": [1, 2]}), 1)
    with pytest.raises(ConfigError, match=r"'k', which it is merged by, is NaN or -0\.0"):
        job.merge_into(ParquetSink(str(tmp_path / "totals.parquet")))


@pytest.mark.parametrize("keys", [(("k", "v"), ()), ((), "k"), ("k", ("k", "v"))])
def test_a_table_keeps_its_keys(sink: Sink, tmp_path: Path, keys: tuple[Any, Any]) -> None:
    job = job_of(tmp_path, large())
    job.run(batch(("a", 11)), 1)
    job.merge_into(sink, key_by=keys[0])
    job.run(batch(("a", 12)), 2)
    with pytest.raises(ConfigError, match="filled it: something else did, or by other keys"):
        job.merge_into(sink, key_by=keys[1])
    job.merge_into(sink, key_by=keys[0])
    assert len(rows_in(sink)) == (1 if keys[0] == "k" else 2)


class Halves(Large):
    """Gives halves."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        yield {"k": value["k"], "v": value["v"] / 2}


@pytest.mark.parametrize("key_by", [(), ("k",)])
def test_values_are_never_cast_to_the_type_of_a_table(
    sink: Sink, tmp_path: Path, key_by: tuple[str, ...]
) -> None:
    """Delta would store 9.5 as 9."""
    job_of(tmp_path, large()).run(batch(("a", 11)), 1)
    job_of(tmp_path, large()).merge_into(sink, key_by=key_by)
    job = job_of(tmp_path, KeyedOperator("large", "k", "string", Halves(), "k string, v double"))
    job.run(batch(("a", 19)), 2)
    before = rows_in(sink)
    with pytest.raises(ConfigError, match=r"has the column 'v' as .*, and the output now has"):
        job.merge_into(sink, key_by=key_by)
    assert rows_in(sink) == before
    with pytest.raises(ConfigError, match="has not the same types in all epochs"):
        job.merge_into(ParquetSink(str(tmp_path / "new.parquet")), key_by=key_by)
    job.run(batch(("a", 19)), 1, rewind=True)
    new = ParquetSink(str(tmp_path / "new.parquet"))
    job.merge_into(new, key_by="k")
    assert rows_in(new) == [("a", 9.5)]


def test_columns_that_cannot_be_merged_are_named(tmp_path: Path) -> None:
    sink = ParquetSink(str(tmp_path / "t.parquet"))
    states = {"change": aggregates.count()}
    job = job_of(tmp_path, AggregateOperator("c", "k", states, key_type="string", output=True))
    job.run(batch(("a", 1)), 1)
    with pytest.raises(ConfigError, match="has a column 'change', a name that is reserved"):
        job.merge_into(sink)
    decimals = AggregateOperator("d", "k", TOTALS, schema="k decimal(4, 2), v int", output=True)
    job = job_of(tmp_path / "decimals", decimals)
    job.run(pa.table({"k": pa.array([Decimal(1)], pa.decimal128(4, 2)), "v": [1]}), 1)
    with pytest.raises(ConfigError, match="cannot be merged by 'k', which is struct"):
        job.merge_into(sink)


def test_whole_rows_and_lists_are_columns_of_the_table(sink: Sink, tmp_path: Path) -> None:
    """They are made anew from state, and merged beside the key, as stored output is."""
    states = {
        "latest": aggregates.last_row(["v", "d"], order_by="t"),
        "values": aggregates.collect_set("v", limit=9),
    }

    def job(*, output: bool) -> StatefulJob:
        schema = "k string, v bigint, d decimal(9, 2), t bigint"
        operator = AggregateOperator("totals", "k", states, schema=schema, output=output)
        return job_of(tmp_path, operator)

    def given(key: str, value: int, time: int) -> pa.Table:
        decimals = pa.array([Decimal(value)], pa.decimal128(9, 2))
        return pa.table({"k": [key], "v": [value], "d": decimals, "t": [time]})

    def row(key: str, latest: int, *values: int) -> tuple[Any, ...]:
        return key, {"v": latest, "d": Decimal(latest)}, [*values]

    job(output=False).run(given("a", 1, time=9), 1)
    job(output=True).run(given("b", 2, time=1), 2)
    assert job(output=True).merge_into(sink).whole
    assert rows_in(sink) == [row("a", 1, 1), row("b", 2, 2)]
    job(output=True).run(given("a", 3, time=8), 3)
    assert not job(output=True).merge_into(sink).whole
    assert rows_in(sink) == [row("a", 1, 1, 3), row("b", 2, 2)]
