"""Keeps the table files of a handle open over its ranges of key groups."""

from __future__ import annotations

from dataclasses import dataclass, field

from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle
from dstl_core.state.restore.rocksdb import (
    Families,
    check_families,
    open_table_files,
    read_meta_header,
)
from dstl_core.storage.handle_resolver import HandleResolver


@dataclass
class HandleTables:
    """The header of a handle, and its table files."""

    handle: IncrementalRemoteKeyedStateHandle
    header: KeyedBackendHeader
    families: Families


@dataclass
class OpenTables:
    """Opens the table files of a handle once, whatever the number of ranges that are read.

    It holds the tables of the handle that was asked for last: their indexes, and no entries. The
    ranges of a handle are read one after the other, so memory does not grow with handles or ranges.
    Threads may share it; in the worst case they open files again.
    """

    resolver: HandleResolver
    registry: SerializerRegistry
    _last: HandleTables | None = field(default=None, init=False, repr=False)

    def of(self, handle: IncrementalRemoteKeyedStateHandle) -> HandleTables:
        """The tables of a handle.

        Raises:
            FormatError: The header or the end of a file is damaged, or a file is of no state.
        """
        last = self._last
        if last is None or last.handle is not handle:
            self._last = None  # two handles are never held together
            header = read_meta_header(handle, self.resolver, self.registry)
            families = open_table_files(handle, self.resolver)
            check_families(header, families)
            last = self._last = HandleTables(handle, header, families)
        return last
