"""Several threads on one pipeline: every input that a call reports as committed is in the state."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dstl_core.clock import SystemClock
from dstl_core.codec.serializers import Types
from dstl_core.errors import CheckpointError, FencedError, JobBusyError
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.spec.operators import KeyedOperator
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_core.stateful_job import StatefulJob

pytestmark = pytest.mark.spark

TIMEOUT_S = 120


class Sums(KeyedProcessFunction):
    """Adds up per key; at a gate, the first row waits until somebody opens it."""

    order_insensitive = True

    def __init__(self, gate=None):
        self._gate = gate

    def open(self, runtime_context):
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG))

    def process_element(self, value, ctx):
        if self._gate is not None:
            with open(self._gate[0], "w"):  # both ends of a pipe wait for each other
                pass
            with open(self._gate[1]):
                pass
            self._gate = None
        self._total.update((self._total.value() or 0) + value["v"])


class Gate:
    """Two named pipes: one says that the function runs, the other lets it go on."""

    def __init__(self, folder):
        self.paths = (str(folder / "running"), str(folder / "goes-on"))
        for path in self.paths:
            os.mkfifo(path)

    def wait(self):
        with open(self.paths[0]):
            pass

    def open(self):
        with open(self.paths[1], "w"):
            pass


def job_on(spark, base, gate=None, **options):
    function = Sums(None if gate is None else gate.paths)
    return StatefulJob(
        spark, "job", str(base), KeyedOperator("sums", "k", Types.STRING, function), **options
    )


def rows_of(spark, number, keys="abc"):
    rows = [(key, 10**number) for key in keys]
    return spark.createDataFrame(rows, "k string, v long")


def state_of(spark, job):
    rows = spark.read.format("savepoint").load(job.latest_path()).collect()
    return {row.state_key: row.total for row in rows}


def test_a_second_call_on_a_busy_job_is_refused_and_loses_nothing(spark, tmp_path):
    base = tmp_path / "base"
    job_on(spark, base).run(rows_of(spark, 1), 1)
    gate = Gate(tmp_path)
    job = job_on(spark, base, gate)
    with ThreadPoolExecutor(1) as pool:
        # One row, so one task waits at the gate.
        running = pool.submit(job.run, rows_of(spark, 2, "a"), 2)
        gate.wait()
        calls = [
            lambda: job.run(rows_of(spark, 3), 3),
            lambda: job.persist(rows_of(spark, 3), 3),
            job.materialize,
            lambda: job.stop_with_savepoint(str(tmp_path / "stopped")),
            job.start,
            job.resume,
        ]
        for call in calls:
            with pytest.raises(
                JobBusyError, match=r"^The job 'job' is busy with run\(\) and refuses \w+\(\); .*$"
            ):
                call()
        # What only looks, and what is written beside the epochs, goes on.
        assert job.latest().facts.input.id == 1
        assert [each.facts.kind for each in job.history()] == ["start", "epoch"]
        gate.open()
        second = running.result(timeout=TIMEOUT_S)
    third = job_on(spark, base).run(rows_of(spark, 3), 3)
    assert [each.facts.input.id for each in (second, third)] == [2, 3]
    assert state_of(spark, job) == {"a": 1110, "b": 1010, "c": 1010}


def test_a_job_can_be_used_again_after_a_call_that_failed(spark, tmp_path):
    job = job_on(spark, tmp_path)
    for _ in range(2):
        with pytest.raises(ValueError, match="no column 'k'"):
            job.run(spark.createDataFrame([(1,)], "x int"), 1)
    assert job.run(rows_of(spark, 1), 1).checkpoint == job.latest()


def test_a_materialization_and_a_savepoint_are_written_beside_an_epoch(spark, tmp_path):
    base = tmp_path / "base"
    job_on(spark, base).run(rows_of(spark, 1), 1)
    gate = Gate(tmp_path)
    job = job_on(spark, base, gate)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(job.run, rows_of(spark, 2, "a"), 2)
        gate.wait()
        savepoint = job.savepoint(str(tmp_path / "savepoint"))
        materialization = job.materialize_beside()
        materialization.wait()
        with pytest.raises(JobBusyError, match=r"refuses adopt\(\)"):
            job.adopt(materialization)
        gate.open()
        running.result(timeout=TIMEOUT_S)
    assert job.adopt(materialization) is not None
    assert state_of(spark, job) == {"a": 110, "b": 10, "c": 10}
    rows = spark.read.format("savepoint").load(savepoint).collect()
    assert {row.state_key: row.total for row in rows} == {"a": 10, "b": 10, "c": 10}


class Interrupted(SystemClock):
    """Time at which something happens: a job asks for it between reading the latest state and
    taking over the pipeline.
    """

    def __init__(self, happens):
        self._happens = happens

    def now_ms(self):
        happens, self._happens = self._happens, lambda: None
        happens()
        return super().now_ms()


@pytest.mark.parametrize("method", ["run", "materialize"])
def test_what_another_driver_commits_while_an_epoch_is_prepared_is_not_lost(
    spark, tmp_path, method
):
    first = job_on(spark, tmp_path)
    first.run(rows_of(spark, 1), 1)
    clock = Interrupted(lambda: first.run(rows_of(spark, 2), 2))
    second = job_on(spark, tmp_path, clock=clock)

    def call():
        if method == "materialize":
            return second.materialize()
        return second.run(rows_of(spark, 3), 3)

    with pytest.raises(CheckpointError, match="committed checkpoint 3 while this one prepared"):
        call()
    call()
    expected = 110 if method == "materialize" else 1110
    assert state_of(spark, second) == dict.fromkeys("abc", expected)


def test_two_jobs_of_one_pipeline_in_two_threads_apply_each_input_once(spark, tmp_path):
    inputs = range(1, 6)
    frames = {number: rows_of(spark, number) for number in inputs}
    start = threading.Barrier(2)
    committed_by_anybody = {number: threading.Event() for number in inputs}

    def backfill():
        told, job = {}, job_on(spark, tmp_path)
        start.wait(TIMEOUT_S)
        for number in inputs:
            while number not in told:
                try:
                    told[number] = job.run(frames[number], number).checkpoint
                    committed_by_anybody[number].set()
                except FencedError:  # the other one has taken over: start again behind it
                    assert committed_by_anybody[number].wait(TIMEOUT_S)
                    job = job_on(spark, tmp_path)
                except CheckpointError as error:
                    assert "run it again" in str(error)
        return told

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: backfill(), range(2))
    job = job_on(spark, tmp_path)
    assert one == other
    assert state_of(spark, job) == dict.fromkeys("abc", sum(10**number for number in inputs))
    committed = [each.facts.input.id for each in job.history() if each.facts.input]
    assert committed == list(inputs)
