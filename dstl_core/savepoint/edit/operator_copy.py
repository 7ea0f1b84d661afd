"""Copies operators into a new savepoint: unchanged, in canonical form, rescaled, split or
merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from dstl_core.codec.operator_state import own_places
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.errors import NotInColumnsError, SavepointError, error_context
from dstl_core.model.checkpoint import OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    EmptySegmentFileStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
    StreamStateHandle,
)
from dstl_core.model.key_group import (
    KeyGroupRange,
    check_parallelism,
    compute_key_group_range_for_operator_index,
)
from dstl_core.savepoint.edit.operator_state_copy import spread_operator_state
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.savepoint.read.state_parts import StatesOf, merged_header
from dstl_core.savepoint.read.timer_queues import with_timer_queues
from dstl_core.savepoint.write.folder import StateFiles, StoredKeyedHandle
from dstl_core.state.columns.progress import Portion
from dstl_core.state.tables.rescale import cut, with_max_parallelism

if TYPE_CHECKING:
    from dstl_core.state.columns.keyed_sections import KeyedSections


def _is_redistributed(operator: OperatorCatalog, max_parallelism: int) -> bool:
    """Whether keyed state moves to other subtasks; otherwise each subtask keeps its state."""
    is_rescaled = max_parallelism != operator.max_parallelism
    return bool(operator.keyed_handles) and (is_rescaled or bool(operator.timer_queues))


def check_aligned(operator: OperatorCatalog) -> None:
    """Checks that an operator has no in-flight data.

    Raises:
        SavepointError: It has.
    """
    for subtask in operator.state.subtasks:
        if subtask.input_channel_state or subtask.result_subpartition_state:
            raise SavepointError(
                f"Operator {operator.label!r} has in-flight data of an unaligned checkpoint, which "
                f"a savepoint cannot hold; take an aligned checkpoint or a savepoint of the job."
            )


def check_writable(operator: OperatorCatalog, max_parallelism: int | None = None) -> None:
    """Checks that an operator can be copied, before the first byte is written.

    Args:
        operator: The operator to copy.
        max_parallelism: Its number in the copy; None does not check it.

    Raises:
        SavepointError: There is in-flight data, or raw keyed state that is not timers.
        ConfigError: The parallelism is above the new maximum.
    """
    check_aligned(operator)
    with_timer_queues(operator)  # refuses raw keyed state that is not timers
    if max_parallelism is not None and (
        operator.keyed_handles or max_parallelism != operator.max_parallelism
    ):
        check_parallelism(operator.parallelism, max_parallelism, operator.label)


def rewrite_operator(
    operator: OperatorCatalog,
    state: OperatorState,
    target: StateFiles,
) -> OperatorState:
    """Copies the bytes of an operator's state to ``target``; returns ``state`` with the new
    handles.

    Args:
        operator: The operator to copy.
        state: The operator's entry for the new savepoint, possibly with another id and another max
            parallelism.
        target: Folder of the new files.
    """
    if _is_redistributed(operator, state.max_parallelism):
        keyed = _rescaled(operator, state.parallelism, target, state.max_parallelism)
        by_index = {subtask.index: subtask for subtask in state.subtasks}
        subtasks = [
            replace(
                _copy_subtask(operator, by_index.get(index, OperatorSubtaskState(index)), target),
                managed_keyed_state=handle,
            )
            for index, handle in enumerate(keyed)
        ]
        return replace(state, subtasks=tuple(subtasks))
    stored = _Stored(operator, target)
    subtasks = [
        replace(
            _copy_subtask(operator, each, target),
            managed_keyed_state=stored.of(each.managed_keyed_state),
        )
        for each in state.subtasks
    ]
    return replace(state, subtasks=tuple(subtasks))


def compose_operator(
    parts: Sequence[StatesOf],
    state: OperatorState,
    target: StateFiles,
) -> OperatorState:
    """Writes the states of several operators, or some states of one, as one operator.

    Args:
        parts: The states to write. The first part brings its raw operator state along, if it is the
            operator itself.
        state: The operator's entry for the new savepoint; its subtasks are replaced.
        target: Folder of the new files.

    Raises:
        SavepointError: The parts cannot be combined.
    """
    keyed = _composed(parts, state.parallelism, target, state.max_parallelism)
    streams = spread_operator_state(parts, state.parallelism)
    lists = (each.managed_operator_state for part in parts for each in part.operator.state.subtasks)
    target.advance(sum(each.state_size for each in lists if each is not None))
    own = parts[0].operator
    raw = own.state.subtasks if own.operator_id == state.operator_id else ()
    raw_states = {each.index: each.raw_operator_state for each in raw}
    subtasks = tuple(
        OperatorSubtaskState(
            index,
            target.add_operator_state(streams[index]),
            copy_operator_state(own, raw_states.get(index), target),
            keyed[index],
        )
        for index in range(state.parallelism)
    )
    return replace(state, subtasks=subtasks)


def _copy_subtask(
    operator: OperatorCatalog, subtask: OperatorSubtaskState, target: StateFiles
) -> OperatorSubtaskState:
    """A subtask with its operator state but without keyed state; its raw timers are queues by
    now.
    """
    return replace(
        subtask,
        managed_operator_state=copy_managed_state(operator, subtask.managed_operator_state, target),
        raw_operator_state=copy_operator_state(operator, subtask.raw_operator_state, target),
        managed_keyed_state=None,
        raw_keyed_state=None,
    )


def copy_operator_state(
    operator: OperatorCatalog,
    handle: OperatorStreamStateHandle | None,
    target: StateFiles,
) -> OperatorStreamStateHandle | None:
    if handle is None or isinstance(handle.stream, EmptySegmentFileStateHandle):
        return None
    return replace(handle, stream=_copy_stream(operator, handle.stream, target), file_merging=None)


def copy_managed_state(
    operator: OperatorCatalog,
    handle: OperatorStreamStateHandle | None,
    target: StateFiles,
) -> OperatorStreamStateHandle | None:
    """Copies list, union and broadcast state. Elements that share a place get their own.

    Raises:
        UnreadableValueError: Elements share chunks, and only a Java class can separate them.
    """
    if handle is None or isinstance(handle.stream, EmptySegmentFileStateHandle):
        return None
    snapshot = operator.snapshot
    with error_context(operator=operator.label):
        raw = snapshot.resolver.read(handle.stream)
        placed = own_places(raw, handle.states, snapshot.registry)
    if placed is None:
        return copy_operator_state(operator, handle, target)
    target.advance(handle.state_size)
    return target.add_operator_state(placed)


def _copy_stream(
    operator: OperatorCatalog, stream: StreamStateHandle, target: StateFiles
) -> StreamStateHandle:
    """Copies a stream to the target. A stream in the target's folder stays, since files never
    change.
    """
    snapshot = operator.snapshot
    if isinstance(stream, RelativeFileStateHandle) and snapshot.folder == target.folder:
        target.kept.add(stream.relative_path)
    else:
        is_edited = (
            isinstance(stream, ByteStreamStateHandle) and operator.operator_id in snapshot.edited
        )
        stream = target.add_stream(snapshot.resolver.read(stream), is_copy=not is_edited)
    target.advance(stream.state_size)
    return stream


class _Stored:
    """Handles of an operator in the form of the target."""

    def __init__(self, operator: OperatorCatalog, target: StateFiles) -> None:
        self._operator = operator
        self._target = target

    @cached_property
    def _header(self) -> KeyedBackendHeader | None:
        return merged_header([StatesOf(self._operator)])

    def of(self, handle: KeyedStateHandle | None) -> StoredKeyedHandle | None:
        if handle is None:
            return None
        operator, target = self._operator, self._target
        if target.form == "canonical" and isinstance(handle, KeyGroupsSavepointStateHandle):
            return replace(handle, stream=_copy_stream(operator, handle.stream, target))
        if self._header is None:
            return None
        portion = Portion(target.advance, handle.state_size)
        try:
            with _collect(
                [StatesOf(operator)], self._header, operator.max_parallelism, portion, handle
            ) as sections:
                found = target.add_keyed_stream(sections.stream())
        except NotInColumnsError:
            found = None
        # A stream with a header but no record is kept, too.
        found = found or target.add_keyed_state(operator.restore([handle], handle.key_group_range))
        portion.reach(1)
        return found


def _rescaled(
    operator: OperatorCatalog, parallelism: int, target: StateFiles, max_parallelism: int
) -> list[StoredKeyedHandle | None]:
    """The keyed state of each subtask with the new number of key groups."""
    header = merged_header([StatesOf(operator)])
    ranges = key_group_ranges_of(max_parallelism, parallelism)
    if header is None:
        return [None] * parallelism
    portion = Portion(target.advance, sum(each.state_size for each in operator.keyed_handles))
    try:
        with _collect([StatesOf(operator)], header, max_parallelism, portion) as sections:
            return streams_of(sections, ranges, target, portion)
    except NotInColumnsError:
        everything = KeyGroupRange(0, operator.max_parallelism - 1)
        restored = operator.restore(operator.keyed_handles, everything)
        moved = with_max_parallelism(restored, max_parallelism)
        found = [target.add_keyed_state(cut(moved, each)) for each in ranges]
        portion.reach(1)
        return found


def _composed(
    parts: Sequence[StatesOf], parallelism: int, target: StateFiles, max_parallelism: int
) -> list[StoredKeyedHandle | None]:
    header = merged_header(parts)
    if header is None:
        return [None] * parallelism
    check_parallelism(parallelism, max_parallelism)
    sizes = (handle.state_size for part in parts for handle in part.operator.keyed_handles)
    portion = Portion(target.advance, sum(sizes))
    try:
        with _collect(parts, header, max_parallelism, portion) as sections:
            return streams_of(
                sections, key_group_ranges_of(max_parallelism, parallelism), target, portion
            )
    except NotInColumnsError as error:
        raise SavepointError(
            f"Keyed state of operator {parts[0].operator.label!r} cannot be split or merged: its "
            f"keys ({header.key_serializer.type_name}) have no columnar form."
        ) from error


def _collect(
    parts: Sequence[StatesOf],
    header: KeyedBackendHeader,
    max_parallelism: int,
    portion: Portion,
    handle: KeyedStateHandle | None = None,
) -> KeyedSections:
    from dstl_core.savepoint.read.keyed_copy import (
        collect,
    )  # loads kernels, which only a rewrite needs

    return collect(parts, header, max_parallelism, handle, advance=portion.add)


def streams_of(
    sections: KeyedSections,
    ranges: Sequence[KeyGroupRange],
    target: StateFiles,
    portion: Portion,
) -> list[StoredKeyedHandle | None]:
    """Writes the collected records as one stream for each range."""
    found: list[StoredKeyedHandle | None] = []
    is_empty = not sections.raw_size(sections.key_groups)
    for number, each in enumerate(ranges, 1):
        is_only = is_empty and number == 1
        found.append(target.add_keyed_stream(sections.stream(each), keep_header=is_only))
        portion.reach((1 + number / len(ranges)) / 2)
    return found


def key_group_ranges_of(max_parallelism: int, parallelism: int) -> list[KeyGroupRange]:
    return [
        compute_key_group_range_for_operator_index(max_parallelism, parallelism, index)
        for index in range(parallelism)
    ]
