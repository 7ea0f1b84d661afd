"""Jobs of several operators on Spark's frames, their cancellation, micro-batches of a stream."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from dstl_core import Snapshot
from dstl_core.codec.serializers import Types
from dstl_core.errors import (
    NonRestoredStateError,
)
from dstl_core.functions import (
    BroadcastFunction,
    CheckpointedFunction,
    KeyedProcessFunction,
    ProcessFunction,
)
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies, ProcessOperator
from dstl_core.state.tables.descriptor import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.stateful_job import StatefulJob
from tests import stateful_job
from tests.integration.spark.job_functions import OUTPUT, SCHEMA, TotalsByRow, plain, random_batch

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True, scope="module")
def by_value():
    cloudpickle.register_pickle_by_value(stateful_job)
    yield
    cloudpickle.unregister_pickle_by_value(stateful_job)


def totals_job(spark, base, name="job", **options):
    operator = KeyedOperator("totals", "k", Types.STRING, TotalsByRow(), OUTPUT)
    local = LocalCopies(str(base / "local"))
    return StatefulJob(spark, name, str(base), operator, local_copies=local, **options)


def totals_of(spark, path):
    rows = spark.read.format("savepoint").option("operator.uid", "totals").load(path).collect()
    return {row.state_key: (row.total, row.last) for row in rows}


# ------------------------------------------------------------------------- several operators


class Enrich(ProcessFunction, BroadcastFunction, CheckpointedFunction):
    """Multiplies by the factor of the broadcast state and counts its rows in operator state."""

    def initialize_state(self, context):
        store = context.operator_state_store
        self._factor = store.get_broadcast_state(
            MapStateDescriptor("factors", Types.STRING, Types.LONG)
        )
        self._count = store.get_list_state(ListStateDescriptor("count", Types.LONG))

    def snapshot_state(self, context):
        pass

    def process_broadcast_element(self, value):
        self._factor.put(value["name"], value["factor"])

    def process_element(self, value, ctx):
        self._count.update([sum(self._count.get()) + 1])
        yield {"k": value["k"], "v": value["v"] * self._factor.get("all"), "t": value["t"]}


class Largest(KeyedProcessFunction):
    """The largest sum that a key has had."""

    def open(self, runtime_context):
        self._largest = runtime_context.get_state(ValueStateDescriptor("largest", Types.LONG))

    def process_element(self, value, ctx):
        self._largest.update(max(self._largest.value() or 0, value["total"]))


def chain(spark, base, factor, **options):
    rows = pa.schema([("k", pa.string()), ("v", pa.int64()), ("t", pa.string())])
    factors = spark.createDataFrame([("all", factor)], "name string, factor long")
    return StatefulJob(
        spark,
        "chain",
        str(base),
        ProcessOperator("enrich", Enrich(), rows, broadcast=lambda frames: factors),
        downstream=[
            KeyedOperator(
                "totals", "k", Types.STRING, TotalsByRow(), OUTPUT, "enrich", order_by=["v"]
            ),
            KeyedOperator(
                "largest",
                "k",
                Types.STRING,
                Largest(),
                source=lambda frames: frames["totals"].where("k <> ''"),
                order_by=["total"],
            ),
        ],
        **options,
    )


def test_operators_connected_by_frames_commit_together(spark, tmp_path):
    batches = [random_batch(1, 80), random_batch(2, 80)]
    for number, (factor, parallelism) in enumerate([(2, 2), (3, 3)]):
        job = chain(spark, tmp_path, factor, parallelism=parallelism)
        frame = spark.createDataFrame(batches[number], SCHEMA)
        result = job.run(frame, number, order_by=["v"])
        assert set(result.outputs) == {"enrich", "totals"}
    multiplied = [
        [(key, factor * value, text) for key, value, text in rows]
        for factor, rows in zip((2, 3), batches, strict=True)
    ]
    path = job.latest_path()
    expected = plain(multiplied)
    assert totals_of(spark, path) == expected
    largest = spark.read.format("savepoint").option("operator.uid", "largest").load(path).collect()
    sums = {key: total for key, (total, _) in expected.items() if key}
    assert {row.state_key: row.largest for row in largest} == sums
    names = {each.uid for each in Snapshot.load(path).operators}
    assert names == {"enrich", "totals", "largest"}
    again = chain(spark, tmp_path, 3, parallelism=3)
    result = again.run(spark.createDataFrame(batches[1], SCHEMA), 1, order_by=["v"])
    assert result.committed_before and set(result.outputs) == {"enrich", "totals"}
    shorter = totals_job(spark, tmp_path, name="chain")
    with pytest.raises(NonRestoredStateError, match="pass allow_non_restored_state=True"):
        shorter.run(spark.createDataFrame(batches[1], SCHEMA), 2, order_by=["v"])


# ------------------------------------------------------------------------------------ cancel


class Endless(KeyedProcessFunction):
    """Says that it runs, and does not end."""

    def __init__(self, says):
        self._says = says

    def process_element(self, value, ctx):
        Path(self._says).touch()
        while True:
            pass


def test_cancel_ends_the_spark_job_and_leaves_the_state(spark, tmp_path):
    job = totals_job(spark, tmp_path)
    rows = random_batch(1, 60)
    job.run(spark.createDataFrame(rows, SCHEMA), 0, order_by=["v"])
    before = job.latest()
    says = tmp_path / "runs"
    operator = KeyedOperator("totals", "k", Types.STRING, Endless(str(says)), OUTPUT)
    endless = StatefulJob(spark, "job", str(tmp_path), operator)
    frame = spark.createDataFrame(rows, SCHEMA)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(endless.run, frame, 1, ["v"])
        while not says.exists():
            assert not running.done(), running.result()
        endless.cancel()
        with pytest.raises(Exception, match=r"(?i)cancel"):
            running.result(timeout=60)
    assert job.latest() == before
    again = totals_job(spark, tmp_path)  # the other one has claimed the pipeline
    again.run(frame, 1, order_by=["v"])
    assert totals_of(spark, again.latest_path()) == plain([rows, rows])


# ------------------------------------------------------------------- materialization, savepoint


def test_micro_batches_are_epochs(spark, tmp_path):
    batches = [random_batch(seed, 50) for seed in range(3)]
    source = tmp_path / "source"
    for number, rows in enumerate(batches):
        frame = spark.createDataFrame(rows, SCHEMA).coalesce(1)
        frame.write.mode("append").parquet(str(source))
        del number
    job = totals_job(spark, tmp_path / "jobs")

    def stream(progress):
        query = (
            spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(source))
            .writeStream.foreachBatch(job.foreach_batch(order_by=["v"]))
            .option("checkpointLocation", str(tmp_path / progress))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return [commit.facts.input.id for commit in job.history() if commit.facts.input]

    for _ in range(2):  # the second query finds nothing new
        assert stream("progress") == [0, 1, 2]
    sums = {}
    for key, value, _ in (row for rows in batches for row in rows):
        sums[key] = sums.get(key, 0) + value
    totals = totals_of(spark, job.latest_path())
    assert {key: total for key, (total, _) in totals.items()} == sums
    # A stream without its progress reads the same rows again, and they are other batches.
    assert stream("new progress") == [0, 1, 2, 3, 4, 5]
    totals = totals_of(spark, job.latest_path())
    assert {key: total for key, (total, _) in totals.items()} == {
        key: 2 * total for key, total in sums.items()
    }
