"""Stateful jobs on Spark: one epoch is one Spark job over one batch of input."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dstl_core.checkpoint.completed_checkpoint import CompletedCheckpoint
from dstl_core.clock import Clock, SystemClock
from dstl_core.config import ChangelogOptions
from dstl_core.errors import ConfigError, InputChangedError, RestoreError, SavepointError
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState
from dstl_core.model.handle import ChangelogStateBackendHandle
from dstl_core.model.ids import JobID, OperatorID
from dstl_core.model.key_group import check_parallelism
from dstl_core.model.state_size import StateSize, logged_handles
from dstl_core.savepoint.folder import SavepointFolder
from dstl_core.savepoint.snapshot import Snapshot
from dstl_core.spark.driver import CheckpointDriver
from dstl_core.spark.errors import errors_of_workers
from dstl_core.spark.inputs import Fingerprint, check_input, place
from dstl_core.spark.operators import KeyedOperator, TaskSpec
from dstl_core.spark.reports import REPORT_SCHEMA, SubtaskReport, epoch_facts
from dstl_core.spark.schema import spark_schema_of
from dstl_core.spark.subtask import (
    materialize_subtask,
    run_epoch_subtask,
    savepoint_subtask,
    split_by_subtask,
)
from dstl_core.state.carry_over import carry_over
from dstl_core.storage.location import JobLayout, Location

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class EpochResult:
    """What one epoch did. ``committed_before`` says that nothing ran: it was stored already."""

    checkpoint: CompletedCheckpoint
    committed_before: bool
    output: DataFrame | None
    seconds: float

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.checkpoint.facts

    def __str__(self) -> str:
        facts = self.facts
        name = f"epoch {facts['input']['id']}, checkpoint {self.checkpoint.checkpoint_id}"
        if self.committed_before:
            return f"{name}: committed before, nothing ran"
        return (
            f"{name}: {facts['input']['rows']:,} rows, {facts['changed_keys']:,} keys changed, "
            f"{facts['log_bytes']:,} bytes of log, {self.seconds:.1f} s"
        )


@dataclass
class StatefulJob:
    """A pipeline with keyed state between its runs.

    State lives under ``<base_path>/<job id>`` in Flink's formats: what a run commits is a retained
    checkpoint that Flink restores. One owner at a time; a driver that lost its claim can commit
    nothing.

    Args:
        spark: Session to run on; classic or Spark Connect.
        name: Name of the pipeline; its job id is derived from it.
        base_path: Folder or URL that driver and workers see.
        operator: What the job does.
        parallelism: Subtasks of the operator.
        max_parallelism: Key groups; fixed for the life of the state.
        num_retained: Committed checkpoints that are kept.
        compress_log: Whether changelog segments are compressed.
        changelog_options: Further options of the changelog, by name or Flink's key.
        checkpoint_timeout_s: When a pending checkpoint is given up.
        clock: Time, for tests.
    """

    spark: SparkSession
    name: str
    base_path: str
    operator: KeyedOperator
    parallelism: int = 2
    max_parallelism: int = 128
    num_retained: int = 1
    compress_log: bool = False
    changelog_options: Mapping[str, Any] = field(default_factory=dict)
    checkpoint_timeout_s: float = 600.0
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        check_parallelism(self.parallelism, self.max_parallelism)
        self.base_path = str(Location.parse(self.base_path))
        self.job_id = JobID.for_name(self.name)
        self._layout = JobLayout.of(Location.parse(self.base_path), self.job_id.hex)
        self._driver = CheckpointDriver(
            self._layout,
            num_retained=self.num_retained,
            timeout_ms=int(self.checkpoint_timeout_s * 1000),
            clock=self.clock,
        )

    # ------------------------------------------------------------------------------- state

    @property
    def path(self) -> str:
        """The folder of the pipeline."""
        return str(self._layout.root)

    def latest(self) -> CompletedCheckpoint | None:
        """The last committed checkpoint."""
        return self._driver.latest()

    def history(self) -> list[CompletedCheckpoint]:
        """All commits, oldest first."""
        return self._driver.history()

    def latest_path(self) -> str:
        """The folder of the last committed checkpoint, which Flink can restore from."""
        return str(self._layout.checkpoint(self._driver.require_latest().checkpoint_id))

    def snapshot(self) -> Snapshot:
        """The last committed checkpoint as a catalog."""
        return Snapshot.load(self.latest_path())

    def state_size(self) -> StateSize:
        """How large the log of the latest checkpoint is against its base."""
        return StateSize.of(self._driver.latest_file().metadata)

    def _logged_handles(self) -> list[ChangelogStateBackendHandle]:
        return logged_handles(self._driver.latest_file().metadata)

    # ------------------------------------------------------------------------------- start

    def start(self, savepoint: str | None = None, *, uid: str | None = None) -> CompletedCheckpoint:
        """Commits the first checkpoint: empty, or with the state of a savepoint, copied in full.

        Does nothing if the pipeline was started before.

        Args:
            savepoint: A savepoint or checkpoint, of dstl or of Flink.
            uid: The operator in it, if it has another uid than this job's.

        Raises:
            RestoreError: The savepoint does not fit: another max parallelism, other types.
        """
        existing = self.latest()
        if existing is not None:
            return existing
        source: dict[str, Any] | None = None
        parent_operator = OperatorID.for_uid(uid or self.operator.uid)
        if savepoint is not None:
            snapshot = Snapshot.load(savepoint)
            found = snapshot[f"uid:{uid or self.operator.uid}"]
            if found.max_parallelism != self.max_parallelism:
                raise RestoreError(
                    f"The savepoint has another max parallelism: expected {self.max_parallelism}, "
                    f"got {found.max_parallelism}; create the job with that, or rewrite the "
                    f"savepoint with the new one.",
                    location=str(snapshot.folder),
                )
            savepoint = str(snapshot.folder)
            source = {"savepoint": savepoint, "sha256": snapshot.file.sha256}
        task = self._task(savepoint, parent_operator)
        return self._materialize(task, 1, {"kind": "start", "source": source})

    # ------------------------------------------------------------------------------- epoch

    def run(
        self, rows: DataFrame, input_id: str | int, order_by: Sequence[str] | None = None
    ) -> EpochResult:
        """Applies one batch of input and commits it, exactly once.

        Args:
            rows: The batch.
            input_id: Names the batch. Ids grow: text is compared as text, numbers as numbers.
            order_by: Order in which the rows of a key apply; ties are broken by all other columns.

        Returns:
            The result of this run, or, if the id was committed before, what was stored then.

        Raises:
            InputChangedError: The id was committed with other rows.
            FencedError: Another driver took over.
            ConfigError: No order is given and the function depends on it.
        """
        started = time.monotonic()
        check_input(rows, self.operator, order_by)
        if self.latest() is None:
            self.start()
        before = self._committed(rows, input_id)
        if before is not None:
            return EpochResult(before, True, self._output(before), time.monotonic() - started)
        self._check_order_of_inputs(input_id)
        task = self._task_for_epoch()
        placed = place(
            rows,
            self.operator,
            order_by or (),
            parallelism=self.parallelism,
            max_parallelism=self.max_parallelism,
        )

        def epoch(checkpoint_id: int) -> list[SubtaskReport]:
            def run_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                for subtask, own in split_by_subtask(batches):
                    yield run_epoch_subtask(task, checkpoint_id, subtask, own).to_batch()

            return self._collect(placed, run_partition, f"epoch {input_id}")

        def facts(reports: Sequence[SubtaskReport]) -> dict[str, Any]:
            return epoch_facts(input_id, reports, seconds=time.monotonic() - started)

        checkpoint = self._driver.checkpoint(task, epoch, facts, carry_over=True)
        seconds = time.monotonic() - started
        result = EpochResult(checkpoint, False, self._output(checkpoint), seconds)
        _LOG.info("%s", result)
        return result

    def _task_for_epoch(self) -> TaskSpec:
        """The latest checkpoint as parent; materialized first if its log cannot be carried over.

        That is so after scaling up: a log belongs to one subtask as a whole.
        """
        task = self._task(self.latest_path())
        handles = self._logged_handles()
        ranges = [task.key_groups(subtask) for subtask in range(self.parallelism)]
        if all(carry_over(handles, key_groups) is not None for key_groups in ranges):
            return task
        self.materialize()
        return self._task(self.latest_path())

    def _committed(self, rows: DataFrame, input_id: str | int) -> CompletedCheckpoint | None:
        """The commit of an input id, after a look whether the rows are the same."""
        for checkpoint in reversed(self._driver.history()):
            stored = checkpoint.facts.get("input")
            if stored is None or stored["id"] != input_id:
                continue
            expected = Fingerprint(stored["rows"], int(stored["hash_sum"], 16))
            found = Fingerprint.of(rows)
            if found != expected:
                raise InputChangedError(
                    f"The input {input_id!r} was committed as checkpoint "
                    f"{checkpoint.checkpoint_id} with other rows: expected {expected}, got "
                    f"{found}; give the correction an input id of its own."
                )
            return checkpoint
        return None

    def _check_order_of_inputs(self, input_id: str | int) -> None:
        inputs: list[Any] = [
            each.facts["input"]["id"] for each in self._driver.history() if "input" in each.facts
        ]
        if not inputs:
            return
        last = inputs[-1]
        if type(last) is not type(input_id):
            raise ConfigError(
                f"Input ids of one pipeline are of one type: expected {type(last).__name__}, got "
                f"{type(input_id).__name__}."
            )
        if _is_before(input_id, last):
            raise ConfigError(
                f"The input {input_id!r} comes after {last!r} was committed, and state does not "
                f"go back; run it in a pipeline of another name, started from an earlier savepoint."
            )

    def _output(self, checkpoint: CompletedCheckpoint) -> DataFrame | None:
        if self.operator.output_schema is None:
            return None
        schema = spark_schema_of(self.operator.output_schema)
        names = checkpoint.facts.get("output_files", [])
        if not names:
            return self.spark.createDataFrame([], schema)
        folder = self._layout.output(checkpoint.checkpoint_id)
        return self.spark.read.schema(schema).parquet(*(str(folder.child(name)) for name in names))

    # --------------------------------------------------------------- materialize, savepoint

    def materialize(self) -> CompletedCheckpoint:
        """Writes the full state as a new base and commits a checkpoint without a log.

        The old log goes with the last retained checkpoint that needs it.
        """
        handles = self._logged_handles()
        return self._materialize(
            self._task(self.latest_path()),
            max((each.materialization_id for each in handles), default=0) + 1,
            {
                "kind": "materialization",
                "log_bytes_before": self.state_size().log,
            },
        )

    def _materialize(
        self, task: TaskSpec, materialization_id: int, facts: dict[str, Any]
    ) -> CompletedCheckpoint:
        def run(checkpoint_id: int) -> list[SubtaskReport]:
            return self._per_subtask(
                lambda subtask: materialize_subtask(
                    task, checkpoint_id, materialization_id, subtask
                ),
                f"materialization {materialization_id}",
            )

        def with_size(reports: Sequence[SubtaskReport]) -> dict[str, Any]:
            size = sum(report.checkpointed_size for report in reports)
            return {**facts, "materialization_id": materialization_id, "materialized_bytes": size}

        return self._driver.checkpoint(task, run, with_size, carry_over=False)

    def savepoint(self, path: str) -> str:
        """Writes the latest checkpoint as a self-contained canonical savepoint.

        Calling it again for the same checkpoint and path does nothing.

        Returns:
            The path of the savepoint.
        """
        latest = self._driver.require_latest()
        source = {"checkpoint": latest.data_version, "job": self.job_id.hex, "name": self.name}
        existing = self._existing_savepoint(path, source)
        if existing is not None:
            return existing
        target = SavepointFolder(path)
        folder = str(target.folder)
        task = self._task(self.latest_path())
        reports = self._per_subtask(
            lambda subtask: savepoint_subtask(task, folder, subtask), f"savepoint {folder}"
        )
        operator = OperatorState(
            self.operator.operator_id,
            self.parallelism,
            self.max_parallelism,
            tuple(report.state for report in sorted(reports, key=lambda each: each.subtask)),
            uid=self.operator.uid,
        )
        metadata = CheckpointMetadata(3, latest.checkpoint_id, (operator,))
        return target.publish(metadata, {"kind": "savepoint", "source": source})

    def _existing_savepoint(self, path: str, source: dict[str, Any]) -> str | None:
        try:
            found = Snapshot.load(path)
        except FileNotFoundError:
            return None
        sidecar = found.file.sidecar
        if sidecar is not None and sidecar.facts.get("source") == source:
            return str(found.folder)
        raise SavepointError(
            f"Another snapshot is already there: {found.folder}; choose another folder."
        )

    # -------------------------------------------------------------------------------- spark

    def _task(self, parent: str | None, parent_operator: OperatorID | None = None) -> TaskSpec:
        return TaskSpec(
            self.job_id,
            self.base_path,
            self.operator,
            self.parallelism,
            self.max_parallelism,
            parent,
            parent_operator or self.operator.operator_id,
            ChangelogOptions.of(
                base_path=self.base_path,
                **{"compression_enabled": self.compress_log, **self.changelog_options},
            ),
        )

    def _per_subtask(
        self, run: Callable[[int], SubtaskReport], description: str
    ) -> list[SubtaskReport]:
        def run_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for subtask in batch.column(0).to_pylist():
                    yield run(subtask).to_batch()

        indexes = self.spark.range(0, self.parallelism, 1, self.parallelism)
        return self._collect(indexes, run_partition, description)

    def _collect(
        self,
        rows: DataFrame,
        run_partition: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        description: str,
    ) -> list[SubtaskReport]:
        _LOG.info("job %s: %s", self.name, description)
        with errors_of_workers():
            reports = rows.mapInArrow(run_partition, spark_schema_of(REPORT_SCHEMA)).collect()
        return [SubtaskReport.of(row) for row in reports]


def _is_before(input_id: str | int, last: Any) -> bool:
    if isinstance(input_id, str):
        return input_id < str(last)
    return input_id < int(last)
