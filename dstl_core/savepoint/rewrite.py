"""Edits of a snapshot that give a new, self-contained canonical savepoint.

The input is never touched. What is not edited is copied byte for byte.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dstl_core.checkpoint.metadata_file import publish_metadata_file
from dstl_core.codec.metadata import WRITABLE_VERSIONS
from dstl_core.errors import ConfigError, SavepointError
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    EmptySegmentFileStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
    StreamStateHandle,
)
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import (
    KeyGroupRange,
    check_max_parallelism,
    check_parallelism,
    compute_key_group_range_for_operator_index,
)
from dstl_core.savepoint.snapshot import OperatorSnapshot, Snapshot
from dstl_core.state.keyed_state import KeyedState
from dstl_core.state.rescale import cut, with_max_parallelism
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.location import METADATA_FILE_NAME, SIDECAR_FILE_NAME, Location

if TYPE_CHECKING:
    from dstl_core.savepoint.keyed_sections import KeyedStream

DATA_INLINE_THRESHOLD = 20 * 1024
"""Streams up to this size stand inside ``_metadata`` (Flink's default)."""


class SavepointFolder:
    """A savepoint in the making: state files first, ``_metadata`` last.

    Raises:
        SavepointError: There is a snapshot in the folder already.
    """

    def __init__(self, path: str | os.PathLike[str], file_io: FileIO | None = None) -> None:
        self.folder = Location.parse(path)
        self.file_io = file_io if file_io is not None else open_file_io(self.folder)
        for name, what in (
            (METADATA_FILE_NAME, "A snapshot is already"),
            (SIDECAR_FILE_NAME, "An unfinished snapshot is"),
        ):
            if self.file_io.size(self.folder.child(name)) is not None:
                raise SavepointError(
                    f"{what} there: {self.folder}; choose another folder, or remove it."
                )

    def add_stream(self, data: bytes) -> StreamStateHandle:
        """Keeps the bytes of a stream, inline or in a file of the folder."""
        name = str(uuid4())
        if len(data) <= DATA_INLINE_THRESHOLD:
            return ByteStreamStateHandle(name, data)
        self.file_io.write_new(self.folder.child(name), data)
        return RelativeFileStateHandle(name, len(data))

    def add_keyed_state(self, state: KeyedState) -> KeyGroupsSavepointStateHandle | None:
        """Keeps the state of one subtask in canonical form."""
        raw, offsets = state.write_canonical()
        return KeyGroupsSavepointStateHandle(offsets, self.add_stream(raw)) if raw else None

    def add_keyed_stream(self, stream: KeyedStream) -> KeyGroupsSavepointStateHandle | None:
        """Keeps a stream of keyed state as it is made; None if it has no record."""
        if not stream.raw_size:
            return None
        if stream.raw_size <= DATA_INLINE_THRESHOLD:
            kept = self.add_stream(b"".join(stream))
        else:
            name = str(uuid4())
            self.file_io.write_new(self.folder.child(name), stream)
            kept = RelativeFileStateHandle(name, stream.size)
        return KeyGroupsSavepointStateHandle(stream.offsets, kept)

    def publish(self, metadata: CheckpointMetadata, facts: Mapping[str, Any]) -> str:
        """Makes the savepoint exist; returns its path."""
        publish_metadata_file(self.file_io, self.folder, metadata, facts)
        return str(self.folder)


def rewrite_savepoint(
    snapshot: Snapshot,
    out: str | os.PathLike[str],
    *,
    rename: Mapping[str, str] | None = None,
    remove: Sequence[str] = (),
    max_parallelism: int | None = None,
) -> str:
    """Writes an edited copy of a snapshot.

    Args:
        snapshot: What to copy from.
        out: Folder of the new savepoint; must not hold one.
        rename: Operator (uid, hash or name) to its new uid. Swaps are fine.
        remove: Operators to leave out.
        max_parallelism: New number of key groups of all keyed operators.

    Returns:
        The path of the new savepoint.

    Raises:
        NoSuchOperatorError: An operator to edit is not there.
        SavepointError: Two operators would get the same uid, or nothing is left.
    """
    if max_parallelism is not None:
        check_max_parallelism(max_parallelism)
    renamed = {snapshot[old].operator_id: new for old, new in (rename or {}).items()}
    removed = {snapshot[each].operator_id for each in remove}
    if "" in renamed.values():
        raise ConfigError("An operator cannot get an empty uid.")
    kept = [each for each in snapshot.operators if each.operator_id not in removed]
    if not kept:
        raise SavepointError("Nothing is left to write: every operator was removed.")
    states = [_renamed(operator, renamed.get(operator.operator_id)) for operator in kept]
    # Everything that can be refused is refused before the first byte is written.
    _check_unique(states)
    for operator in kept:
        _check_writable(operator, max_parallelism)
    target = SavepointFolder(out)
    operators = tuple(
        _rewrite_operator(operator, state, target, max_parallelism)
        for operator, state in zip(kept, states, strict=True)
    )
    # What version 2 can hold, version 3 holds too, and version 2 is not written.
    version = max(snapshot.metadata.version, min(WRITABLE_VERSIONS))
    metadata = replace(snapshot.metadata, version=version, operators=operators)
    facts = {
        "kind": "rewritten savepoint",
        "source": str(snapshot.folder),
        "source_sha256": snapshot.file.sha256,
    }
    return target.publish(metadata, facts)


def _renamed(operator: OperatorSnapshot, new_uid: str | None) -> OperatorState:
    if new_uid is None:
        return replace(operator.state, uid=operator.uid)
    return replace(operator.state, operator_id=OperatorID.for_uid(new_uid), uid=new_uid)


def _is_rescaled(operator: OperatorSnapshot, max_parallelism: int | None) -> bool:
    return max_parallelism not in (None, operator.max_parallelism) and bool(operator.keyed_handles)


def _check_writable(operator: OperatorSnapshot, max_parallelism: int | None) -> None:
    if max_parallelism is not None and _is_rescaled(operator, max_parallelism):
        check_parallelism(operator.parallelism, max_parallelism)
    for subtask in operator.state.subtasks:
        _refuse_unaligned(operator, subtask)


def _check_unique(operators: Sequence[OperatorState]) -> None:
    seen: set[OperatorID] = set()
    for operator in operators:
        if operator.operator_id in seen:
            raise SavepointError(
                f"Two operators would have the uid {operator.uid or operator.operator_id.hex!r}; "
                f"rename or remove one of them."
            )
        seen.add(operator.operator_id)


def _rewrite_operator(
    operator: OperatorSnapshot,
    state: OperatorState,
    target: SavepointFolder,
    max_parallelism: int | None,
) -> OperatorState:
    if max_parallelism is not None and _is_rescaled(operator, max_parallelism):
        return _rescale(operator, state, target, max_parallelism)
    subtasks = tuple(_copy_subtask(operator, each, target) for each in state.subtasks)
    return replace(state, subtasks=subtasks)


def _copy_subtask(
    operator: OperatorSnapshot, subtask: OperatorSubtaskState, target: SavepointFolder
) -> OperatorSubtaskState:
    keyed = subtask.managed_keyed_state
    return replace(
        subtask,
        managed_operator_state=_copy_operator_state(
            operator, subtask.managed_operator_state, target
        ),
        raw_operator_state=_copy_operator_state(operator, subtask.raw_operator_state, target),
        managed_keyed_state=None if keyed is None else _canonical(operator, keyed, target),
    )


def _refuse_unaligned(operator: OperatorSnapshot, subtask: OperatorSubtaskState) -> None:
    if subtask.input_channel_state or subtask.result_subpartition_state:
        raise SavepointError(
            f"Operator {operator.label!r} has in-flight data of an unaligned checkpoint, which a "
            f"savepoint cannot hold; take an aligned checkpoint or a savepoint of the job."
        )
    if subtask.raw_keyed_state is not None:
        raise SavepointError(
            f"Operator {operator.label!r} has raw keyed state, which cannot be rewritten; "
            f"remove the operator or take a canonical savepoint of the job."
        )


def _copy_operator_state(
    operator: OperatorSnapshot,
    handle: OperatorStreamStateHandle | None,
    target: SavepointFolder,
) -> OperatorStreamStateHandle | None:
    if handle is None or isinstance(handle.stream, EmptySegmentFileStateHandle):
        return None
    raw = operator.snapshot.resolver.read(handle.stream)
    return replace(handle, stream=target.add_stream(raw), file_merging=None)


def _canonical(
    operator: OperatorSnapshot, handle: KeyedStateHandle, target: SavepointFolder
) -> KeyGroupsSavepointStateHandle | None:
    if isinstance(handle, KeyGroupsSavepointStateHandle):
        raw = operator.snapshot.resolver.read(handle.stream)
        return replace(handle, stream=target.add_stream(raw))
    return target.add_keyed_state(operator.restore([handle], handle.key_group_range))


def _rescale(
    operator: OperatorSnapshot,
    state: OperatorState,
    target: SavepointFolder,
    max_parallelism: int,
) -> OperatorState:
    everything = KeyGroupRange(0, operator.max_parallelism - 1)
    moved = with_max_parallelism(
        operator.restore(operator.keyed_handles, everything), max_parallelism
    )
    subtasks = []
    by_index = {subtask.index: subtask for subtask in state.subtasks}
    for index in range(state.parallelism):
        old = by_index.get(index, OperatorSubtaskState(index))
        own = compute_key_group_range_for_operator_index(max_parallelism, state.parallelism, index)
        subtasks.append(
            OperatorSubtaskState(
                index,
                _copy_operator_state(operator, old.managed_operator_state, target),
                _copy_operator_state(operator, old.raw_operator_state, target),
                target.add_keyed_state(cut(moved, own)),
            )
        )
    return replace(state, max_parallelism=max_parallelism, subtasks=tuple(subtasks))
