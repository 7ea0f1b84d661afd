"""A disk that becomes full in the middle of an epoch: one sentence, nothing is lost, and the next
run ends with the exact state and output.
"""

import os
import resource
import time
from pathlib import Path

import pytest

from dstl_core import Snapshot
from dstl_core.codec.serializers import Types
from dstl_core.errors import CheckpointError, StorageError
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies
from dstl_core.savepoint.gc import collect_garbage
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend
from dstl_core.stateful_job import StatefulJob
from tests.full_disk import full_disk
from tests.integration.spark.job_functions import (
    OUTPUT,
    SCHEMA,
    TotalsByColumn,
    TotalsByRow,
    plain,
    random_batch,
)

pytestmark = pytest.mark.spark


def limit_files(file_bytes):
    """In this worker process no file grows beyond some bytes; None lifts that."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most if file_bytes is None else file_bytes, most))


class FullByRow(TotalsByRow):
    """The disk is full from the tenth row on, if a file says so."""

    def __init__(self, full):
        self._full = full

    def open(self, runtime_context):
        limit_files(None)
        self._seen = 0
        super().open(runtime_context)

    def process_element(self, value, ctx):
        self._seen += 1
        if self._seen == 10 and Path(self._full).exists():
            limit_files(100)
        yield from super().process_element(value, ctx)

    def close(self):
        limit_files(None)


class FullByColumn(TotalsByColumn):
    def __init__(self, full):
        self._full = full

    def open(self, runtime_context):
        limit_files(None)

    def process_batch(self, keys, state, rows):
        if Path(self._full).exists():
            limit_files(100)
        return super().process_batch(keys, state, rows)

    def close(self):
        limit_files(None)


@pytest.mark.parametrize(
    ("function", "backend"),
    [
        (FullByRow, HashMapStateBackend()),
        (FullByRow, EmbeddedRocksDBStateBackend()),
        (FullByColumn, HashMapStateBackend()),
    ],
    ids=["rows", "rows on disk", "columns"],
)
def test_a_disk_that_becomes_full_costs_only_the_epoch(spark, tmp_path, function, backend):
    full, base = tmp_path / "full", tmp_path / "base"
    job = StatefulJob(
        spark,
        "full disk",
        str(base),
        KeyedOperator("totals", "k", Types.STRING, function(str(full)), OUTPUT),
        state_backend=backend,
        local_copies=LocalCopies(str(tmp_path / "local")),
    )
    batches = [random_batch(seed, 100) for seed in range(4)]
    frames = [spark.createDataFrame(each, SCHEMA) for each in batches]

    def run(number):
        return job.run(frames[number], number, order_by=["v"])

    def state():
        rows = spark.read.format("savepoint").load(job.latest_path()).collect()
        return {row.state_key: (row.total, row.last) for row in rows}

    run(0)
    full.touch()
    for _ in range(2):
        with pytest.raises(StorageError, match=r"^Cannot write [^\n]+: File too large\.$"):
            run(1)
    assert state() == plain(batches[:1])
    full.unlink()
    last = {row.k: row.total for row in run(1).output.collect()}
    expected = plain(batches[:2])
    assert state() == expected
    assert last == {key: expected[key][0] for key in last}
    assert last.keys() == {key for key, _, _ in batches[1]}
    with full_disk(), pytest.raises((StorageError, CheckpointError), match="File too large"):
        run(2)  # the driver's disk
    run(2)
    assert state() == plain(batches[:3])
    for path in base.rglob("*"):
        os.utime(path, (time.time() - 3 * 86_400,) * 2)
    collect_garbage(str(base), delete=True)
    assert not verify_snapshot(Snapshot.load(job.latest_path())).findings
    run(3)
    assert state() == plain(batches)
