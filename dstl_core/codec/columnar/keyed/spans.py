"""Places of records: batches of spans over one buffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.kernels.instructions import OK, STATUS_WORDS
from dstl_core.codec.columnar.keyed.sections import Section, SectionChunk, SectionChunks
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_canonical import read_state_id
from dstl_core.codec.keyed_records import read_framed_record
from dstl_core.errors import FormatError, InvariantViolation

ROWS_PER_BATCH = 16384
BYTES_PER_BATCH = 4 << 20


class Source:
    """Keeps the bytes of spans alive, and maps their addresses to positions for messages."""

    def __init__(self, data: bytes | memoryview, sections: Sequence[Section]) -> None:
        self.data = data
        self._array: npt.NDArray[Any] = np.frombuffer(data or b"\0", np.uint8)
        self.base = address_of(self._array)
        self.end = self.base + len(data)
        self.sections = sections

    def section_of(self, address: int) -> Section:
        """The section that contains an address."""
        position = address - self.base
        for section in self.sections:
            if section.start <= position <= section.end:
                return section
        raise InvariantViolation("an address lies in no section")

    def record_of(self, span: Int64s, address: int, prefix_bytes: int) -> SpanRecord:
        """The canonical bytes of a record, and the position of an address in its key or value."""
        key_start = int(span[scan.KEY_START])
        section = self.section_of(key_start)
        start = key_start - self.base - prefix_bytes - 4
        data = DataInput(bytes(self.data), start, section.end)
        return SpanRecord(data, section, address - self.base)


@dataclass(frozen=True, slots=True)
class SpanRecord:
    """A record in canonical form: ``data`` starts with it. ``position`` is a place in it."""

    data: DataInput
    section: Section
    position: int


@dataclass(frozen=True)
class SpanBatch:
    """Records of some sections.

    ``spans`` is ``[records, SPAN_WORDS]`` int64, see ``kernels.scan``; addresses point into
    ``source``.
    """

    spans: Int64s
    source: Source

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def states(self) -> Int64s:
        """The state id of each record."""
        return self.spans[:, scan.TAG] & 0xFFFF

    @property
    def key_groups(self) -> Int64s:
        return self.spans[:, scan.TAG] >> 16

    def take(self, rows: Any) -> SpanBatch:
        """Selects records by a mask, indices, or a slice."""
        return SpanBatch(np.ascontiguousarray(self.spans[rows]), self.source)

    def by_state(self) -> Iterator[tuple[int, SpanBatch]]:
        """The id of each state with its records."""
        states = self.states
        numbers = np.flatnonzero(np.bincount(states)).tolist()
        for state in numbers:
            if len(numbers) == 1:
                yield state, self
            else:
                spans = self.spans.compress(states == state, axis=0)
                yield state, SpanBatch(spans, self.source)


class SectionScanner:
    """Finds the records of the wanted states.

    Args:
        prefix_bytes: Bytes of the key group in front of a stored key.
        wanted: Whether the records of a state are wanted, by state id.
        rows: Largest number of records in a batch.
        byte_limit: A batch ends once its records have this many bytes.
    """

    def __init__(
        self,
        prefix_bytes: int,
        wanted: Sequence[bool],
        rows: int = ROWS_PER_BATCH,
        byte_limit: int = BYTES_PER_BATCH,
    ) -> None:
        self._prefix_bytes = prefix_bytes
        self._wanted = np.array([*wanted, False], np.uint8)
        self._rows = rows
        self._byte_limit = byte_limit
        self._resume = np.zeros(scan.RESUME_WORDS, np.int64)
        self._status = np.zeros(STATUS_WORDS, np.int64)

    def batches(self, chunks: SectionChunks) -> Iterator[SpanBatch]:
        """Yields the records of all chunks, in order.

        Raises:
            FormatError: A length or id is wrong. Records before it are yielded first.
        """
        unread: int | None = None
        try:
            chunk = next(chunks)
            while True:
                source = Source(chunk.data, chunk.sections)
                yield from self._scan(source, chunk)
                code = int(self._status[0])
                if code == scan.NEED_INPUT:
                    unread = int(self._resume[scan.RESUME_AT]) - source.base
                else:
                    unread = None
                chunk = chunks.send(unread)
        except StopIteration:
            return

    def _scan(self, source: Source, chunk: SectionChunk) -> Iterator[SpanBatch]:
        table = np.array(
            [(source.base + s.start, source.base + s.end, s.key_group) for s in chunk.sections],
            np.int64,
        )
        resume = self._resume
        resume[scan.RESUME_SECTION] = 0
        resume[scan.RESUME_AT] = source.base if chunk.resumed else 0
        if not chunk.resumed:
            resume[scan.RESUME_STATE] = scan.NO_STATE
        while True:
            # Arrow's pool returns the same pages again once the caller has released a batch.
            room = pa.allocate_buffer(self._rows * scan.SPAN_BYTES)
            spans = np.frombuffer(room, np.int64).reshape(self._rows, scan.SPAN_WORDS)
            count = scan.scan_sections(
                address_of(table),
                len(table),
                source.end,
                self._prefix_bytes,
                len(self._wanted) - 1,
                address_of(self._wanted),
                address_of(spans),
                self._rows,
                self._byte_limit,
                address_of(resume),
                address_of(self._status),
            )
            if count:
                yield SpanBatch(spans[:count], source)
            code = int(self._status[0])
            if code in (OK, scan.NEED_INPUT):
                return
            if code != scan.BATCH_FULL:
                self._refuse(source, code)

    def _refuse(self, source: Source, code: int) -> None:
        """Raises the record-wise decoder's error for the place where the scan stopped."""
        at = int(self._resume[scan.RESUME_AT]) - source.base
        section = source.sections[int(self._resume[scan.RESUME_SECTION])]
        data = DataInput(bytes(source.data), at, section.end)
        refusal = Refusal(code, int(self._status[1]) - source.base + section.origin)
        try:
            if int(self._resume[scan.RESUME_STATE]) == scan.NO_STATE:
                read_state_id(data, len(self._wanted) - 1)
            read_framed_record(data, self._prefix_bytes, section.key_group)
        except FormatError as error:
            raise error.moved(section.origin) from refusal
        raise InvariantViolation("a kernel refused bytes that the decoder accepts") from refusal


class Refusal(Exception):
    """Status code of a kernel that refused bytes; the cause of the raised error."""

    def __init__(self, code: int, offset: int) -> None:
        super().__init__(f"code {code} at byte {offset}")
        self.code = code
        self.offset = offset
