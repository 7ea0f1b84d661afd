"""The pipeline of the storm, its inputs, and what has to come out by plain Python.

An epoch is what ``StatefulJob`` makes of it, with the tasks in this process instead of Spark's:
the same driver, restore, subtasks, changelog and commit, some ten milliseconds each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle

from dstl_core import Snapshot
from dstl_core.checkpoint.store.commit_lineage import lineage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.checkpoint.store.epoch_facts import EpochFacts
from dstl_core.clock import SystemClock
from dstl_core.codec.serializers import Types
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.coordination.engine import RunTask
from dstl_core.job.coordination.job_coordinator import JobCoordinator
from dstl_core.job.coordination.tasks import JobTasks
from dstl_core.job.spec.fingerprint import FINGERPRINT_COLUMN, SUBTASK_COLUMN, Fingerprint
from dstl_core.job.spec.job_spec import EpochSpec, JobSpec, TaskSpec, task_changelog_options
from dstl_core.job.spec.lineage import find_input
from dstl_core.job.spec.operators import KeyedOperator
from dstl_core.job.task.reports import SubtaskReport, epoch_facts
from dstl_core.job.task.subtask import run_epoch_subtask
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import assign_to_key_group, compute_operator_index_for_key_group
from dstl_core.state.tables.descriptor import ListStateDescriptor, ValueStateDescriptor
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import JobLayout, Location

NAME, UID = "storm", "sums"
PARALLELISM, MAX_PARALLELISM, NUM_RETAINED = 2, 8, 3
KEYS, ROWS = 40, 8
OUTPUT_EVERY = 10
"""Epochs between those with output."""
SUM = ValueStateDescriptor("sum", Types.LONG)
INPUTS = ListStateDescriptor("inputs", Types.LONG)
OUTPUT = pa.schema([("key", pa.int64()), ("sum", pa.int64())])
ROW = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("input", pa.int64())])

State = dict[int, tuple[int, list[int]]]
"""By key: the sum of its values, and the inputs that they came from."""


def rows_of(seed: int, number: int) -> list[dict[str, int]]:
    random = Random(f"{seed} {number}")
    return [
        {"key": random.randrange(KEYS), "value": random.randrange(1, 1_000_000), "input": number}
        for _ in range(ROWS)
    ]


def has_output(number: int) -> bool:
    return number % OUTPUT_EVERY == 0


def expected(seed: int, inputs: int) -> tuple[State, dict[int, list[tuple[int, int]]]]:
    """The state after so many inputs, and the output rows of each that has any."""
    state: State = {}
    outputs: dict[int, list[tuple[int, int]]] = {}
    for number in range(inputs):
        for row in rows_of(seed, number):
            total, numbers = state.get(row["key"], (0, []))
            state[row["key"]] = (total + row["value"], [*numbers, number])
            if has_output(number):
                outputs.setdefault(number, []).append((row["key"], total + row["value"]))
    return state, {number: sorted(rows) for number, rows in outputs.items()}


class Sums(KeyedProcessFunction):
    """The running sum of each key, and the inputs that it has seen: a repeated one shows."""

    def open(self, runtime_context: Any) -> None:
        self._sum = runtime_context.get_state(SUM)
        self._inputs = runtime_context.get_list_state(INPUTS)

    def process_element(self, value: Any, ctx: Any) -> Iterable[dict[str, int]]:
        self._sum.update((self._sum.value() or 0) + value["value"])
        self._inputs.add(value["input"])
        if has_output(value["input"]):
            yield {"key": value["key"], "sum": self._sum.value()}


OPERATOR = KeyedOperator(UID, "key", Types.LONG, Sums(), OUTPUT)


class TasksInProcess:
    """Runs tasks one after the other in this process, where ``SparkTasks`` asks Spark."""

    def beside(self) -> TasksInProcess:
        return self

    def cancel(self) -> None:
        """Nothing runs while another thread could call this."""

    def per_subtask(
        self, run: RunTask, task: TaskSpec, subtasks: Sequence[int], description: str
    ) -> list[SubtaskReport]:
        # A task gets a copy of the user's function, as Spark's do.
        return [run(copied(task), subtask) for subtask in subtasks]


def copied(value: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(value))


class Pipeline:
    """One driver of the pipeline, as ``StatefulJob`` is one.

    Args:
        base: Folder or URL.
        seed: Of the inputs.
    """

    def __init__(self, base: str, seed: int) -> None:
        self._seed = seed
        self.job_id = JobID.for_name(NAME)
        self.layout = layout_of(base)
        clock = SystemClock()
        self.coordinator = JobCoordinator(
            self.layout, num_retained=NUM_RETAINED, timeout_ms=120_000, clock=clock
        )
        self.tasks = JobTasks(
            job=JobSpec(
                name=NAME,
                base_path=base,
                operators=(OPERATOR,),
                parallelism=PARALLELISM,
                max_parallelism=MAX_PARALLELISM,
                changelog_options=task_changelog_options(
                    base, {"compression_enabled": bool(seed % 2), "upload_timeout_ms": 1_000}
                ),
            ),
            clock=clock,
            coordinator=self.coordinator,
            runner=TasksInProcess(),
        )

    def apply(self, number: int) -> CompletedCheckpoint:
        """Applies an input and commits it, or finds its commit."""
        if self.coordinator.latest() is None:
            started = EpochFacts(kind="start")
            self.tasks.full_checkpoint(self.tasks.root_specs(), started, after=None)
        place = self.coordinator.find(lambda commits: find_input(lineage(commits), number))
        assert place is not None, "a started pipeline has a commit"
        if place.commit is not None:
            return place.commit
        parent = place.latest
        [spec] = self.tasks.specs_of(parent, self.tasks.load(parent))
        batches = placed(rows_of(self._seed, number))

        def run(checkpoint_id: int) -> list[SubtaskReport]:
            epoch = EpochSpec(checkpoint_id)
            return [
                run_epoch_subtask(copied(spec), epoch, subtask, batch)
                for subtask, batch in enumerate(batches)
            ]

        def facts(reports: Sequence[SubtaskReport]) -> EpochFacts:
            fingerprint = sum((each.fingerprint for each in reports), Fingerprint(0, 0))
            return epoch_facts(
                "epoch",
                reports,
                epoch_input=fingerprint.of_input(number),
                watermarks={},
                restored_from=parent.checkpoint_id,
            )

        return self.coordinator.checkpoint(
            self.job_id, self.tasks.plans(), run, facts, after=parent.checkpoint_id
        )


def placed(rows: Sequence[dict[str, int]]) -> list[list[pa.RecordBatch]]:
    """The batches of each subtask."""
    owners = [
        compute_operator_index_for_key_group(
            MAX_PARALLELISM,
            PARALLELISM,
            assign_to_key_group(Types.LONG.java_hash(row["key"]), MAX_PARALLELISM),
        )
        for row in rows
    ]
    batches = []
    for subtask in range(PARALLELISM):
        own = [row for row, owner in zip(rows, owners, strict=True) if owner == subtask]
        batch = pa.RecordBatch.from_pylist(own, schema=ROW)
        hashes = pa.array([_hash(row) for row in own], pa.int64())
        batch = batch.append_column(FINGERPRINT_COLUMN, hashes)
        batch = batch.append_column(SUBTASK_COLUMN, pa.array([subtask] * len(own), pa.int32()))
        batches.append([batch] if own else [])
    return batches


def _hash(row: dict[str, int]) -> int:
    digest = hashlib.sha256(repr(sorted(row.items())).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


# ----------------------------------------------------------------------------- what came out


def layout_of(base: str) -> JobLayout:
    return JobLayout.of(Location.parse(base), JobID.for_name(NAME).hex)


def store_of(base: str) -> CompletedCheckpointStore:
    """The commits as a process sees them that only looks."""
    layout = layout_of(base)
    files = open_file_io(layout.root)
    return CompletedCheckpointStore(files, layout, SystemClock(), num_retained=NUM_RETAINED)


def inputs_of(commits: Iterable[CompletedCheckpoint]) -> Iterator[int]:
    """The inputs that the latest state stands on; commits and inputs newest first."""
    return (each.facts.input.id for each in lineage(commits) if each.facts.input)


def next_input(coordinator: JobCoordinator) -> int:
    """The first input that is not committed."""
    last: int = coordinator.find(lambda commits: next(inputs_of(commits), -1))
    return last + 1


def state_of(path: str) -> State:
    """What a checkpoint holds."""
    by_key = {}
    for batch in Snapshot.load(path)[f"uid:{UID}"].keyed().read():
        for row in batch.to_pylist():
            by_key[row["state_key"]] = (row["sum"], sorted(row["inputs"]))
    return by_key


def output_of(base: str, checkpoint: CompletedCheckpoint) -> list[tuple[int, int]]:
    """The stored output rows of a commit."""
    layout = layout_of(base)
    files, rows = open_file_io(layout.root), []
    for name in checkpoint.facts.output_files:
        raw = files.read_bytes(layout.output(checkpoint.checkpoint_id).child(name))
        rows += pq.read_table(pa.BufferReader(raw)).to_pylist()
    return sorted((row["key"], row["sum"]) for row in rows)
