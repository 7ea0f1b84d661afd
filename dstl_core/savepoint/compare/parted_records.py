"""Divides a key group that is too large for memory by key and namespace into temporary files.

Every key and namespace is in one part, and in the same part of every snapshot, so the parts can be
compared one after the other.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import IO

import numpy as np

from dstl_core.codec.columnar.keyed.byte_index import hashes_of
from dstl_core.codec.columnar.keyed.decoder import StateDecoder
from dstl_core.codec.columnar.keyed.runs import runs_of
from dstl_core.codec.columnar.keyed.sections import Section, SectionChunk, SectionChunks
from dstl_core.codec.columnar.keyed.spans import SectionScanner
from dstl_core.codec.keyed_canonical import END_OF_SECTION
from dstl_core.savepoint.read.stored_records import StateBatch
from dstl_core.state.columns.keyed_sections import in_temporary_files

_LEAST_RECORD_BYTES = 10
_SEED = 1
"""The parts are the same in every process, so that differences have the same order again."""


class PartedRecords:
    """The records of some states in one key group, in files. It is closed after use.

    Args:
        batches: The records.
        decoders: Find the keys of each state, by place, once it has records.
        key_group: The key group.
        count: Number of parts.
    """

    def __init__(
        self,
        batches: Iterable[StateBatch],
        decoders: Callable[[int, int], StateDecoder],
        key_group: int,
        count: int,
    ) -> None:
        self._decoder = decoders
        self._known: dict[int, StateDecoder] = {}
        self._key_group = key_group
        self._prefix_bytes = 1
        self._files: list[IO[bytes]] = []
        with ExitStack() as files:
            for _ in range(count):
                self._files.append(files.enter_context(tempfile.TemporaryFile(prefix="dstl-")))
            for batch in batches:
                self._add(batch, count)
            with in_temporary_files():
                for file in self._files:
                    file.flush()
            self._opened = files.pop_all()

    def _add(self, own: StateBatch, count: int) -> None:
        self._prefix_bytes = own.prefix_bytes
        if own.place not in self._known:
            self._known[own.place] = self._decoder(own.place, own.prefix_bytes)
        buckets = (hashes_of(own.scopes, _SEED) >> 32) % count
        groups = np.full(len(own.batch), self._key_group, np.int64)
        runs = runs_of(own.batch.spans, own.place, buckets, groups, count, own.prefix_bytes)
        for at in np.flatnonzero(np.diff(runs.bounds)).tolist():
            start, end = int(runs.bounds[at]), int(runs.bounds[at + 1])
            with in_temporary_files():
                self._files[at].write(runs.data.slice(start, end - start))

    def part(self, at: int) -> Iterator[StateBatch]:
        """The records of a part; its file is read once."""
        with self._files[at] as file:
            file.seek(0)
            raw = file.read() + END_OF_SECTION
        rows = len(raw) // _LEAST_RECORD_BYTES + 1
        wanted = [True] * (1 + max(self._known, default=0))
        scanner = SectionScanner(self._prefix_bytes, wanted, rows, len(raw) + 1)
        for batch in scanner.batches(_one_section(raw, self._key_group)):
            for place, own in batch.by_state():
                scopes = self._known[place].scope_ranges(own)
                yield StateBatch(place, own, scopes, self._prefix_bytes)

    def close(self) -> None:
        self._opened.close()


def _one_section(raw: bytes, key_group: int) -> SectionChunks:
    yield SectionChunk(raw, [Section(key_group, 0, len(raw), 0)])
