"""The same epochs on Spark and on the local engine: the same files, fingerprints and output."""

from __future__ import annotations

import json
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dstl_core import (
    AggregateOperator,
    KeyedOperator,
    StatefulJob,
    aggregates,
    windows,
)
from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.local.local_engine import LocalEngine
from dstl_core.spark.job import small_batches
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend
from tests.aggregate_declarations import DDL, KEY, accepted, python_of, typed_table
from tests.aggregate_declarations import SCHEMA as EVERY_TYPE
from tests.integration.spark.job_functions import (
    OUTPUT,
    SCHEMA,
    TotalsByColumn,
    TotalsByRow,
    random_batch,
)
from tests.job_files import files_of

pytestmark = pytest.mark.spark

HASHMAP, ROCKSDB = HashMapStateBackend(), EmbeddedRocksDBStateBackend()
EVERY = {
    "n": aggregates.count(),
    "total": aggregates.sum("v"),
    "least": aggregates.min("t"),
    "latest": aggregates.max_by("t", "v"),
    "last": aggregates.last("v", order_by=["v", "t"], keeps_order=False),
    "spread": aggregates.stddev("v"),
    "texts": aggregates.collect_set("t", 3),
    "later": aggregates.last_values("t", 2, "v"),
    "often": aggregates.value_counts("t", 100),
    "different": aggregates.approx_count_distinct("t"),
    "sizes": aggregates.histogram("v", [10, 1_000, 50_000]),
}


def by(function: type) -> KeyedOperator:
    return KeyedOperator("totals", "k", Types.STRING, function(), OUTPUT)


def windowed(window: Any) -> AggregateOperator:
    return AggregateOperator(
        "totals",
        "k",
        EVERY,
        schema=SCHEMA,
        window=window,
        event_time="v",
        out_of_orderness_ms=1_000,
        side_output_late_data=True,
    )


JOBS = {
    "by row": (lambda: by(TotalsByRow), HASHMAP),
    "by row, RocksDB": (lambda: by(TotalsByRow), ROCKSDB),
    "by column": (lambda: by(TotalsByColumn), HASHMAP),
    "aggregates": (
        lambda: AggregateOperator("totals", "k", EVERY, schema=SCHEMA, output=True),
        HASHMAP,
    ),
    "tumbling": (lambda: windowed(windows.TumblingEventTimeWindows.of(20_000)), HASHMAP),
    "sliding": (lambda: windowed(windows.SlidingEventTimeWindows.of(9_000, 2_000)), ROCKSDB),
    "sessions": (lambda: windowed(windows.EventTimeSessionWindows.with_gap(3_000)), HASHMAP),
}


def job(engine, base: Path, name: str) -> StatefulJob:
    make, backend = JOBS[name]
    copies = LocalCopies(str(base / "local"))
    return StatefulJob(
        engine, "job", str(base / "jobs"), make(), state_backend=backend, local_copies=copies
    )


def run(spark, running: StatefulJob, number: int):
    rows = random_batch(number)
    is_local = isinstance(running.engine, LocalEngine)
    batch = table_of(rows) if is_local else spark.createDataFrame(rows, SCHEMA).coalesce(1)
    # Spark sends rows in another way if they have an order.
    order = None if running.operator.function.order_insensitive and number % 2 else ["v"]
    return running.run(batch, number, order_by=order)


def table_of(rows) -> pa.Table:
    kinds = zip("kvt", (pa.string(), pa.int64(), pa.string()), zip(*rows, strict=True), strict=True)
    return pa.table({name: pa.array(values, kind) for name, kind, values in kinds})


def facts_of(running: StatefulJob) -> list[dict[str, Any]]:
    """The commit records without ids of attempts, times and file names."""
    varying = {"attempt", "seconds", "output_files", "late_files", "warmth", "metadata_bytes"}

    def fixed(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: fixed(part)
                for name, part in value.items()
                if name not in varying and not name.endswith("_ms")
            }
        return value

    return [fixed(json.loads(json.dumps(_plain(commit.facts)))) for commit in running.history()]


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


@pytest.mark.parametrize("name", JOBS)
def test_both_engines_write_the_same_files(spark, tmp_path, name):
    on_spark, local = job(spark, tmp_path / "a", name), job(LocalEngine(), tmp_path / "b", name)
    for number in range(3):
        results = [run(spark, running, number) for running in (on_spark, local)]
        tables = [
            {uid: rows.toArrow() for uid, rows in results[0].outputs.items()},
            {uid: rows.to_arrow() for uid, rows in results[1].outputs.items()},
        ]
        assert tables[0].keys() == tables[1].keys()
        for uid, table in tables[0].items():
            assert sorted(map(str, table.to_pylist())) == sorted(
                map(str, tables[1][uid].to_pylist())
            )
    assert facts_of(on_spark) == facts_of(local)
    assert files_of(on_spark) == files_of(local)


