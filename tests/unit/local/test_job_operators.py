"""State of every kind, rewind, materialization beside epochs, and the end of a job."""

import pyarrow as pa
import pytest

from dstl_core import Snapshot
from dstl_core.codec.serializers import Types
from dstl_core.errors import (
    ConfigError,
    FencedError,
    RestoreError,
    StateFileNotFoundError,
)
from dstl_core.job.coordination.job_materialization import BackgroundMaterialization
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies
from dstl_core.savepoint.gc import collect_garbage
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.stateful_job import StatefulJob
from dstl_core.testing import ManualClock
from tests.integration.spark.job_functions import OUTPUT, SCHEMA, TotalsByRow, plain, random_batch
from tests.local_session import state_rows
from tests.stateful_job import Everything, Model

pytestmark = pytest.mark.slow


def totals_job(session, base, name="job", **options):
    operator = KeyedOperator("totals", "k", Types.STRING, TotalsByRow(), OUTPUT)
    local = LocalCopies(str(base / "local"))
    return StatefulJob(session, name, str(base), operator, local_copies=local, **options)


def totals_of(session, path):
    rows = state_rows(path, "totals")
    return {row.state_key: (row.total, row.last) for row in rows}


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


def test_every_kind_of_state_and_timer_equals_a_model(session, tmp_path):
    clock, model = ManualClock(), Model()
    operator = KeyedOperator("everything", "key", Types.STRING, EveryKind(), FIRED)
    fired, expected = [], []
    for epoch, parallelism in enumerate([2, 2, 3]):
        job = StatefulJob(
            session, "job", str(tmp_path), operator, parallelism=parallelism, clock=clock
        )
        elements = program(epoch)
        rows = session.createDataFrame(elements, "at long, key string, do string, number long")
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
    for state in ("value", "reducing", "list"):
        dumped = {line["key"]: line["value"] for line in snapshot["everything"].dump(state)}
        wanted = {key: model.seen(key, now)[state] for key in model.keys}
        assert dumped == {key: value for key, value in wanted.items() if value not in (None, [])}


def test_rewind_goes_back_to_before_an_input(session, tmp_path):
    job = totals_job(session, tmp_path, num_retained=5)
    batches = [random_batch(seed, 60) for seed in range(4)]
    frames = [session.createDataFrame(rows, SCHEMA) for rows in batches]
    for number in range(3):
        job.run(frames[number], number, order_by=["v"])
    with pytest.raises(ConfigError, match="rewind=True"):
        job.run(frames[3], -1, order_by=["v"])
    corrected = job.run(frames[3], 1, order_by=["v"], rewind=True)
    assert totals_of(session, job.latest_path()) == plain([batches[0], batches[3]])
    again = job.run(frames[3], 1, order_by=["v"], rewind=True)
    assert again.committed_before and again.checkpoint == corrected.checkpoint
    job.run(frames[2], 2, order_by=["v"])
    assert totals_of(session, job.latest_path()) == plain([batches[0], batches[3], batches[2]])
    commits = len(job.history())
    for number, frame in enumerate((frames[0], frames[3], frames[2])):
        assert job.run(frame, number, order_by=["v"]).committed_before
    assert len(job.history()) == commits
    short = totals_job(session, tmp_path, name="short", num_retained=1)
    for number in range(2):
        short.run(frames[number], number, order_by=["v"])
    with pytest.raises(RestoreError, match="was retired and cannot be restored"):
        short.run(frames[2], 0, order_by=["v"], rewind=True)


def test_a_materialization_beside_epochs_becomes_the_base(session, tmp_path):
    job = totals_job(session, tmp_path)
    batches = [random_batch(seed, 60) for seed in range(4)]
    frames = [session.createDataFrame(rows, SCHEMA) for rows in batches]
    job.run(frames[0], 0, order_by=["v"])
    materialization = job.materialize_beside()
    job.run(frames[1], 1, order_by=["v"])
    log = job.state_size().log
    adopted = job.adopt(materialization)
    assert adopted is not None and adopted.facts.log_bytes_before == log
    for subtask in job.snapshot()["totals"].state.subtasks:
        assert subtask.managed_keyed_state.checkpoint_id == adopted.checkpoint_id
    assert 0 < job.state_size().log < log
    assert totals_of(session, job.latest_path()) == plain(batches[:2])
    job.run(frames[2], 2, order_by=["v"])
    late = job.materialize_beside()
    job.materialize()
    assert job.adopt(late) is None, "the state has another base by now"
    job.run(frames[3], 3, order_by=["v"])
    assert totals_of(session, job.latest_path()) == plain(batches)


def test_a_materialization_of_an_overtaken_driver_is_gc_s_and_not_adopted(session, tmp_path):
    batches = [random_batch(seed, 60) for seed in range(2)]
    frames = [session.createDataFrame(rows, SCHEMA) for rows in batches]
    totals_job(session, tmp_path).run(frames[0], 0, order_by=["v"])
    beside = totals_job(session, tmp_path)
    materialization = beside.materialize_beside()
    materialization.result()
    other = totals_job(session, tmp_path)
    other.run(frames[1], 1, order_by=["v"])
    assert collect_garbage(str(tmp_path), delete=True, older_than_ms=0).deleted
    with pytest.raises(FencedError):
        beside.adopt(materialization)
    assert verify_snapshot(other.snapshot()).findings == []
    assert totals_of(session, other.latest_path()) == plain(batches)


def test_a_materialization_whose_base_went_is_given_up_if_there_is_another(session, tmp_path):
    job = totals_job(session, tmp_path)
    job.run(session.createDataFrame(random_batch(0, 60), SCHEMA), 0, order_by=["v"])

    def lost():
        raise StateFileNotFoundError("The base is gone.")

    parent = job._coordinator.latest_file().metadata
    with pytest.raises(StateFileNotFoundError):
        job.adopt(BackgroundMaterialization(parent, lost))
    job.materialize()
    assert job.adopt(BackgroundMaterialization(parent, lost)) is None


def test_stop_with_savepoint_and_go_on_elsewhere(session, tmp_path):
    job = totals_job(session, tmp_path)
    batches = [random_batch(seed, 60) for seed in range(2)]
    frames = [session.createDataFrame(rows, SCHEMA) for rows in batches]
    job.run(frames[0], 0, order_by=["v"])
    path = job.stop_with_savepoint(str(tmp_path / "savepoint"), drain=True)
    assert job.stop_with_savepoint(str(tmp_path / "savepoint")) == path
    with pytest.raises(ConfigError, match=r"was stopped with savepoint .*; start a pipeline"):
        job.run(frames[1], 1, order_by=["v"])
    other = totals_job(session, tmp_path, name="other", parallelism=3)
    other.start(path)
    other.run(frames[1], 1, order_by=["v"])
    assert totals_of(session, other.latest_path()) == plain(batches)
    job.resume()
    job.run(frames[1], 1, order_by=["v"])
    assert totals_of(session, job.latest_path()) == plain(batches)
