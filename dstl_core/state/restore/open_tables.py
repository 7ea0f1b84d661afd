"""Keeps the table files or the log of a handle open over its ranges of key groups."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.errors import StorageError
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.restore.rocksdb import (
    Families,
    begin_table_files,
    check_families,
    open_table_files,
    read_meta_header,
)
from dstl_core.storage.handle_resolver import HandleResolver

if TYPE_CHECKING:
    from dstl_core.state.restore.divided_log import DividedLog

_LOG = logging.getLogger(__name__)
DIVIDED_FROM_BYTES = 1 << 20
"""The log of a changelog that has fewer bytes is read again for each range."""


@dataclass
class HandleTables:
    """The header of a handle, and its table files."""

    handle: IncrementalRemoteKeyedStateHandle
    header: KeyedBackendHeader
    families: Families
    resolver: HandleResolver | None
    """Reads the files, if it reads ahead."""


@dataclass
class _Divided:
    handle: ChangelogStateBackendHandle
    within: KeyGroupRange
    log: DividedLog | None
    """None if the folder for temporary files has no room."""


@dataclass
class OpenTables:
    """Opens the files of a handle once, whatever the number of ranges that are read.

    It holds the tables of the handle that was asked for last: their indexes, and no entries; and
    the log of the last changelog, divided by key groups in a temporary file. The
    ranges of a handle are read one after the other, so memory does not grow with handles or ranges.
    Threads may share it; in the worst case they open files again.
    """

    resolver: HandleResolver
    registry: SerializerRegistry
    _last: HandleTables | None = field(default=None, init=False, repr=False)
    _log: _Divided | None = field(default=None, init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without tables: indexes know addresses of memory, and another process opens its own."""
        return {**self.__dict__, "_last": None, "_log": None}

    def of(self, handle: IncrementalRemoteKeyedStateHandle) -> HandleTables:
        """The tables of a handle.

        Raises:
            FormatError: The header or the end of a file is damaged, or a file is of no state.
        """
        last = self._last
        if last is None or last.handle is not handle:
            self._last = None  # two handles are never held together
            begin_table_files(handle, self.resolver)
            header = read_meta_header(handle, self.resolver, self.registry)
            families = open_table_files(handle, self.resolver)
            check_families(header, families)
            resolver = self.resolver if self.resolver.reads_ahead else None
            last = self._last = HandleTables(handle, header, families, resolver)
        return last

    def is_open(self, handle: KeyedStateHandle) -> bool:
        """Whether ``of`` has the tables of a handle already."""
        return self._last is not None and self._last.handle is handle

    def part_of(
        self, handle: KeyedStateHandle, key_groups: KeyGroupRange, within: KeyGroupRange | None
    ) -> KeyedStateHandle:
        """The handle to read for some key groups: of a changelog, one with their changes alone.

        Args:
            handle: A handle of any form.
            key_groups: The key groups to read now.
            within: The key groups that the reader reads in all; None for no others.

        Raises:
            FormatError: A segment is damaged.
            StorageError: A segment is missing.
        """
        if within is None or not isinstance(handle, ChangelogStateBackendHandle):
            return handle
        within = handle.key_group_range.get_intersection(within)
        if (
            handle.non_materialized_size < DIVIDED_FROM_BYTES
            or key_groups.get_intersection(within) == within
        ):
            return handle
        last = self._log
        if last is None or last.handle is not handle or last.within != within:
            from dstl_core.state.restore.divided_log import DividedLog  # loads the compiler

            self._log = None  # two logs are never held together
            log = None
            try:
                log = DividedLog(handle, within, self.resolver)
            except StorageError:
                raise
            except OSError as error:
                _LOG.warning(
                    "a changelog is read again for each range: no temporary file: %s", error
                )
            last = self._log = _Divided(handle, within, log)
        return handle if last.log is None else last.log.part(handle, key_groups)
