"""Divides a key group that is too large for memory into temporary files, by what a hash says.

Equal records are in one part, and in the same part of every snapshot, so the parts can be compared
one after the other. A part that is still too large is divided again.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import IO

import numpy as np

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.byte_index import Ranges, hashes_of
from dstl_core.codec.columnar.keyed.decoder import StateDecoder
from dstl_core.codec.columnar.keyed.runs import runs_of
from dstl_core.codec.columnar.keyed.sections import (
    Section,
    SectionChunk,
    SectionChunks,
    plain_chunks,
)
from dstl_core.codec.columnar.keyed.spans import SectionScanner
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.keyed_canonical import END_OF_SECTION
from dstl_core.savepoint.read.stored_records import StateBatch
from dstl_core.temporary_files import in_temporary_files, let_go

_LEAST_RECORD_BYTES = 10
_SEED = 1
"""The parts are the same in every process, so that differences have the same order again."""

Choice = Callable[[StateBatch], Int64s]
"""The part of each record."""


def hashes_of_scopes(batch: StateBatch) -> Int64s:
    """A hash of key, namespace and state of each record."""
    return hashes_of(batch.scopes, _SEED) + batch.place


def by_scope(count: int, seed: int = _SEED) -> Choice:
    """Puts all records of a key and namespace into one part."""
    return lambda batch: (hashes_of(batch.scopes, seed) >> 32) % count


def by_map_key(count: int) -> Choice:
    """Puts records by key, namespace and map key."""

    def choose(batch: StateBatch) -> Int64s:
        spans = batch.batch.spans
        keys = Ranges(spans[:, scan.KEY_START], spans[:, scan.KEY_END])
        return (hashes_of(keys, _SEED) >> 32) % count

    return choose


class PartedRecords:
    """The records of some states in one key group, in files. It is closed after use.

    Args:
        batches: The records.
        decoders: Find the keys of each state, by place, once it has records.
        key_group: The key group.
        count: Number of parts.
        choose: Says into which part a record goes.
    """

    def __init__(
        self,
        batches: Iterable[StateBatch],
        decoders: Callable[[int, int], StateDecoder],
        key_group: int,
        count: int,
        choose: Choice,
    ) -> None:
        self._decoder = decoders
        self._known: dict[int, StateDecoder] = {}
        self._key_group = key_group
        self._prefix_bytes = 1
        self._files: list[IO[bytes]] = []
        with ExitStack() as files:
            for _ in range(count):
                part = tempfile.TemporaryFile(prefix="dstl-")  # noqa: SIM115  # let_go closes it
                files.callback(let_go, part)
                self._files.append(part)
            for batch in batches:
                self._add(batch, count, choose)
            with in_temporary_files():
                for file in self._files:
                    file.write(END_OF_SECTION)
                    file.flush()
            self._sizes = [file.tell() for file in self._files]
            self._opened = files.pop_all()

    def _add(self, own: StateBatch, count: int, choose: Choice) -> None:
        self._prefix_bytes = own.prefix_bytes
        if own.place not in self._known:
            self._known[own.place] = self._decoder(own.place, own.prefix_bytes)
        groups = np.full(len(own.batch), self._key_group, np.int64)
        runs = runs_of(own.batch.spans, own.place, choose(own), groups, count, own.prefix_bytes)
        for at in np.flatnonzero(np.diff(runs.bounds)).tolist():
            start, end = int(runs.bounds[at]), int(runs.bounds[at + 1])
            with in_temporary_files():
                self._files[at].write(runs.data.slice(start, end - start))

    def size(self, at: int) -> int:
        return self._sizes[at]

    def part(self, at: int) -> Iterator[StateBatch]:
        """The records of a part, of one state each; its file is read once, as a whole."""
        raw = self._read(at, 0, self._sizes[at])
        self.drop(at)
        rows = len(raw) // _LEAST_RECORD_BYTES + 1
        return self._scanned(_one_section(raw, self._key_group), rows, len(raw) + 1)

    def batches(self, at: int) -> Iterator[StateBatch]:
        """The records of a part, some at a time."""
        places = [(self._key_group, 0, self._sizes[at])]
        return self._scanned(plain_chunks(lambda start, end: self._read(at, start, end), places))

    def drop(self, at: int) -> None:
        """Frees the disk of a part."""
        self._files[at].close()

    def divided(self, at: int, count: int, choose: Choice) -> PartedRecords:
        """The records of a part, divided again; its file is read once."""
        batches = self.batches(at)
        divided = PartedRecords(batches, self._decoder, self._key_group, count, choose)
        self.drop(at)
        return divided

    def _read(self, at: int, start: int, end: int) -> bytes:
        return os.pread(self._files[at].fileno(), end - start, start)

    def _scanned(self, chunks: SectionChunks, *limits: int) -> Iterator[StateBatch]:
        wanted = [True] * (1 + max(self._known, default=0))
        scanner = SectionScanner(self._prefix_bytes, wanted, *limits)
        for batch in scanner.batches(chunks):
            for place, own in batch.by_state():
                scopes = self._known[place].scope_ranges(own)
                yield StateBatch(place, own, scopes, self._prefix_bytes)

    def close(self) -> None:
        self._opened.close()


def _one_section(raw: bytes, key_group: int) -> SectionChunks:
    yield SectionChunk(raw, [Section(key_group, 0, len(raw), 0)])
