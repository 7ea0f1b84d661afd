"""A subtask whose function processes single rows, with its state in columns.

``docs/decisions/0033-functions-by-row-on-columns.md`` says when a function runs so, and why.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pyarrow as pa

from dstl_core.codec.python_values import AsPython
from dstl_core.codec.serializers import Types
from dstl_core.errors import UNREADABLE, ConfigError, InvariantViolation, UserFunctionError
from dstl_core.functions import (
    BroadcastFunction,
    CheckpointedFunction,
    KeyedProcessFunction,
    RawStateOperator,
    RichFunction,
    RichMapFunction,
    RuntimeContext,
)
from dstl_core.job.spec.job_spec import TaskSpec
from dstl_core.job.task.column_state import StateInColumns, with_state
from dstl_core.job.task.output_files import OutputFiles
from dstl_core.job.task.python_rows import rows_of, values_of
from dstl_core.job.task.restore import Assigned
from dstl_core.job.task.row_states import RowStates
from dstl_core.job.task.row_subtask import ROWS_IN_PYTHON, RowSubtask, times_of
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.handle import ChangelogStateBackendHandle, KeyedStateHandle
from dstl_core.operators.process_operator import RowCalls
from dstl_core.operators.user_code import user_code
from dstl_core.state.backends.backend import KeyedStateBackend
from dstl_core.state.backends.changelog_backend import ValueLogging
from dstl_core.state.backends.state_backend import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    StateBackend,
)
from dstl_core.state.backends.timers import TimerService
from dstl_core.state.columns.column_store import order_of
from dstl_core.state.held.held_values import MOST_BYTES
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.store import HEAP

_KEYS = (Types.STRING, Types.LONG, Types.INT, Types.SHORT, Types.BYTE)
"""Types of keys whose columns are lists of Python's values."""
_MORE_THAN_ROWS = (BroadcastFunction, CheckpointedFunction, RawStateOperator)


class RowsInColumns(StateInColumns):
    """One subtask of one task, whose function processes rows. One thread.

    Args:
        task: The operator, and the folders of its files.
        subtask: Index of this subtask, from 0.
        assigned: The state that it restores.
        states: The states of the function, which is open.

    Raises:
        RestoreError, StateMigrationError: The restored state is not of these states alone.
    """

    def __init__(self, task: TaskSpec, subtask: int, assigned: Assigned, states: RowStates) -> None:
        super().__init__(task, subtask, assigned, tuple(states.descriptors.values()))
        self._function = task.operator.function
        self._row_states = states
        self._calls = RowCalls(self._function, _NoTimers(task.watermark, task.now_ms))

    def close(self, state: OperatorSubtaskState | None) -> None:
        with user_code(self._function, "close"):
            self._function.close()
        super().close(state)

    def _process_rows(self, rows: pa.RecordBatch, output: OutputFiles) -> None:
        waiting = [rows]
        while waiting:
            first, limit = waiting.pop(), self._rows_at_a_time()
            rest = self._process_first(first.slice(0, limit), output)
            waiting += [part for part in (first.slice(limit), rest) if part.num_rows]

    def _rows_at_a_time(self) -> int:
        """The number of rows whose keys are likely to have state that memory can hold."""
        sized = [name for name, form in self._row_states.current.forms.items() if form.has_size]
        size = self._store.bytes_per_key(sized)
        return max(ROWS_IN_PYTHON, int(MOST_BYTES / max(size, 1)))

    def _process_first(self, rows: pa.RecordBatch, output: OutputFiles) -> pa.RecordBatch:
        """Processes rows until the new values are large; returns the other rows.

        Without a promised order of keys, the rows of a key are next to each other. So the memory of
        values is passed once from start to end, which takes a third of the time of random access.
        """
        keys, numbers = self._number_keys(rows.column(self._key_by))
        by_key = self._function.order_insensitive
        if by_key:
            order = order_of(numbers.astype(np.uint64) << np.uint64(64 - len(keys).bit_length()))
            rows, numbers = rows.take(pa.array(order)), numbers[order]
        states, before = self._row_states, self._store.lookup(keys)
        states.begin(before)
        has_state = with_state(before)
        known, done = values_of(keys.values), 0
        has_known = keys.values.type == rows.schema.field(self._key_by).type
        while done < rows.num_rows:
            part = rows.slice(done, ROWS_IN_PYTHON)
            of_part = numbers[done : done + part.num_rows].tolist()
            done += part.num_rows
            values = {self._key_by: [known[number] for number in of_part]} if has_known else {}
            times = times_of(part, self._operator.event_time)
            numbered = zip(of_part, rows_of(part, values), times, strict=False)
            output.add(self._calls.apply(states.current, known, numbered))
            if states.is_large(of_part, in_order=by_key):
                break
        after, changed = states.end()
        self._keep(keys, has_state, after, changed)
        return rows.slice(done)


