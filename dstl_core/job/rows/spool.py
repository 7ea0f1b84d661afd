"""Batches of rows that wait for their task."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from dstl_core.display import size_text
from dstl_core.temporary_files import in_temporary_files, let_go


class Spool:
    """Batches that wait, in memory and, beyond a limit, in an unnamed temporary file.

    One reader at a time reads them, as often as it likes, or once with ``drain``.

    Args:
        schema: The columns.
        memory: The bytes that stay in memory.
        folder: The folder of the file; None: the system's.
    """

    def __init__(self, schema: pa.Schema, memory: int, folder: str | None = None) -> None:
        self._schema = schema
        self._memory = memory
        self._folder = folder
        self._held: list[pa.RecordBatch] = []
        self._bytes = self._total = 0
        self._file: Any = None
        self._writer: Any = None

    @property
    def bytes(self) -> int:
        """The bytes of the rows, in memory and in the file."""
        return self._total

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows, until the first call of ``batches``.

        Raises:
            StorageError: The folder of the file is full.
        """
        size = batch.nbytes
        self._total += size
        if self._file is None and self._bytes + size <= self._memory:
            self._held.append(batch)
            self._bytes += size
            return
        with in_temporary_files(f": expected {size_text(size)} more", self._folder):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  # lives as long as the rows
                weakref.finalize(self, let_go, self._file)
                self._writer = pa.ipc.new_stream(self._file, self._schema)
            self._writer.write_batch(batch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows in the order in which they were added."""
        yield from self._held
        yield from self._in_file()

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows as ``batches``, and lets go of them."""
        self._held.reverse()
        while self._held:
            yield self._held.pop()
        yield from self._in_file()

    def _in_file(self) -> Iterator[pa.RecordBatch]:
        if self._file is None:
            return
        with in_temporary_files(folder=self._folder):
            self._writer.close()
            self._file.seek(0)  # writes what the buffer has
        with pa.ipc.open_stream(self._file) as stream:
            yield from stream
