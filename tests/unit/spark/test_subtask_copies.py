"""Subtasks on local copies that are not what they should be."""

import hashlib
from contextlib import nullcontext

import pyarrow as pa
import pytest

from dstl_core.codec.serializers import Types
from dstl_core.errors import FormatError, StorageError, UploadFailedError
from dstl_core.functions import ColumnResult, KeyedColumnFunction, KeyedProcessFunction
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions
from dstl_core.model.task_restore import PrioritizedOperatorSubtaskState
from dstl_core.spark.engine.checked_files import check_file, write_checked
from dstl_core.spark.task.job_spec import JobSpec, TaskSpec, task_changelog_options
from dstl_core.spark.task.operators import KeyedOperator, LocalCopies
from dstl_core.spark.task.output_files import OutputFiles
from dstl_core.spark.task.subtask import open_subtask
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend
from dstl_core.state.backends.timers import MIN_WATERMARK
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_core.storage.file_io import open_file_io
from tests.full_disk import full_disk

LAST = ValueStateDescriptor("last", Types.DOUBLE)
ROWS = pa.schema([("k", pa.string()), ("d", pa.float64())])
OUTPUT = pa.schema([("k", pa.string()), ("was", pa.float64())])


class ByRow(KeyedProcessFunction):
    def open(self, runtime_context):
        self.last = runtime_context.get_state(LAST)

    def process_element(self, value, ctx):
        yield {"k": value["k"], "was": self.last.value()}
        self.last.update(value["d"])


class ByColumn(KeyedColumnFunction):
    states = (LAST,)

    def process_batch(self, keys, state, rows):
        output = pa.record_batch([rows["k"], state["last"]], schema=OUTPUT)
        return ColumnResult(pa.record_batch([rows["d"]], names=["last"]), output)


class Subtask:
    """One subtask, from checkpoint to checkpoint."""

    def __init__(self, folder, function, backend=None, local=None):
        self.folder, self.function = folder, function
        self.backend = backend or HashMapStateBackend()
        self.local = local or folder / "local"
        self.handles = ()
        self.count = 0
        self.max_entries = 5_000_000

    def run(self, *values, at_snapshot=None, at_close=None):
        """An epoch with one row for each key. Gives warmth, changes, and the values before.

        ``at_snapshot`` and ``at_close`` are contexts for what is written then.
        """
        self.count += 1
        job = JobSpec(
            name="j",
            base_path=f"file:{self.folder}",
            operators=(KeyedOperator("u", "k", Types.STRING, self.function, output_schema=OUTPUT),),
            parallelism=1,
            max_parallelism=2,
            changelog_options=task_changelog_options(str(self.folder), {}),
            state_backend=self.backend,
            local_copies=LocalCopies(str(self.local), max_entries=self.max_entries),
        )
        task = TaskSpec(
            job=job,
            parent=job.base_path,
            assigned=(PrioritizedOperatorSubtaskState(managed_keyed_state=self.handles),),
        )
        file_io = open_file_io(task.job.layout.root)
        output = OutputFiles(file_io, task.job.layout.output(self.count), OUTPUT, 0)
        rows = [{"k": f"key {at}", "d": value} for at, value in enumerate(values)]
        running = open_subtask(task, 0)
        options = CheckpointOptions.for_checkpoint_with_default_location()
        try:
            running.begin(output)
            running.apply(pa.RecordBatch.from_pylist(rows, schema=ROWS), output)
            running.finish(MIN_WATERMARK, output)
            with at_snapshot or nullcontext():
                output.flush()
                state = running.snapshot(CheckpointMetaData(self.count, 0), options)
        except BaseException:
            running.abandon()
            raise
        with at_close or nullcontext():
            running.close(state)
        self.handles = (state.managed_keyed_state,)
        stored = [pa.parquet.read_table(output.folder.child(name).path) for name in output.names]
        before = pa.concat_tables(stored)["was"].to_pylist()
        return running.warmth, running.changes, before


BY_ROW_AND_COLUMN = pytest.mark.parametrize(
    ("function", "backend"),
    [
        (ByRow(), HashMapStateBackend()),
        (ByRow(), EmbeddedRocksDBStateBackend()),
        (ByColumn(), HashMapStateBackend()),
    ],
    ids=["rows", "rows on disk", "columns"],
)


def test_a_damaged_database_is_restored_and_dropped(tmp_path):
    subtask = Subtask(tmp_path, ByRow(), EmbeddedRocksDBStateBackend())
    subtask.run(1.0, 2.0)
    assert subtask.run(3.0, 4.0) == ("warm", 2, [1.0, 2.0])
    for manifest in subtask.local.glob("**/MANIFEST*"):
        size = manifest.stat().st_size
        manifest.unlink()
        manifest.write_bytes(bytes(size))
    assert subtask.run(5.0, 6.0) == ("cold", 2, [3.0, 4.0])
    assert subtask.run(7.0, 8.0) == ("warm", 2, [5.0, 6.0])
    assert not list(subtask.local.glob("*/*/*/.*"))


