"""One subtask of a Spark task, without Spark: functions by row and by column that do the same."""

from contextlib import nullcontext

import pyarrow as pa
import pytest

from dstl_core.codec.serializers import Types
from dstl_core.functions import ColumnResult, KeyedColumnFunction, KeyedProcessFunction
from dstl_core.job.spec.job_spec import JobSpec, TaskSpec, task_changelog_options
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies
from dstl_core.job.task.assigned_state import encode_assigned
from dstl_core.job.task.output_files import OutputFiles
from dstl_core.job.task.subtask import open_subtask
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions, CheckpointType
from dstl_core.model.task_restore import PrioritizedOperatorSubtaskState
from dstl_core.state.backends.changelog_backend import ValueLogging
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend
from dstl_core.state.backends.timers import MIN_WATERMARK
from dstl_core.state.tables.descriptor import ListStateDescriptor, ValueStateDescriptor
from dstl_core.storage.file_io import open_file_io

LAST = ValueStateDescriptor("last", Types.DOUBLE)
ROWS = pa.schema([("k", pa.string()), ("d", pa.float64())])
OUTPUT = pa.schema([("k", pa.string()), ("was", pa.float64())])


class ByRow(KeyedProcessFunction):
    def open(self, runtime_context):
        self.last = runtime_context.get_state(LAST)

    def process_element(self, value, ctx):
        yield {"k": value["k"], "was": self.last.value()}
        self.last.update(value["d"])


class ByRowInTables(ByRow):
    """Has its state in tables, because lists are not in columns."""

    def open(self, runtime_context):
        super().open(runtime_context)
        runtime_context.get_list_state(ListStateDescriptor("list", Types.LONG))


class ByColumn(KeyedColumnFunction):
    states = (LAST,)

    def process_batch(self, keys, state, rows):
        output = pa.record_batch([rows["k"], state["last"]], schema=OUTPUT)
        return ColumnResult(pa.record_batch([rows["d"]], names=["last"]), output)


class Subtask:
    """One subtask, from checkpoint to checkpoint."""

    def __init__(self, folder, function, backend=None, local=None, readers=None):
        self.folder, self.function = folder, function
        self.backend = backend or HashMapStateBackend()
        self.local = local or folder / "local"
        self.handles = ()
        self.readers = readers or {}
        self.operator_handles = ()
        self.count = 0
        self.max_entries = 5_000_000
        self.changelog_options = {}
        self.value_logging = ValueLogging.LAST_PER_CHECKPOINT

    def task(self):
        """What the next epoch sends to its task."""
        job = JobSpec(
            name="j",
            base_path=f"file:{self.folder}",
            operators=(KeyedOperator("u", "k", Types.STRING, self.function, output_schema=OUTPUT),),
            parallelism=1,
            max_parallelism=2,
            changelog_options=task_changelog_options(str(self.folder), self.changelog_options),
            state_backend=self.backend,
            local_copies=LocalCopies(str(self.local), max_entries=self.max_entries),
            value_logging=self.value_logging,
            readers=self.readers,
        )
        return TaskSpec(
            job=job,
            parent=job.base_path,
            assigned=(
                encode_assigned(
                    PrioritizedOperatorSubtaskState(
                        managed_keyed_state=self.handles,
                        managed_operator_state=self.operator_handles,
                    )
                ),
            ),
        )

    def run(self, *values, kind=CheckpointType.CHECKPOINT, at_snapshot=None, at_close=None):
        """An epoch with one row for each key. Gives warmth, changes, and the values before.

        ``at_snapshot`` and ``at_close`` are contexts for what is written then.
        """
        self.count += 1
        task = self.task()
        file_io = open_file_io(task.job.layout.root)
        output = OutputFiles(file_io, task.job.layout.output(self.count), OUTPUT, 0)
        rows = [{"k": f"key {at}", "d": value} for at, value in enumerate(values)]
        running = open_subtask(task, 0)
        try:
            running.begin(output)
            running.apply(pa.RecordBatch.from_pylist(rows, schema=ROWS), output)
            running.finish(MIN_WATERMARK, output)
            with at_snapshot or nullcontext():
                output.flush()
                state = running.snapshot(CheckpointMetaData(self.count, 0), CheckpointOptions(kind))
        except BaseException:
            running.abandon()
            raise
        with at_close or nullcontext():
            running.close(state)
        self.handles = (state.managed_keyed_state,)
        operator_state = state.managed_operator_state
        self.operator_handles = () if operator_state is None else (operator_state,)
        stored = [pa.parquet.read_table(output.folder.child(name).path) for name in output.names]
        before = pa.concat_tables(stored)["was"].to_pylist()
        return running.warmth, running.metrics.changes, before


BY_ROW_AND_COLUMN = pytest.mark.parametrize(
    ("function", "backend"),
    [
        (ByRow(), HashMapStateBackend()),
        (ByRowInTables(), HashMapStateBackend()),
        (ByRowInTables(), EmbeddedRocksDBStateBackend()),
        (ByColumn(), HashMapStateBackend()),
    ],
    ids=["rows", "rows in tables", "rows on disk", "columns"],
)
