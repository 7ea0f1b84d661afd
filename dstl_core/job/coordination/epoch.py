"""Runs the operators of a job on one batch, one after the other."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pyarrow as pa

from dstl_core.checkpoint.store.epoch_facts import EpochFacts, KeyFacts
from dstl_core.errors import ConfigError, InputChangedError, InvariantViolation
from dstl_core.functions import KeyedProcessFunction, WindowFunction
from dstl_core.job.coordination.definitions import definitions_of
from dstl_core.job.coordination.engine import Engine, TaskRunner
from dstl_core.job.coordination.result import printable
from dstl_core.job.coordination.same_input import facts_of_input
from dstl_core.job.spec.fingerprint import Fingerprint
from dstl_core.job.spec.job_spec import EpochSpec, JobSpec, TaskSpec
from dstl_core.job.spec.operators import (
    INPUT,
    Operator,
    Source,
    is_columnar,
    late_name,
    late_schema_of,
    output_columns_of,
)
from dstl_core.job.task.event_time import later
from dstl_core.job.task.reports import SubtaskReport, encode_state, epoch_facts
from dstl_core.job.task.restore import carried
from dstl_core.job.task.subtask import run_epoch_subtask
from dstl_core.model.checkpoint import OperatorState
from dstl_core.operators.aggregated_windows import AggregatedWindows
from dstl_core.state.backends.timers import MAX_WATERMARK, MIN_WATERMARK

MAX_BROADCAST_BYTES = 64 << 20


@dataclass(kw_only=True)
class EpochRun:
    """One epoch: applies a batch to the operators of a job.

    Args:
        job: The job.
        engine: Looks at the rows.
        runner: Runs the tasks.
        specs: One ``TaskSpec`` per operator, with the state to restore.
        parents: The states of the operators in the parent checkpoint, by uid.
        rows: The batch; None for an epoch without one, in which only time passes.
        order_by: The columns that order the rows of a key.
        watermark: Event time after the batch, in milliseconds; None: computed from the rows.
        drain: Whether event time ends.
    """

    job: JobSpec
    engine: Engine
    runner: TaskRunner
    specs: Sequence[TaskSpec]
    parents: Mapping[str, OperatorState | None]
    rows: Any
    order_by: Sequence[str] | None
    watermark: int | None = None
    drain: bool = False
    watermarks: dict[str, int] = field(default_factory=dict)
    reports: list[SubtaskReport] = field(default_factory=list)
    _read: list[Fingerprint] = field(default_factory=list)
    """The fingerprints of the batch, each time that it was read."""
    _source_read: bool = False
    """Whether a source or a broadcast input has read the batch."""

    def check(self) -> None:
        """Raises ConfigError if the batch cannot be applied. It reads no row."""
        for operator in self.job.operators:
            if operator.source == INPUT and self.rows is not None:
                self.engine.check_input(self.rows, operator, self._order(operator))

    def run(self, checkpoint_id: int, name: str) -> list[SubtaskReport]:
        """Runs all operators.

        Raises:
            InputChangedError: The batch changed while it was read several times.
        """
        frames: dict[str, Any] = {} if self.rows is None else {INPUT: self.rows}
        for operator, spec in zip(self.job.operators, self.specs, strict=True):
            reports = self._run_operator(operator, spec, frames, checkpoint_id, name)
            self.reports += reports
            schema = spec.operator.output_schema
            if schema is not None:
                names = [each for report in reports for each in report.output_files]
                frames[spec.operator.uid] = self._output(checkpoint_id, names, schema)
            late_schema = late_schema_of(spec.operator)
            if late_schema is not None:
                names = [each for report in reports for each in report.late_files]
                late = self._output(checkpoint_id, names, late_schema)
                frames[late_name(spec.operator.uid)] = late
        if self._source_read and self.rows is not None:
            self._read.append(self.engine.fingerprint(self.rows))
        if len(set(self._read)) > 1:
            raise _changed("several operators read it", *dict.fromkeys(map(str, self._read)))
        return self.reports

    def fingerprint(self) -> Fingerprint:
        """The fingerprint of the batch, as the operators read it."""
        if self._read:
            return self._read[0]
        return Fingerprint(0, 0) if self.rows is None else self.engine.fingerprint(self.rows)

    def _run_operator(
        self,
        operator: Operator,
        spec: TaskSpec,
        frames: Mapping[str, Any],
        checkpoint_id: int,
        name: str,
    ) -> list[SubtaskReport]:
        rows = None
        if self.rows is not None:
            direct = operator.source == INPUT
            named = frames if direct else _Frames(frames, self._read_by_source)
            rows = self._resolve(operator.source, named, operator.uid)
        order_by = self._order(operator)
        if rows is not None:
            self.engine.check_input(rows, operator, order_by)
        latest_time = self._latest_time(operator, rows)
        watermark = self._watermark(spec, latest_time)
        self.watermarks[operator.uid] = watermark
        epoch = EpochSpec(checkpoint_id, watermark, self._broadcast(operator, frames))
        description = f"{name}, {operator.uid}"
        reports: list[SubtaskReport] = []
        if rows is not None:
            reports = self.runner.apply(rows, operator, order_by or (), spec, epoch, description)
            if len({each.subtask for each in reports}) < len(reports):
                raise InvariantViolation("two partitions had rows of the same subtask")
            if operator.event_time is not None and self._needs_time:
                read = reduce(later, (each.latest_time for each in reports), None)
                if read != latest_time:
                    times = (f"latest event time {time}" for time in (latest_time, read))
                    raise _changed(f"the operator {operator.uid!r} read it twice", *times)
            if operator.source == INPUT:
                fingerprint = sum((each.fingerprint for each in reports), Fingerprint(0, 0))
                self._read.append(fingerprint)
        return reports + self._idle(spec, epoch, reports, description)

    def _idle(
        self, spec: TaskSpec, epoch: EpochSpec, reports: list[SubtaskReport], description: str
    ) -> list[SubtaskReport]:
        """Reports of the subtasks without rows. They run only if passing time may affect them."""
        reported = {report.subtask for report in reports}
        idle = [each for each in range(spec.job.parallelism) if each not in reported]
        parent = self.parents[spec.operator.uid]
        if not _must_run(spec, epoch, parent):
            return [
                SubtaskReport(
                    spec.operator.uid,
                    subtask,
                    encode_state(carried(parent, subtask, epoch.checkpoint_id)),
                )
                for subtask in idle
            ]

        def run(task: TaskSpec, subtask: int) -> SubtaskReport:
            return run_epoch_subtask(task, epoch, subtask, ())

        return self.runner.per_subtask(run, spec, idle, f"{description}, without rows")

    def _output(self, checkpoint_id: int, names: Sequence[str], schema: pa.Schema) -> Any:
        """The stored output of an operator in this epoch."""
        folder = self.job.layout.output(checkpoint_id)
        return self.engine.read([str(folder.child(name)) for name in names], schema)

    def _resolve(self, source: Source, frames: Mapping[str, Any], uid: str) -> Any:
        if callable(source):
            return self.engine.batch_of(source(frames), f"The input of {uid!r}")
        if source not in frames:
            raise ConfigError(
                f"The operator {uid!r} reads {source!r}, which is neither the input nor the output "
                f"of an earlier operator; expected one of: {', '.join(frames)}."
            )
        return frames[source]

    def _order(self, operator: Operator) -> Sequence[str] | None:
        if operator.source == INPUT and self.order_by is not None:
            return _columns(self.order_by)
        return _columns(operator.order_by)

    @property
    def _needs_time(self) -> bool:
        """Whether watermarks follow from the rows."""
        return not self.drain and self.watermark is None

    def _latest_time(self, operator: Operator, rows: Any) -> int | None:
        """The latest event time of the rows, if the watermark follows from it."""
        if rows is None or operator.event_time is None or not self._needs_time:
            return None
        return self.engine.latest_time(rows, operator.event_time)

    def _watermark(self, spec: TaskSpec, latest_time: int | None) -> int:
        if self.drain:
            return MAX_WATERMARK
        watermark = self.watermark
        if watermark is None and latest_time is not None:
            # After a watermark no row comes with a time at or before it.
            watermark = latest_time - spec.operator.lag_ms - 1
        return max(spec.watermark, MIN_WATERMARK if watermark is None else watermark)

    def _read_by_source(self) -> None:
        """Hashes the batch before a source reads it; ``run`` does so again at the end.

        Operators hash the rows that they read of the batch, but not what a source makes of them.
        """
        if not self._read and self.rows is not None:
            self._read.append(self.engine.fingerprint(self.rows))
        self._source_read = True

    def _broadcast(self, operator: Operator, frames: Mapping[str, Any]) -> bytes | None:
        if operator.broadcast is None or self.rows is None:
            return None
        named = _Frames(frames, self._read_by_source)
        table = self.engine.to_arrow(self._resolve(operator.broadcast, named, operator.uid))
        raw = io.BytesIO()
        with pa.ipc.new_stream(raw, table.schema) as stream:
            stream.write_table(table)
        if raw.tell() > MAX_BROADCAST_BYTES:
            raise ConfigError(
                f"The broadcast input of {operator.uid!r} is too large: expected at most "
                f"{MAX_BROADCAST_BYTES:,} bytes, got {raw.tell():,}; give its rows as an input "
                f"instead."
            )
        return raw.getvalue()


@dataclass
class InputEpoch:
    """The epoch of a batch with an input id.

    Args:
        epoch: Applies the batch.
        input_id: The input id of the batch.
        restored_from: Id of the checkpoint whose state the epoch restores.
        started: When the call began, by ``time.monotonic``.
        after: Id of the latest checkpoint when the epoch was prepared. After a rewind it differs
            from ``restored_from``.
        keys_before: The keys of operators that count them, before the epoch, by uid.
        notes: Values that the commit record stores for the caller.
    """

    epoch: EpochRun
    input_id: str | int
    restored_from: int
    started: float
    after: int
    keys_before: Mapping[str, KeyFacts] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    _fingerprint: Fingerprint = field(default_factory=lambda: Fingerprint(0, 0))

    def run(self, checkpoint_id: int) -> list[SubtaskReport]:
        """Applies the batch."""
        reports = self.epoch.run(checkpoint_id, f"epoch {printable(self.input_id)}")
        self._fingerprint = self.epoch.fingerprint()
        return reports

    def facts(self, reports: Sequence[SubtaskReport]) -> EpochFacts:
        """The facts of the commit record, after ``run``."""
        return epoch_facts(
            "epoch",
            reports,
            epoch_input=facts_of_input(
                self.input_id, self._fingerprint, self.epoch.rows, self.epoch.engine
            ),
            seconds=time.monotonic() - self.started,
            watermarks=self.epoch.watermarks,
            restored_from=self.restored_from,
            keys_before=self.keys_before,
            notes=self.notes,
            definitions=definitions_of(self.epoch.job.operators),
            outputs=output_columns_of(self.epoch.job.operators),
        )


def _must_run(spec: TaskSpec, epoch: EpochSpec, parent: OperatorState | None) -> bool:
    """Whether a subtask without rows has to run, because its state may change."""
    if parent is None or parent.parallelism != spec.job.parallelism or not spec.job.changelog:
        return True
    if epoch.broadcast is not None:
        return True
    function = spec.operator.function
    if isinstance(function, WindowFunction | AggregatedWindows):
        return True
    if is_columnar(spec.operator) or not isinstance(function, KeyedProcessFunction):
        return False
    return type(function).on_timer is not KeyedProcessFunction.on_timer


def _columns(order_by: Sequence[str] | None) -> Sequence[str] | None:
    """The columns of an order; a single column may be given without a list."""
    return [order_by] if isinstance(order_by, str) else order_by


class _Frames(Mapping[str, Any]):
    """The inputs of a source, by name.

    Args:
        frames: The inputs.
        on_input: Called when the source takes the batch.
    """

    def __init__(self, frames: Mapping[str, Any], on_input: Callable[[], None]) -> None:
        self._frames = frames
        self._on_input = on_input

    def __getitem__(self, name: str) -> Any:
        if name == INPUT:
            self._on_input()
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)


def _changed(why: str, *reads: str) -> InputChangedError:
    return InputChangedError(
        f"The batch changed while {why}: {' and '.join(reads)}; write it to a table first, and "
        f"read it from there."
    )
