"""The storage form of keyed state, and the logs of changelog checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.model.change import StateChange
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    ChangelogStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange

ROCKSDB_FILES = "rocksdb files"


def logs_of(handle: KeyedStateHandle) -> tuple[ChangelogStateHandle, ...]:
    return handle.non_materialized if isinstance(handle, ChangelogStateBackendHandle) else ()


def descriptions(
    log: ChangelogStateHandle, reader: StateChangelogHandleReader
) -> Iterator[StateChange]:
    """The metadata changes of a log, which belong to no key group."""
    return reader.get_changes(replace(log, key_group_range=KeyGroupRange.EMPTY))


def lacks_base(handle: KeyedStateHandle) -> bool:
    return isinstance(handle, ChangelogStateBackendHandle) and not handle.materialized


def form_of(handle: KeyedStateHandle) -> str:
    match handle:
        case KeyGroupsSavepointStateHandle():
            return "canonical"
        case KeyGroupsStateHandle():
            return "heap"
        case ChangelogStateBackendHandle():
            base = sorted({form_of(each) for each in handle.materialized})
            return f"changelog on {' and '.join(base) or 'nothing'}"
        case _:
            return ROCKSDB_FILES
