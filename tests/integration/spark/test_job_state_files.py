"""State files that somebody deletes or alters while workers keep local copies of their content."""

import pytest
from pyspark import cloudpickle

from dstl_core import verify_snapshot
from dstl_core.codec.serializers import Types
from dstl_core.errors import CheckpointError, StateFileNotFoundError
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend
from dstl_core.stateful_job import StatefulJob
from dstl_core.storage.location import Location
from tests.integration.spark import job_functions
from tests.integration.spark.job_functions import OUTPUT, SCHEMA, TotalsByColumn, TotalsByRow, plain

pytestmark = pytest.mark.spark

KINDS = {
    "by column": (TotalsByColumn, HashMapStateBackend()),
    "by row": (TotalsByRow, HashMapStateBackend()),
    "by row in RocksDB": (TotalsByRow, EmbeddedRocksDBStateBackend()),
}
KEYS = [f"key-{at:03}" for at in range(200)]
"""More state than stands in ``_metadata``."""
BATCHES = [[(key, 1000 * number + at, "t") for at, key in enumerate(KEYS)] for number in range(3)]


@pytest.fixture(autouse=True, scope="module")
def by_value():
    cloudpickle.register_pickle_by_value(job_functions)
    yield
    cloudpickle.unregister_pickle_by_value(job_functions)


def job_of(spark, tmp_path, kind, **options):
    function, backend = KINDS[kind]
    return StatefulJob(
        spark,
        "job",
        str(tmp_path / "base"),
        KeyedOperator("totals", "k", Types.STRING, function(), OUTPUT),
        state_backend=backend,
        local_copies=LocalCopies(str(tmp_path / "local")),
        **options,
    )


# Every kind with every folder: tests/unit/local/test_job_state_files.py.
@pytest.mark.parametrize(
    ("kind", "folder"),
    [("by row", "taskowned"), ("by column", "dstl"), ("by row in RocksDB", "dstl")],
)
def test_nothing_is_committed_on_a_file_that_is_gone(spark, tmp_path, kind, folder):
    job = job_of(spark, tmp_path, kind)
    frames = [spark.createDataFrame(rows, SCHEMA) for rows in BATCHES]
    job.run(frames[0], 0, order_by=["v"])
    job.materialize()
    job.run(frames[1], 1, order_by=["v"])
    before = job.latest()
    streams = [
        Location.parse(stream.path)
        for subtask in job.snapshot()["totals"].state.subtasks
        for stream in subtask.streams()
        if hasattr(stream, "path") and f"/{folder}/" in stream.path
    ]
    lost = tmp_path / "lost"
    path = tmp_path / "base" / streams[0].relative_to(Location.parse(tmp_path / "base"))
    path.rename(lost)
    # A copy in memory belongs to one worker process; in another one the restore fails.
    errors = (CheckpointError, StateFileNotFoundError) if kind == "by row" else CheckpointError
    for _ in range(2):
        with pytest.raises(errors, match=rf"{streams[0]}( is missing|: there is no such file)"):
            job.run(frames[2], 2, order_by=["v"])
    assert job.latest() == before
    lost.rename(path)
    job.run(frames[2], 2, order_by=["v"])
    assert verify_snapshot(job.snapshot()).findings == []
    rows = spark.read.format("savepoint").load(job.latest_path()).collect()
    assert {row.state_key: (row.total, row.last) for row in rows} == plain(BATCHES)
