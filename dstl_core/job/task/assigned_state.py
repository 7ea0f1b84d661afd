"""The state that a subtask restores, as bytes: handles in the form of ``_metadata``.

Spark sends each task the state of all subtasks. A task decodes only its own, so it does not take
longer with each further subtask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.metadata.handles import (
    read_keyed_handle,
    read_operator_handle,
    write_keyed_handle,
    write_operator_handle,
)
from dstl_core.model.task_restore import PrioritizedOperatorSubtaskState

Handle = TypeVar("Handle")


def encode_assigned(state: PrioritizedOperatorSubtaskState) -> bytes:
    out = DataOutput()
    out.write_bool(state.is_restored)
    out.write_i64(state.restored_checkpoint_id or 0)
    _write(out, state.managed_keyed_state, write_keyed_handle)
    _write(out, state.raw_keyed_state, write_keyed_handle)
    _write(out, state.managed_operator_state, write_operator_handle)
    _write(out, state.raw_operator_state, write_operator_handle)
    return out.to_bytes()


def decode_assigned(raw: bytes) -> PrioritizedOperatorSubtaskState:
    """The state of some bytes. Raises FormatError: they are damaged."""
    data = DataInput(raw)
    is_restored, checkpoint_id = data.read_bool(), data.read_i64()
    state = PrioritizedOperatorSubtaskState(
        checkpoint_id if is_restored else None,
        _read(data, read_keyed_handle),
        _read(data, read_keyed_handle),
        _read(data, read_operator_handle),
        _read(data, read_operator_handle),
    )
    data.expect_end("an assigned state")
    return state


def _write(
    out: DataOutput, handles: tuple[Handle, ...], write: Callable[[DataOutput, Handle], None]
) -> None:
    out.write_i32(len(handles))
    for handle in handles:
        write(out, handle)


def _read(data: DataInput, read: Callable[[DataInput], Handle | None]) -> tuple[Handle, ...]:
    read_handles: Iterable[Handle | None] = [
        read(data) for _ in range(data.read_count("handles", 1))
    ]
    return tuple(each for each in read_handles if each is not None)
