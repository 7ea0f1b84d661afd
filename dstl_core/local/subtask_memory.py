"""The memory that subtasks take, from the bytes of their rows and of their stored state."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Condition

import pyarrow as pa

from dstl_core.display import size_text
from dstl_core.errors import ConfigError
from dstl_core.job.spec.job_spec import TaskSpec
from dstl_core.job.spec.operators import is_columnar
from dstl_core.job.task.assigned_state import decode_assigned
from dstl_core.job.task.local_copies import CopyFolder
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend

ROWS_PART = 8
"""The part of the memory for the rows of a stream, and for the rows that wait for their subtask."""
HELD_PART = 4
"""The part of the memory for state that the process keeps between epochs."""
LEAST_BYTES = 64 << 20
"""A subtask that takes less always runs: libraries take more than it does."""
BYTES_PER_ENTRY = 400
"""Memory of an entry of state that the process keeps between epochs."""
_ROWS, _COPY, _BASE, _TABLES = 2.0, 3.0, 2.0, 6.0
"""Memory by bytes, as measured: of rows; of a copy of state in columns; of a base that becomes
columns; of one that becomes tables.
"""


class Room:
    """The memory that the running subtasks of a task share.

    Args:
        size: The memory.
        subtasks: The subtasks, with the memory that each takes. One always runs.
    """

    def __init__(self, size: int, subtasks: Mapping[int, int]) -> None:
        self.subtasks = subtasks
        self._size = size
        self._taken = 0
        self._changed = Condition()

    @contextmanager
    def taken_by(self, subtask: int) -> Iterator[None]:
        """Waits until a subtask fits beside those that run, and holds its memory."""
        wanted = self.subtasks[subtask]
        with self._changed:
            self._changed.wait_for(lambda: not self._taken or self._taken + wanted <= self._size)
            self._taken += wanted
        try:
            yield
        finally:
            pa.default_memory_pool().release_unused()
            with self._changed:
                self._taken -= wanted
                self._changed.notify_all()


def room_of(task: TaskSpec, rows: Mapping[int, int], size: int) -> Room:
    """The memory for the subtasks of a task, and what each takes of it.

    Args:
        task: The task.
        rows: Subtasks, with the bytes of their rows.
        size: The memory of the engine.

    Raises:
        ConfigError: A subtask takes more than there is.
    """
    held = 0 if is_columnar(task.operator) else size // HELD_PART
    room = size - 2 * (size // ROWS_PART) - held
    taken = {}
    for subtask, own_rows in rows.items():
        state = _memory_of_state(task, subtask)
        wanted = int(_ROWS * own_rows) + state.divided + state.database
        if wanted > max(room, LEAST_BYTES):
            text = f"{size_text(own_rows)} of rows and {size_text(state.stored)} of state"
            raise ConfigError(_too_large(task, subtask, wanted, state, text, room))
        # A log may have many old values of a key: it makes a subtask run alone, and never fail.
        taken[subtask] = max(wanted, min(wanted + state.log, room))
    return Room(room, taken)


def with_bounded_copies(task: TaskSpec, size: int) -> TaskSpec:
    """A task that keeps no more state in this process than its part of the memory."""
    copies = task.job.local_copies
    entries = min(copies.max_entries, size // HELD_PART // BYTES_PER_ENTRY)
    return replace(task, job=replace(task.job, local_copies=replace(copies, max_entries=entries)))


@dataclass(frozen=True)
class StateMemory:
    """The stored bytes of the state of a subtask, and the memory that it takes.

    Args:
        stored: The stored bytes, without a log on top of them.
        divided: Memory that is smaller with more subtasks.
        database: Memory of a database, which is as large with more subtasks while it is full.
        log: Memory that the log on top may take.
    """

    stored: int
    divided: int = 0
    database: int = 0
    log: int = 0


def _memory_of_state(task: TaskSpec, subtask: int) -> StateMemory:
    key_groups, backend = task.job.key_groups(subtask), task.job.state_backend
    handles = decode_assigned(task.assigned[subtask]).managed_keyed_state
    stored = sum(_base_bytes(handle, key_groups) for handle in handles)
    log = sum(
        _base_bytes(part, key_groups)
        for handle in handles
        if isinstance(handle, ChangelogStateBackendHandle)
        for part in handle.non_materialized
    )
    columnar = is_columnar(task.operator)
    if isinstance(backend, EmbeddedRocksDBStateBackend) and not columnar:
        whole = int(_TABLES * (stored + log))
        return StateMemory(stored + log, database=min(whole, backend.memory_bytes))
    copy = CopyFolder(task, subtask).newest_bytes()
    if copy:
        return StateMemory(copy, int(_COPY * copy))
    times = _BASE if columnar else _TABLES
    return StateMemory(stored, int(times * stored), log=int(times * log))


def _base_bytes(handle: KeyedStateHandle, key_groups: KeyGroupRange) -> int:
    """The bytes of state of some key groups, without the log on top of it."""
    match handle:
        case ChangelogStateBackendHandle():
            return sum(_base_bytes(part, key_groups) for part in handle.materialized)
        case KeyGroupsSavepointStateHandle() | KeyGroupsStateHandle():
            sections = handle.offsets.sections(handle.stream.state_size, key_groups)
            return sum(end - start for _, start, end in sections)
        case _:
            common = len(handle.key_group_range.get_intersection(key_groups))
            return handle.state_size * common // max(1, len(handle.key_group_range))


def _too_large(
    task: TaskSpec, subtask: int, taken: int, state: StateMemory, of_what: str, room: int
) -> str:
    job, database = task.job, state.database
    ways = ["give the engine more memory"]
    divided = taken - database
    if room > database:
        parallelism = math.ceil(job.parallelism * divided / (room - database))
    else:  # until each database has little
        divided += int(_TABLES * state.stored)
        parallelism = math.ceil(job.parallelism * divided / max(1, room))
    if parallelism <= job.max_parallelism:
        ways.insert(0, f"run the job with a parallelism of at least {parallelism}")
    if database:
        of_what += f" in a database of {size_text(database)}"
        ways.append("give its backend smaller cache_bytes and write_buffer_bytes")
    elif not (
        is_columnar(task.operator) or isinstance(job.state_backend, EmbeddedRocksDBStateBackend)
    ):
        ways.append("keep the state in an EmbeddedRocksDBStateBackend")
    return (
        f"Subtask {subtask} of operator {task.operator.uid!r} does not fit into the memory of the "
        f"local engine: it takes about {size_text(taken)} for {of_what}, and there are "
        f"{size_text(room)} for subtasks; nothing is committed; {', or '.join(ways)}."
    )
