"""State files that somebody deletes or alters while workers keep local copies of their content."""

import random
from pathlib import Path

import pytest

from dstl_core import Snapshot, verify_snapshot
from dstl_core.codec.serializers import Types
from dstl_core.errors import CheckpointError, FormatError, StateFileNotFoundError
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend
from dstl_core.stateful_job import StatefulJob
from dstl_core.storage.location import Location
from tests.examples import WHOLE
from tests.integration.spark.job_functions import OUTPUT, SCHEMA, TotalsByColumn, TotalsByRow, plain
from tests.local_session import state_rows

pytestmark = pytest.mark.slow

KINDS = {
    "by column": (TotalsByColumn, HashMapStateBackend()),
    "by row": (TotalsByRow, HashMapStateBackend()),
    "by row in RocksDB": (TotalsByRow, EmbeddedRocksDBStateBackend()),
}
KEYS = [f"key-{at:03}" for at in range(200)]
"""More state than stands in ``_metadata``."""
BATCHES = [[(key, 1000 * number + at, "t") for at, key in enumerate(KEYS)] for number in range(3)]


def job_of(session, tmp_path, kind, **options):
    function, backend = KINDS[kind]
    return StatefulJob(
        session,
        "job",
        str(tmp_path / "base"),
        KeyedOperator("totals", "k", Types.STRING, function(), OUTPUT),
        state_backend=backend,
        local_copies=LocalCopies(str(tmp_path / "local")),
        **options,
    )


@pytest.mark.parametrize("folder", ["dstl", "taskowned"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_committed_on_a_file_that_is_gone(session, tmp_path, kind, folder):
    check_a_file_that_is_gone(session, tmp_path, kind, folder)


def check_a_file_that_is_gone(session, tmp_path, kind, folder):
    """It holds for every engine."""
    job = job_of(session, tmp_path, kind)
    frames = [session.createDataFrame(rows, SCHEMA) for rows in BATCHES]
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
    rows = state_rows(job.latest_path())
    assert {row.state_key: (row.total, row.last) for row in rows} == plain(BATCHES)


def flipped(path):
    """The file with one bit of it changed, at several places one after the other."""
    places = 6 if WHOLE else 1
    raw = path.read_bytes()
    chooser = random.Random(path.name)
    try:
        for at in {0, len(raw) - 1, *(chooser.randrange(len(raw)) for _ in range(places))}:
            path.write_bytes(
                raw[:at] + bytes([raw[at] ^ 1 << chooser.randrange(8)]) + raw[at + 1 :]
            )
            yield at
    finally:
        path.write_bytes(raw)


def is_found(snapshot_path):
    try:
        return bool(verify_snapshot(Snapshot.load(snapshot_path)).findings)
    except FormatError:  # a `_metadata` that cannot be read at all
        return True


@pytest.mark.parametrize(
    ("kind", "compressed"),
    [
        ("by row", True),
        ("by column", False),
        ("by row in RocksDB", True),
        pytest.param("by row", False, marks=pytest.mark.soak),
        pytest.param("by column", True, marks=pytest.mark.soak),
        pytest.param("by row in RocksDB", False, marks=pytest.mark.soak),
    ],
)
def test_every_altered_byte_of_a_checkpoint_and_of_a_savepoint_is_found(
    session, tmp_path, kind, compressed
):
    job = job_of(session, tmp_path, kind, compress_log=compressed)
    frames = [session.createDataFrame(rows, SCHEMA) for rows in BATCHES]
    job.run(frames[0], 0, order_by=["v"])
    job.materialize()
    job.run(frames[1], 1, order_by=["v"])
    # Another object goes on: what is known of the files of the first one stands in the sidecar.
    job = job_of(session, tmp_path, kind, compress_log=compressed)
    job.run(frames[2], 2, order_by=["v"])
    for path in (job.latest_path(), job.savepoint(str(tmp_path / "savepoint"))):
        report = verify_snapshot(Snapshot.load(path))
        assert report.findings == []
        assert report.digests_checked == report.files > 0
        files = {*report.file_names, f"{path}/_metadata"}
        for text in files:
            file = Path(text.removeprefix("file:"))
            missed = [at for at in flipped(file) if not is_found(path)]
            assert missed == [], file
