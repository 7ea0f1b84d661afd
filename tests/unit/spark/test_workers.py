"""What a worker does for itself, without Spark."""

import gc
from collections import OrderedDict

import pyarrow as pa
import pytest

from dstl_core.job.rows.joined_batches import TASK_BYTES, TASK_ROWS, together
from dstl_core.job.task import held_state
from dstl_core.spark.engine.workers import Settled, settle
from dstl_core.spark.savepoints.changelog_source import ChangelogReader, ChangelogSpec
from tests.golden_files import GOLDEN, snapshot


@pytest.fixture
def heap(monkeypatch):
    """Objects that the collector knows, in a process that keeps no state of a job; given back
    afterwards.
    """
    monkeypatch.setattr(held_state, "HELD", OrderedDict())
    lists = [[] for _ in range(30_000)]
    yield lists
    gc.unfreeze()


@pytest.mark.slow
def test_a_settled_worker_has_nothing_to_collect(heap):
    assert len(gc.get_objects()) > len(heap)
    settle()
    assert len(gc.get_objects()) < len(heap)
    assert gc.get_freeze_count() >= len(heap)


@pytest.mark.slow
def test_a_small_heap_is_left_alone(heap):
    settle()
    frozen = gc.get_freeze_count()
    cycle = []
    cycle.append(cycle)
    settle()
    assert gc.get_freeze_count() <= frozen
    del cycle
    assert gc.collect() >= 1


@pytest.mark.slow
def test_a_worker_that_holds_state_leaves_it_to_the_collector(heap, monkeypatch):
    settle()
    more = [[] for _ in range(30_000)]
    monkeypatch.setitem(held_state.HELD, ("job",), None)
    settle()
    assert len(gc.get_objects()) >= len(more)


@pytest.mark.slow
def test_a_task_settles_even_if_nobody_takes_all_it_gives(heap):
    task = Settled(lambda batches: iter(batches))([numbers(1), numbers(2)])
    assert next(task).num_rows == 1
    task.close()
    assert gc.get_freeze_count() >= len(heap)


@pytest.mark.slow
def test_the_changelog_source_settles_where_it_plans_and_where_it_reads(heap):
    options = {
        "path": str(snapshot("a-hashmap-changelog-multi")),
        "changelog.base": str(GOLDEN / "a-hashmap-changelog-multi" / "dstl"),
    }
    reader = ChangelogReader(ChangelogSpec.of(options))
    [partition] = reader.partitions()
    planned = gc.get_freeze_count()
    assert planned >= len(heap)
    more = [[] for _ in range(30_000)]
    assert sum(batch.num_rows for batch in reader.read(partition))
    assert gc.get_freeze_count() >= planned + len(more)


def numbers(count):
    return pa.record_batch({"n": pa.array(range(count), pa.int64())})


def test_small_batches_come_together_in_order():
    batches = [numbers(count) for count in (3, 0, 2, 4)]
    [whole] = together(iter(batches))
    assert whole.column("n").to_pylist() == [0, 1, 2, 0, 1, 0, 1, 2, 3]


def test_batches_together_are_bounded_in_rows():
    sizes = [batch.num_rows for batch in together(numbers(30_000) for _ in range(10))]
    assert sum(sizes) == 300_000
    assert max(sizes) <= TASK_ROWS
    assert len(sizes) == 4


def test_batches_together_are_bounded_in_bytes():
    large = pa.record_batch({"text": ["x" * (TASK_BYTES // 3)]})
    sizes = [batch.num_rows for batch in together(large for _ in range(7))]
    assert sizes == [2, 2, 2, 1]


def test_a_batch_that_is_large_itself_stays_one():
    large = numbers(TASK_ROWS + 1)
    assert [batch.num_rows for batch in together([large, numbers(0)])] == [TASK_ROWS + 1]


def test_no_rows_are_no_batch():
    assert list(together([numbers(0)])) == []