@pytest.mark.parametrize("suffix", [".arrow", ".npy", ".json"])
def test_columns_with_one_bit_flipped_are_restored_and_kept_anew(tmp_path, suffix):
    subtask = Subtask(tmp_path, ByColumn())
    subtask.run(*range(40))
    for number, share in enumerate((0.1, 0.3, 0.5, 0.7, 0.9), 1):
        for path in subtask.local.glob(f"*/*/*/*/*{suffix}"):
            flipped = bytearray(path.read_bytes())
            flipped[int(share * len(flipped))] ^= 1 << number
            path.write_bytes(flipped)
        before = [at + number - 1 for at in range(40)]
        warmth, changes, was = subtask.run(*(each + 1 for each in before))
        assert (warmth, changes, was) == ("cold", 40, before)
    assert subtask.run(*range(40))[0] == "warm"


def test_files_that_were_checked_are_checked_again_when_they_change(tmp_path):
    path = tmp_path / "file"
    digest = write_checked(path, lambda file: file.write(b"content"))
    assert digest == hashlib.sha256(b"content").hexdigest()
    check_file(path, digest)
    path.write_bytes(b"comtent")
    with pytest.raises(FormatError, match="damaged"):
        check_file(path, digest)
    other = tmp_path / "other"
    other.write_bytes(b"content")
    check_file(other, digest)


@BY_ROW_AND_COLUMN
def test_a_disk_that_takes_no_copy_is_no_error(tmp_path, function, backend):
    (tmp_path / "file").write_bytes(b"no folder")
    subtask = Subtask(tmp_path, function, backend, local=tmp_path / "file")
    subtask.run(1.0)
    assert subtask.run(2.0)[2] == [1.0]
    assert subtask.run(3.0)[2] == [2.0]


@BY_ROW_AND_COLUMN
def test_a_disk_that_is_full_when_a_copy_is_kept_is_no_error(tmp_path, function, backend):
    subtask = Subtask(tmp_path, function, backend)
    subtask.run(1.0)
    for size in (0, 10, 100, 1000):
        before = float(subtask.count)
        assert subtask.run(before + 1, at_close=full_disk(size))[2] == [before]
    assert subtask.run(0.0)[2] == [5.0]
    assert subtask.run(1.0) == ("warm", 1, [0.0])
    assert not list(subtask.local.glob("*/*/*/.*"))


@BY_ROW_AND_COLUMN
def test_a_disk_that_is_full_in_an_epoch_costs_only_the_epoch(tmp_path, function, backend):
    subtask = Subtask(tmp_path, function, backend)
    subtask.run(1.0, 2.0)
    for size in (0, 10, 100):
        with pytest.raises((StorageError, UploadFailedError), match="File too large"):
            subtask.run(5.0, 6.0, at_snapshot=full_disk(size))
    assert subtask.run(3.0, 4.0)[1:] == (2, [1.0, 2.0])
    assert subtask.run(5.0, 6.0) == ("warm", 2, [3.0, 4.0])


def test_a_database_whose_disk_is_full_from_the_start_costs_only_the_epoch(tmp_path):
    subtask = Subtask(tmp_path, ByRow(), EmbeddedRocksDBStateBackend(str(tmp_path / "other")))
    subtask.run(1.0, 2.0)
    with full_disk(), pytest.raises(StorageError, match="make room in its folder"):
        subtask.run(5.0, 6.0)
    assert subtask.run(3.0, 4.0)[1:] == (2, [1.0, 2.0])
    assert not list(subtask.local.glob("*/*/*/.*"))
    assert not list((tmp_path / "other").iterdir())


@pytest.mark.parametrize("function", [ByRow(), ByColumn()], ids=["rows", "columns"])
def test_zero_and_minus_zero_are_two_values(tmp_path, function):
    subtask = Subtask(tmp_path, function)
    subtask.run(0.0, 1.0)
    assert subtask.run(-0.0, 1.0)[1] >= 1
    assert str(subtask.run(2.0, 2.0)[2]) == "[-0.0, 1.0]"


def test_state_that_is_too_large_for_memory_is_restored_and_a_warning_says_so(tmp_path, caplog):
    subtask = Subtask(tmp_path, ByRow())
    subtask.max_entries = 2
    subtask.run(1.0, 2.0)
    assert subtask.run(3.0, 4.0) == ("warm", 2, [1.0, 2.0])
    assert caplog.text == ""
    assert subtask.run(5.0, 6.0, 7.0) == ("warm", 3, [3.0, 4.0, None])
    assert "a subtask has 3 entries, a worker keeps at most 2; raise max_entries" in caplog.text
    assert subtask.run(8.0) == ("cold", 1, [5.0])