class _NoTimers(TimerService):
    """The time of a function that has no ``on_timer``."""

    def __init__(self, watermark_ms: int, now_ms: int) -> None:
        self._watermark_ms = watermark_ms
        self._now_ms = now_ms

    def current_watermark(self) -> int:
        return self._watermark_ms

    def current_processing_time(self) -> int:
        return self._now_ms

    def register_event_time_timer(self, time_ms: int) -> None:
        """Raises ConfigError: the function has no ``on_timer``."""
        raise ConfigError("The function registers a timer, and has no on_timer(); define it.")

    register_processing_time_timer = register_event_time_timer

    def delete_event_time_timer(self, time_ms: int) -> None:
        """Does nothing: there is no timer."""

    delete_processing_time_timer = delete_event_time_timer


def may_be_in_columns(task: TaskSpec, assigned: Assigned) -> bool:
    """Whether the state of a function by row may be in columns; its ``open`` decides."""
    operator, job = task.operator, task.job
    key_type = operator.function_key_type
    return (
        _has_memory_for(job.state_backend, assigned)
        and job.value_logging is ValueLogging.LAST_PER_CHECKPOINT
        and not isinstance(key_type, AsPython)
        and key_type in _KEYS
        and _is_plain(operator.function)
    )


def _has_memory_for(backend: StateBackend, assigned: Assigned) -> bool:
    """Whether restored state may be in memory. A database of RocksDB may take as much itself."""
    if type(backend) is EmbeddedRocksDBStateBackend:
        return sum(map(_size, assigned.state.managed_keyed_state)) < backend.memory_bytes
    return type(backend) is HashMapStateBackend


def _size(handle: KeyedStateHandle) -> int:
    """Bytes of state, without the log on top of a base; a log alone has at least its state."""
    if isinstance(handle, ChangelogStateBackendHandle) and handle.materialized:
        return handle.materialized_size
    return handle.state_size


def _is_plain(function: RichFunction) -> bool:
    """Whether a function has neither timers nor state besides that of its keys."""
    if isinstance(function, _MORE_THAN_ROWS):
        return False
    if isinstance(function, KeyedProcessFunction):
        return type(function).on_timer is KeyedProcessFunction.on_timer
    return isinstance(function, RichMapFunction)


def open_rows(task: TaskSpec, subtask: int, assigned: Assigned) -> RowSubtask | RowsInColumns:
    """Opens a function by row whose state may be in columns, with its state.

    Restored state that columns cannot take, e.g. a state that the function no longer has, goes
    into tables, which take it or say why not.
    """
    function, key_type = task.operator.function, task.operator.function_key_type
    if key_type is None:
        raise InvariantViolation("state in columns has a key")
    in_tables: list[RowSubtask] = []

    def open_tables() -> KeyedStateBackend:
        in_tables.append(RowSubtask(task, subtask, assigned, is_open=True))
        keyed = in_tables[0].keyed
        if keyed is None:
            raise InvariantViolation("an operator with a key has no keyed state")
        return keyed

    key_groups = task.job.key_groups(subtask)
    empty = KeyedState(key_groups, task.job.max_parallelism, HEAP)
    states = RowStates(empty, key_type, open_tables)
    try:
        with user_code(function, "open"):
            function.open(RuntimeContext(states, subtask, task.job.parallelism))
        if states.failure is None and states.opened():
            with suppress(*UNREADABLE):  # tables take what columns do not, or say why not
                return RowsInColumns(task, subtask, assigned, states)
        with user_code(function, "open"):
            states.in_tables()
    except UserFunctionError:
        if states.failure is not None:
            raise states.failure from None
        raise
    return in_tables[0]
