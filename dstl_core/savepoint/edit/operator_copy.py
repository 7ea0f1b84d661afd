"""Copies operators into a new savepoint: unchanged, in canonical form, rescaled, split or
merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dstl_core.codec.operator_state import own_places
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
from dstl_core.savepoint.edit.kept_state import whole_file
from dstl_core.savepoint.edit.operator_state_copy import spread_operator_state
from dstl_core.savepoint.edit.rewriting import Output
from dstl_core.savepoint.edit.tables.joined_tables import can_be_joined, joined_tables
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog, SnapshotFiles
from dstl_core.savepoint.read.state_parts import Selection, StatesOf, merged_header
from dstl_core.savepoint.read.timer_queues import with_timer_queues, with_timer_queues_alone
from dstl_core.savepoint.write.folder import DATA_INLINE_THRESHOLD, StateFiles, StoredKeyedHandle
from dstl_core.state.tables.rescale import cut, with_max_parallelism

KeyedHandle = StoredKeyedHandle | None


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
    output: Output,
    select: Selection | None = None,
) -> OperatorState:
    """Copies the bytes of an operator's state; returns ``state`` with the new handles.

    Args:
        operator: The operator to copy.
        state: The operator's entry for the new savepoint, possibly with another id and another max
            parallelism.
        output: Where the new files go.
        select: Keyed state that is copied; None for all.
    """
    subtasks = state.subtasks
    source = StatesOf(operator, select=select)
    keyed: Mapping[int, KeyedHandle]
    if _is_redistributed(operator, state.max_parallelism):
        handles = _rescaled(source, state.parallelism, output, state.max_parallelism)
        keyed = dict(enumerate(handles))
        by_index = {subtask.index: subtask for subtask in subtasks}
        subtasks = tuple(
            by_index.get(index, OperatorSubtaskState(index)) for index in range(state.parallelism)
        )
    else:
        keyed = _in_place(source, output)
    return replace(
        state,
        subtasks=tuple(
            replace(
                _copy_subtask(operator, subtask, output.target),
                managed_keyed_state=keyed.get(subtask.index),
            )
            for subtask in subtasks
        ),
    )


def compose_operator(
    parts: Sequence[StatesOf],
    state: OperatorState,
    output: Output,
) -> OperatorState:
    """Writes the states of several operators, or some states of one, as one operator.

    Args:
        parts: The states to write. The first part brings its raw operator state along, if it is the
            operator itself.
        state: The operator's entry for the new savepoint; its subtasks are replaced.
        output: Where the new files go.

    Raises:
        SavepointError: The parts cannot be combined.
    """
    target = output.target
    keyed: Sequence[KeyedHandle]
    if output.kept is not None and can_be_joined(parts, state):
        keyed = joined_tables(parts, state.parallelism, output.kept, target)
    else:
        keyed = _composed(parts, state.parallelism, output, state.max_parallelism)
    streams = spread_operator_state(parts, state.parallelism)
    lists = (each.managed_operator_state for part in parts for each in part.operator.state.subtasks)
    target.advance(sum(each.state_size for each in lists if each is not None))
    first = parts[0].operator
    raw = first.state.subtasks if first.operator_id == state.operator_id else ()
    raw_states = {each.index: each.raw_operator_state for each in raw}
    subtasks = tuple(
        OperatorSubtaskState(
            index,
            target.add_operator_state(streams[index]),
            copy_operator_state(first, raw_states.get(index), target),
            keyed[index],
        )
        for index in range(state.parallelism)
    )
    return replace(state, subtasks=subtasks)


def write_heap_timers(operator: OperatorCatalog, output: Output, select: Selection) -> None:
    """Writes the timers of an operator that stay on the heap, beside files that are kept."""
    source = StatesOf(with_timer_queues_alone(operator), select=select)
    native = replace(output, target=output.target.of_tables(), kept=None)
    _rescaled(source, operator.parallelism, native, operator.max_parallelism)


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
        stream = _copied(snapshot, stream, target, is_copy=not is_edited)
    target.advance(stream.state_size)
    return stream


def _copied(
    snapshot: SnapshotFiles, stream: StreamStateHandle, target: StateFiles, *, is_copy: bool
) -> StreamStateHandle:
    size, resolver = stream.state_size, snapshot.resolver
    if size <= DATA_INLINE_THRESHOLD or not is_copy:
        return target.add_stream(resolver.read(stream), is_copy=is_copy)
    whole = whole_file(snapshot, stream)
    return target.add_copy(resolver.reader(stream, 0, size), size, whole)


def _in_place(source: StatesOf, output: Output) -> dict[int, KeyedHandle]:
    """The handle of each subtask that has keyed state; it has the key groups that it had."""
    # loads kernels, which only a rewrite needs
    from dstl_core.savepoint.edit.keyed_units import NewStream, copy_streams

    operator, sources, target = source.operator, [source], output.target
    total = operator.max_parallelism
    handles: dict[int, KeyedHandle] = {}
    others: list[tuple[int, KeyedStateHandle]] = []
    for subtask in operator.state.subtasks:
        handle = subtask.managed_keyed_state
        if (
            target.form == "canonical"
            and isinstance(handle, KeyGroupsSavepointStateHandle)
            and (source.select is None or not source.select.touches(operator, handle))
        ):
            stream = _copy_stream(operator, handle.stream, target)
            handles[subtask.index] = replace(handle, stream=stream)
        elif handle is not None:
            others.append((subtask.index, handle))
    header = merged_header(sources) if others else None
    if header is None:
        return handles
    header = output.header(header, [operator])
    streams = [
        NewStream(
            header,
            handle.key_group_range,
            total,
            handle.state_size,
            handle,
            keep_header=True,
            needs_order=target.form == "native",
        )
        for _, handle in others
    ]
    try:
        written = copy_streams(sources, streams, output)
    except NotInColumnsError as error:
        if source.select is not None:
            raise _cannot_select(operator) from error
        written = [
            target.add_keyed_state(operator.restore([handle], handle.key_group_range))
            for _, handle in others
        ]
    return handles | {index: handle for (index, _), handle in zip(others, written, strict=True)}


def _redistributed(
    parts: Sequence[StatesOf], parallelism: int, output: Output, max_parallelism: int
) -> Sequence[KeyedHandle]:
    """The keyed state of each subtask, from the states of all handles."""
    header = merged_header(parts)
    if header is None:
        return [None] * parallelism
    check_parallelism(parallelism, max_parallelism)
    header = output.header(header, [part.operator for part in parts])
    from dstl_core.savepoint.edit import keyed_units as units  # loads kernels

    ranges = units.key_group_ranges_of(max_parallelism, parallelism)
    if any(part.operator.max_parallelism != max_parallelism for part in parts):
        with units.sections_for(parts, header, max_parallelism) as sections:
            portion = units.shuffle_of(parts, header, max_parallelism).into(sections, output)
            return units.write_sections(sections, ranges, output, portion)
    size = sum(part.operator.keyed_size for part in parts)
    needs_order = output.target.form == "native"
    streams = [
        units.NewStream(
            header,
            key_groups,
            max_parallelism,
            size * len(key_groups) // max_parallelism,
            needs_order=needs_order,
        )
        for key_groups in ranges
    ]
    return units.copy_streams(parts, streams, output)


def _rescaled(
    source: StatesOf, parallelism: int, output: Output, max_parallelism: int
) -> Sequence[KeyedHandle]:
    """The keyed state of each subtask with the new number of key groups."""
    operator = source.operator
    try:
        return _redistributed([source], parallelism, output, max_parallelism)
    except NotInColumnsError as error:
        if source.select is not None:
            raise _cannot_select(operator) from error
        everything = KeyGroupRange(0, operator.max_parallelism - 1)
        restored = operator.restore(operator.keyed_handles, everything)
        moved = with_max_parallelism(restored, max_parallelism)
        ranges = (
            compute_key_group_range_for_operator_index(max_parallelism, parallelism, index)
            for index in range(parallelism)
        )
        return [output.target.add_keyed_state(cut(moved, own)) for own in ranges]


def _cannot_select(operator: OperatorCatalog) -> SavepointError:
    return SavepointError(
        f"Entries of operator {operator.label!r} cannot be left out of its keyed state: it has a "
        f"form that is read as a whole only; write the snapshot in canonical form first.",
        location=str(operator.snapshot.folder),
    )


def _composed(
    parts: Sequence[StatesOf], parallelism: int, output: Output, max_parallelism: int
) -> Sequence[KeyedHandle]:
    try:
        return _redistributed(parts, parallelism, output, max_parallelism)
    except NotInColumnsError as error:
        header = merged_header(parts)
        keys = "" if header is None else header.key_serializer.type_name
        raise SavepointError(
            f"Keyed state of operator {parts[0].operator.label!r} cannot be split or merged: its "
            f"keys ({keys}) have no columnar form."
        ) from error
