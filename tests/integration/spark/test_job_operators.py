"""Jobs with timers, several operators, broadcast inputs, rewind, materialization beside epochs."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from dstl_core import Snapshot
from dstl_core.codec.serializers import Types
from dstl_core.errors import (
    ConfigError,
    FencedError,
    NonRestoredStateError,
    RestoreError,
    StateFileNotFoundError,
)
from dstl_core.functions import (
    BroadcastFunction,
    CheckpointedFunction,
    KeyedProcessFunction,
    ProcessFunction,
)
from dstl_core.job.coordination.job_materialization import BackgroundMaterialization
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies, ProcessOperator
from dstl_core.savepoint.check.gc import collect_garbage
from dstl_core.savepoint.check.verify import verify_snapshot
from dstl_core.state.tables.descriptor import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.stateful_job import StatefulJob
from dstl_core.testing import ManualClock
from tests import stateful_job
from tests.integration.spark import job_functions
from tests.integration.spark.job_functions import OUTPUT, SCHEMA, TotalsByRow, plain, random_batch
from tests.stateful_job import Everything, Model

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True, scope="module")
def by_value():
    for module in (job_functions, stateful_job):
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in (job_functions, stateful_job):
        cloudpickle.unregister_pickle_by_value(module)


def totals_job(spark, base, name="job", **options):
    operator = KeyedOperator("totals", "k", Types.STRING, TotalsByRow(), OUTPUT)
    local = LocalCopies(str(base / "local"))
    return StatefulJob(spark, name, str(base), operator, local_copies=local, **options)


def totals_of(spark, path):
    rows = spark.read.format("savepoint").option("operator.uid", "totals").load(path).collect()
    return {row.state_key: (row.total, row.last) for row in rows}


# ------------------------------------------------------------------------------- every state

KINDS = (
    "value list map reducing aggregating expiring clear|list all|list set|map all|map remove|"
    "event timer|no event timer|time timer"
)
FIRED = pa.schema(
    [("domain", pa.string()), ("k", pa.string()), ("time", pa.int64()), ("count", pa.int64())]
)


class EveryKind(Everything):
    """State of every kind; what fires is output."""

    def __init__(self):
        super().__init__(folding=False)

    def on_timer(self, timestamp, ctx):
        for domain, key, time, count in super().on_timer(timestamp, ctx):
            yield {"domain": domain, "k": key, "time": time, "count": count}


def program(seed, count=120):
    import random

    chooser = random.Random(seed)
    first, *others = KINDS.split("|")
    kinds = [*first.split(), *others]
    return [
        (number, chooser.choice("abcdef"), chooser.choice(kinds), chooser.randrange(1, 40))
        for number in range(count)
    ]


def test_every_kind_of_state_and_timer_equals_a_model(spark, tmp_path):
    clock, model = ManualClock(), Model()
    operator = KeyedOperator("everything", "key", Types.STRING, EveryKind(), FIRED)
    fired, expected = [], []
    for epoch, parallelism in enumerate([2, 2, 3]):
        job = StatefulJob(
            spark, "job", str(tmp_path), operator, parallelism=parallelism, clock=clock
        )
        elements = program(epoch)
        rows = spark.createDataFrame(elements, "at long, key string, do string, number long")
        watermark = 10 * (epoch + 1)
        now = clock.now_ms()
        result = job.run(rows, epoch, order_by=["at"], watermark_ms=watermark)
        for _, key, do, number in elements:
            model.apply({"key": key, "do": do, "number": number}, now)
        expected += [("event", key, time) for time, key in model.event if time <= watermark]
        expected += [("processing", key, time) for time, key in model.processing if time <= now]
        model.fire("event", watermark)
        model.fire("processing", now)
        fired += [(row.domain, row.k, row.time) for row in result.output.collect()]
        assert sorted(fired) == sorted(expected), epoch
        clock.advance(400)
    now = clock.now_ms()
    snapshot = Snapshot.load(job.savepoint(str(tmp_path / "savepoint")))
    path = str(snapshot.folder)
    for state, name in (("value", "value"), ("reducing", "reducing"), ("list", "list_value")):
        found = {}
        reader = spark.read.format("savepoint").option("state", state)
        for row in reader.load(path).collect():
            if state == "list":
                found.setdefault(row.state_key, []).append((row.list_index, row[name]))
            else:
                found[row.state_key] = row[1]
        if state == "list":
            found = {key: [each for _, each in sorted(pairs)] for key, pairs in found.items()}
        wanted = {key: model.seen(key, now)[state] for key in model.keys}
        assert found == {key: value for key, value in wanted.items() if value not in (None, [])}


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


# ------------------------------------------------------------------------------------ rewind


def test_rewind_goes_back_to_before_an_input(spark, tmp_path):
    job = totals_job(spark, tmp_path, num_retained=5)
    batches = [random_batch(seed, 60) for seed in range(4)]
    frames = [spark.createDataFrame(rows, SCHEMA) for rows in batches]
    for number in range(3):
        job.run(frames[number], number, order_by=["v"])
    with pytest.raises(ConfigError, match="rewind=True"):
        job.run(frames[3], -1, order_by=["v"])
    corrected = job.run(frames[3], 1, order_by=["v"], rewind=True)
    assert totals_of(spark, job.latest_path()) == plain([batches[0], batches[3]])
    again = job.run(frames[3], 1, order_by=["v"], rewind=True)
    assert again.committed_before and again.checkpoint == corrected.checkpoint
    job.run(frames[2], 2, order_by=["v"])
    assert totals_of(spark, job.latest_path()) == plain([batches[0], batches[3], batches[2]])
    commits = len(job.history())
    for number, frame in enumerate((frames[0], frames[3], frames[2])):
        assert job.run(frame, number, order_by=["v"]).committed_before
    assert len(job.history()) == commits
    short = totals_job(spark, tmp_path, name="short", num_retained=1)
    for number in range(2):
        short.run(frames[number], number, order_by=["v"])
    with pytest.raises(RestoreError, match="was retired and cannot be restored"):
        short.run(frames[2], 0, order_by=["v"], rewind=True)


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


def test_a_materialization_beside_epochs_becomes_the_base(spark, tmp_path):
    job = totals_job(spark, tmp_path)
    batches = [random_batch(seed, 60) for seed in range(4)]
    frames = [spark.createDataFrame(rows, SCHEMA) for rows in batches]
    job.run(frames[0], 0, order_by=["v"])
    materialization = job.materialize_beside()
    job.run(frames[1], 1, order_by=["v"])
    log = job.state_size().log
    adopted = job.adopt(materialization)
    assert adopted is not None and adopted.facts.log_bytes_before == log
    for subtask in job.snapshot()["totals"].state.subtasks:
        assert subtask.managed_keyed_state.checkpoint_id == adopted.checkpoint_id
    assert 0 < job.state_size().log < log
    assert totals_of(spark, job.latest_path()) == plain(batches[:2])
    job.run(frames[2], 2, order_by=["v"])
    late = job.materialize_beside()
    job.materialize()
    assert job.adopt(late) is None, "the state has another base by now"
    job.run(frames[3], 3, order_by=["v"])
    assert totals_of(spark, job.latest_path()) == plain(batches)


def test_a_materialization_of_a_driver_that_was_overtaken_is_gc_s_and_not_adopted(spark, tmp_path):
    batches = [random_batch(seed, 60) for seed in range(2)]
    frames = [spark.createDataFrame(rows, SCHEMA) for rows in batches]
    totals_job(spark, tmp_path).run(frames[0], 0, order_by=["v"])
    beside = totals_job(spark, tmp_path)
    materialization = beside.materialize_beside()
    materialization.result()
    other = totals_job(spark, tmp_path)
    other.run(frames[1], 1, order_by=["v"])
    assert collect_garbage(str(tmp_path), delete=True, older_than_ms=0).deleted
    with pytest.raises(FencedError):
        beside.adopt(materialization)
    assert verify_snapshot(other.snapshot()).findings == []
    assert totals_of(spark, other.latest_path()) == plain(batches)


def test_a_materialization_whose_base_went_is_given_up_if_there_is_another(spark, tmp_path):
    job = totals_job(spark, tmp_path)
    job.run(spark.createDataFrame(random_batch(0, 60), SCHEMA), 0, order_by=["v"])

    def lost():
        raise StateFileNotFoundError("The base is gone.")

    parent = job._coordinator.latest_file().metadata
    with pytest.raises(StateFileNotFoundError):
        job.adopt(BackgroundMaterialization(parent, lost))
    job.materialize()
    assert job.adopt(BackgroundMaterialization(parent, lost)) is None


def test_stop_with_savepoint_and_go_on_elsewhere(spark, tmp_path):
    job = totals_job(spark, tmp_path)
    batches = [random_batch(seed, 60) for seed in range(2)]
    frames = [spark.createDataFrame(rows, SCHEMA) for rows in batches]
    job.run(frames[0], 0, order_by=["v"])
    path = job.stop_with_savepoint(str(tmp_path / "savepoint"), drain=True)
    assert job.stop_with_savepoint(str(tmp_path / "savepoint")) == path
    with pytest.raises(ConfigError, match=r"was stopped with savepoint .*; start a pipeline"):
        job.run(frames[1], 1, order_by=["v"])
    other = totals_job(spark, tmp_path, name="other", parallelism=3)
    other.start(path)
    other.run(frames[1], 1, order_by=["v"])
    assert totals_of(spark, other.latest_path()) == plain(batches)
    job.resume()
    job.run(frames[1], 1, order_by=["v"])
    assert totals_of(spark, job.latest_path()) == plain(batches)


def test_micro_batches_are_epochs(spark, tmp_path):
    batches = [random_batch(seed, 50) for seed in range(3)]
    source = tmp_path / "source"
    for number, rows in enumerate(batches):
        frame = spark.createDataFrame(rows, SCHEMA).coalesce(1)
        frame.write.mode("append").parquet(str(source))
        del number
    job = totals_job(spark, tmp_path / "jobs")
    for _ in range(2):  # the second query finds nothing new
        query = (
            spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(source))
            .writeStream.foreachBatch(job.foreach_batch(order_by=["v"]))
            .option("checkpointLocation", str(tmp_path / "checkpoints"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
    ids = [each.facts.input.id for each in job.history() if each.facts.input]
    assert ids == [0, 1, 2]
    sums = {}
    for key, value, _ in (row for rows in batches for row in rows):
        sums[key] = sums.get(key, 0) + value
    found = totals_of(spark, job.latest_path())
    assert {key: total for key, (total, _) in found.items()} == sums