def test_every_aggregate_of_any_type_is_the_same_state_on_both_engines(spark, tmp_path):
    wanted = {name: python_of(declared) for name, declared in accepted(2).items()}
    written = []
    for engine in (spark, LocalEngine()):
        base = tmp_path / type(engine).__name__
        operator = AggregateOperator("totals", KEY, wanted, schema=EVERY_TYPE)
        running = StatefulJob(
            engine, "job", str(base), operator, local_copies=LocalCopies(str(base / "local"))
        )
        for number in range(2):
            rows = typed_table(number)
            batch = spark.createDataFrame(rows, DDL).coalesce(1) if engine is spark else rows
            running.run(batch, number)
        written.append((facts_of(running), files_of(running)))
    assert written[0] == written[1]


CHANGED_IN_MAKE_TEST = {"by row, RocksDB", "aggregates", "sliding"}
"""A function, aggregates and windows; the test above has the files of all."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in CHANGED_IN_MAKE_TEST else pytest.mark.soak)
        for name in JOBS
    ],
)
def test_a_pipeline_changes_its_engine_at_any_epoch(spark, tmp_path, name):
    alone = job(LocalEngine(), tmp_path / "alone", name)
    engines = cycle([spark, LocalEngine()])
    for number in range(4):
        run(spark, alone, number)
        mixed = job(next(engines), tmp_path / "mixed", name)
        run(spark, mixed, number)
        again = job(next(engines), tmp_path / "mixed", name)
        assert run(spark, again, number).committed_before, "the other engine knows the batch"
        next(engines)
    # Each new object takes an id of a checkpoint, so the folders of checkpoints differ.
    for one, other in zip(facts_of(alone), facts_of(mixed), strict=True):
        assert one | {"restored_from": None} == other | {"restored_from": None}
    digests = [sorted(digest for _, digest in files_of(each)) for each in (alone, mixed)]
    assert digests[0] == digests[1]


def stages_of(spark, run) -> int:
    """The stages of Spark that a call has planned."""
    context, name = spark.sparkContext, "stages of a call"
    before = set(context.statusTracker().getJobIdsForGroup(name))
    context.setJobGroup(name, name)
    try:
        run()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    tracker = context.statusTracker()
    jobs = set(tracker.getJobIdsForGroup(name)) - before
    return sum(len(tracker.getJobInfo(number).stageIds) for number in jobs)


def test_one_task_applies_a_small_batch_and_writes_the_same_files(spark, tmp_path, monkeypatch):
    frames = []
    for number in range(2):
        pq.write_table(table_of(random_batch(number)), tmp_path / f"{number}.parquet")
        frames.append(spark.read.parquet(str(tmp_path / f"{number}.parquet")))
    written = []
    for limit in (small_batches.SMALL_BYTES, 0):
        monkeypatch.setattr(small_batches, "SMALL_BYTES", limit)
        running = job(spark, tmp_path / str(limit), "aggregates")
        stages = [
            stages_of(spark, lambda rows=rows, at=at, of=running: of.run(rows, at))
            for at, rows in enumerate(frames)
        ]
        assert (stages[-1] == 1) is (limit > 0)
        written.append((facts_of(running), files_of(running)))
    assert written[0] == written[1]


def test_one_task_fails_with_one_of_its_subtasks_and_the_next_epoch_goes_on(spark, tmp_path):
    sums = AggregateOperator("s", "k", {"t": aggregates.sum("v")}, schema="k string, v bigint")
    running = StatefulJob(spark, "job", str(tmp_path), sums)
    most = 2**63 - 1
    for number, last in enumerate((1, most, 2)):
        rows = [(f"key-{at}", 1) for at in range(20)] + [("key-3", last)]
        batch = spark.createDataFrame(rows, "k string, v bigint")
        if last == most:
            with pytest.raises(ConfigError, match="does not fit"):
                running.run(batch, number)
        else:
            running.run(batch, number)
    values = {line["key"]: line["value"] for line in running.snapshot()["s"].dump("t")}
    assert values == {f"key-{at}": 2 for at in range(20)} | {"key-3": 5}


def test_each_subtask_has_a_task_where_one_task_would_not_do(spark, tmp_path):
    path = str(tmp_path / "rows.parquet")
    pq.write_table(table_of(random_batch(0)), path)
    of_file = spark.read.parquet(path)
    of_unknown_size = spark.createDataFrame(spark.sparkContext.parallelize(random_batch(1)), SCHEMA)
    cases = (
        ("tumbling", of_file, None),
        ("aggregates", of_file, ["v"]),
        ("aggregates", of_unknown_size, None),
        ("aggregates", of_file.groupBy(*of_file.columns).count().drop("count"), None),
    )
    for number, (name, rows, order) in enumerate(cases):
        running = job(spark, tmp_path / str(number), name)
        running.start()
        assert stages_of(spark, partial(running.run, rows, 1, order)) > 1


def test_frequent_keys_that_spark_reduces_on_their_way_have_the_same_state(
    spark, tmp_path, monkeypatch
):
    monkeypatch.setattr(small_batches, "SMALL_BYTES", 0)  # one task would send no row
    written = {}
    # The last digits of a deviation, and the bytes of a sketch, depend on the order of rows.
    exact = {name: each for name, each in EVERY.items() if name not in ("spread", "different")}
    for engine in (spark, LocalEngine()):
        base = tmp_path / type(engine).__name__
        operator = AggregateOperator("totals", "k", exact, schema=SCHEMA)
        running = StatefulJob(engine, "job", str(base), operator)
        for number in range(2):
            rows = spark.range(60_000).selectExpr(
                f"concat('key-', if(id % 10 > 0, 0, hash(id, {number}) % 300)) AS k",
                "id * 7 % 65536 AS v",
                "string(id % 50) AS t",
            )
            result = running.run(rows if engine is spark else rows.toArrow(), number)
        snapshot = running.snapshot()["totals"]
        written[base.name] = {
            name: {row["key"]: row["value"] for row in snapshot.dump(name)} for name in exact
        }
        assert result.facts.input.rows == 60_000
    [one, other] = written.values()
    assert one == other
    assert one["n"]["key-0"] > 54_000 * 2


TYPED = pa.table(
    {
        "k": pa.array(["ada", "bob"], pa.large_string()),
        "small": pa.array([1, None], pa.uint8()),
        "price": pa.array([1.5, -0.0]),
        "at": pa.array([0, 1_500_000], pa.timestamp("ms")),
        "moment": pa.array([0, 1_500_000], pa.timestamp("us", "Europe/Berlin")),
        "day": pa.array([0, 20_000], pa.date32()),
        "names": pa.array(["x", "y"]).dictionary_encode(),
        "items": pa.array([[1, 2], None], pa.list_(pa.int64())),
        "place": pa.array([{"x": 1, "y": "a"}, {"x": None, "y": "b"}]),
    }
)


def test_both_engines_take_rows_in_the_same_forms(spark, tmp_path):
    """Each input is committed on one engine, and the other one knows it."""
    pq.write_table(TYPED, tmp_path / "rows.parquet")
    (tmp_path / "day").mkdir()
    for number, row in enumerate(TYPED.to_batches(max_chunksize=1)):
        pq.write_table(pa.table(row), tmp_path / "day" / f"{number}.parquet")
    forms = {
        "table": lambda: TYPED,
        "batch": lambda: TYPED.to_batches()[0],
        "batches": lambda: TYPED.to_batches(max_chunksize=1),
        "stream": lambda: pa.RecordBatchReader.from_batches(TYPED.schema, TYPED.to_batches()),
        "file": lambda: tmp_path / "rows.parquet",
        "files": lambda: [str(file) for file in sorted((tmp_path / "day").iterdir())],
        "folder": lambda: str(tmp_path / "day"),
    }
    operator = AggregateOperator("totals", "k", {"n": aggregates.count()}, "string")

    def jobs():
        base = str(tmp_path / "jobs")
        return [StatefulJob(engine, "job", base, operator) for engine in (spark, LocalEngine())]

    for number, rows in enumerate(forms.values()):
        first, second = jobs() if number % 2 else jobs()[::-1]
        assert not first.run(rows(), number).committed_before
        assert second.run(rows(), number).committed_before
    counts = second.snapshot()["totals"].dump("n")
    assert {line["value"] for line in counts} == {len(forms)}
    nanoseconds = TYPED.append_column("ns", pa.array([1, 1], pa.timestamp("ns")))
    for running in jobs():
        with pytest.raises(ConfigError, match=r"The batch has a value that Spark's types cannot"):
            running.run(nanoseconds, len(forms))


def test_a_migration_on_spark_and_on_the_local_engine_gives_equal_state(
    spark: Any, tmp_path: Path
) -> None:
    rows = table_of(random_batch(0, 40))
    states = []
    for name, engine in (("spark", spark), ("local", LocalEngine())):
        jobs = str(tmp_path / name)

        def job_of(declared: Any, engine: Any = engine, jobs: str = jobs) -> StatefulJob:
            operator = AggregateOperator("totals", "k", declared, schema=SCHEMA)
            return StatefulJob(engine, "job", jobs, operator)

        job_of({"n": aggregates.count(), "mean": aggregates.avg("v")}).run(rows, 1)
        job = job_of({"total": aggregates.sum("v"), "average": aggregates.avg("v")})
        backfill: dict[str, Any] = {"backfill": ["total"], "batches": lambda _: rows}
        job.migrate(rename={"mean": "average"}, drop=["n"], **backfill)
        job.run(rows, 2)
        operator = job.snapshot()["totals"]
        states.append(
            {
                state.name: {line["key"]: line["value"] for line in operator.dump(state.name)}
                for state in operator.states
            }
        )
    assert states[0] == states[1]
    assert set(states[0]) == {"total", "average_sum", "average_count"}
    sums = duckdb.sql("SELECT k, 2 * sum(v) FROM rows GROUP BY k HAVING sum(v) IS NOT NULL")
    assert states[0]["total"] == dict(sums.fetchall())
