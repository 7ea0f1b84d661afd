"""Assembles runs of records: the sections of key groups, and whole streams of keyed state."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.byte_index import ByteIndex, Ranges, hashes_of
from dstl_core.codec.columnar.keyed.sections import Section, SectionChunk, SectionChunks
from dstl_core.codec.columnar.keyed.spans import SectionScanner, SpanBatch
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.scratch import scratch_bytes
from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.keyed_canonical import END_OF_SECTION, write_section
from dstl_core.codec.snappy_frames import (
    PIECE_BYTES,
    compress_together,
    compressed_pieces,
    decompress_frames,
)
from dstl_core.codec.state_meta import (
    KeyedBackendHeader,
    KeyedStateType,
    StateMetaInfoSnapshot,
    write_keyed_header,
)
from dstl_core.display import size_text
from dstl_core.errors import DuplicateKeyError, InvariantViolation, StorageError
from dstl_core.model.handle import KeyGroupRangeOffsets
from dstl_core.model.key_group import KeyGroupRange, key_group_prefix_bytes
from dstl_core.state.columns.run_places import RunPlaces
from dstl_core.state.columns.state_columns import is_kind
from dstl_core.state.columns.stored_hashes import StoredHashes
from dstl_core.temporary_files import in_temporary_files, let_go

WRITE_MEMORY = 128 << 20
"""Default for the bytes of records in memory; more records go to a temporary file."""
StreamSection = bytes | Iterable[bytes | memoryview]
"""The section of a key group, whole or in pieces."""
LARGE_SECTION_BYTES = 64 << 20
"""Bytes of a key group, not compressed, up to which it is put together in memory."""
_CHECKED_BYTES = 4 << 20
_PACKED_BYTES = 1 << 20
"""Bytes of records of one state and key group that are packed together in the temporary file."""
_LEAST_PACKED_BYTES = 4 << 10
"""Smaller ones are kept as they are: to begin would take longer than to pack them."""
_PIECE_BYTES = 400
"""What a piece in memory takes beside its bytes: many pieces of few bytes are a lot."""
_POSITION_BITS, _SIZE_BITS = 48, 32
_ZSTD = pa.Codec("zstd", compression_level=1)
_DELIMITER = b","
_SCAN_ROWS = 1 << 18
_LEAST_RECORD_BYTES = 11
"""Size of two lengths, a key group, a key and a namespace."""


class _PlaceInFile(NamedTuple):
    """Bytes in the temporary file."""

    position: int
    size: int


Piece = tuple[int, int, memoryview | _PlaceInFile, int]
"""State id, sequence number, bytes or their place in the file, and the size of the records: fewer
bytes are packed.
"""


@dataclass(frozen=True)
class StateRuns:
    """Records of one state, divided by key group.

    The records of ``key_groups[i]`` are ``data[bounds[i] : bounds[i + 1]]``: a whole run, or
    nothing.
    """

    state_id: int
    key_groups: KeyGroupRange
    data: pa.Buffer
    bounds: Int64s


class KeyedSections:
    """Collects the runs of some key groups with bounded memory. One thread collects; after that,
    several may take sections.

    Args:
        header: The states, by id.
        key_groups: The key groups that runs may have.
        max_parallelism: Number of key groups of the operator.
        memory: Bytes to keep in memory.
        check_duplicates: Whether to look for keys that occur several times in one state: lists are
            joined, one of several equal timers is kept, and other states raise. Without the check,
            Flink keeps the last value of such a key.
        folder: The folder of temporary files; None: the system's.
    """

    def __init__(
        self,
        header: KeyedBackendHeader,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        *,
        memory: int = WRITE_MEMORY,
        check_duplicates: bool = True,
        folder: str | None = None,
    ) -> None:
        self.header = header
        self.key_groups = key_groups
        self.prefix_bytes = key_group_prefix_bytes(max_parallelism)
        self.memory = memory
        self.check_duplicates = check_duplicates
        self._pieces: dict[int, list[Piece]] = {}
        self._placed: dict[int, list[Piece]] = {}
        self._folder = folder
        self._places = RunPlaces(folder)
        """Of each piece in the file: state and position, sizes, number."""
        self._held = self._packed_held = 0
        self._spilled: IO[bytes] | None = None
        self._count = 0

    def __enter__(self) -> KeyedSections:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases memory and the temporary file."""
        self._pieces.clear()
        self._placed.clear()
        self._places.close()
        if self._spilled is not None:
            let_go(self._spilled)

    # ------------------------------------------------------------------------------ collecting

    def check_room(self, size: int) -> None:
        """Checks that records of this size have room, before the first one is read.

        Raises:
            StorageError: They are more than fits into memory and the temporary folder.
        """
        folder = self._folder or tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
        if size > self.memory and size > free:
            raise StorageError(
                f"The folder for temporary files is too small: expected {size_text(size)} free for "
                f"records that do not fit into {size_text(self.memory)} of memory, got "
                f"{size_text(free)} in {folder}; set TMPDIR to a folder on a larger disk."
            )

    def add(self, runs: StateRuns) -> None:
        data = memoryview(runs.data)
        bounds = runs.bounds
        for at in np.flatnonzero(np.diff(bounds)):
            start, end = int(bounds[at]), int(bounds[at + 1])
            key_group = runs.key_groups.start_key_group + int(at)
            self._add(runs.state_id, key_group, data[start:end])
        self._spill_if_full()

    def add_run(self, state_id: int, key_group: int, data: bytes | memoryview) -> None:
        """Adds one run, or several, of a state and key group."""
        if len(data):
            self._add(state_id, key_group, memoryview(data))
            self._spill_if_full()

    def _add(self, state_id: int, key_group: int, data: memoryview) -> None:
        if not self.key_groups.contains(key_group):
            raise InvariantViolation(f"key group {key_group} is outside {self.key_groups}")
        self._pieces.setdefault(key_group, []).append((state_id, self._count, data, len(data)))
        self._count += 1
        self._held += len(data) + _PIECE_BYTES

    def _spill_if_full(self) -> None:
        if self._held + self._packed_held <= self.memory:
            return
        with in_temporary_files(f": expected {size_text(self._held)} more", self._folder):
            self._spill()

    def _spill(self) -> None:
        """Packs the records in memory. Some stay there, up to half of it."""
        for key_group, pieces in self._pieces.items():
            placed = self._placed.setdefault(key_group, [])
            for state_id, number, raw in _blocks(pieces):
                data = self._kept(_packed(raw))
                if isinstance(data, memoryview):
                    placed.append((state_id, number, data, len(raw)))
                else:
                    sizes = data.size << _SIZE_BITS | len(raw)
                    at = state_id << _POSITION_BITS | data.position
                    self._places.add(key_group, at, sizes, number)
        if self._spilled is not None:
            self._spilled.flush()
        self._places.flush()
        self._pieces.clear()
        self._held = 0

    def _kept(self, packed: bytes) -> memoryview | _PlaceInFile:
        if self._packed_held + len(packed) <= self.packed_memory:
            self._packed_held += len(packed) + _PIECE_BYTES
            return memoryview(packed)
        if self._spilled is None:
            self._spilled = tempfile.TemporaryFile(  # noqa: SIM115  # see close
                prefix="dstl-", dir=self._folder
            )
        position = self._spilled.tell()
        self._spilled.write(packed)
        return _PlaceInFile(position, len(packed))

    @property
    def packed_memory(self) -> int:
        """Bytes of packed records that memory keeps, while others are in the temporary file."""
        return self.memory // 2

    @property
    def packed_bytes(self) -> int:
        """Bytes of all records, if they were packed."""
        written = 0 if self._spilled is None else self._spilled.tell()
        blocks = chain.from_iterable(map(_blocks, self._pieces.values()))
        return self._packed_held + written + sum(len(_packed(raw)) for _, _, raw in blocks)

    # -------------------------------------------------------------------------------- sections

    def section(self, key_group: int) -> bytes:
        """The section of a key group in the form of a stream; empty without records.

        Raises:
            DuplicateKeyError: A key has two values in one state.
        """
        section = self.section_pieces(key_group)
        return section if isinstance(section, bytes) else b"".join(section)

    def section_pieces(self, key_group: int) -> bytes | list[bytes]:
        """As ``section``. A compressed one comes in pieces of about a megabyte: each is made in the
        cache of a core, and nobody puts them together.

        Raises:
            DuplicateKeyError: A key has two values in one state.
        """
        raw = [self.raw_section(key_group)] if self.check_duplicates else self._parts(key_group)
        if not self.header.compressed:
            return b"".join(raw)
        if sum(map(len, raw)) > PIECE_BYTES:
            return [*compressed_pieces(raw)]
        return bytes(compress_together(raw, scratch_bytes))

    def stream_section(self, key_group: int) -> StreamSection:
        """As ``section``; a large one comes in pieces, of which memory holds one.

        Raises:
            DuplicateKeyError: A key has two values in one state.
        """
        pieces = self._ordered(key_group)
        is_large = sum(piece[3] for piece in pieces) > LARGE_SECTION_BYTES
        if not is_large or (self.check_duplicates and not self._are_distinct(pieces, key_group)):
            return self.section(key_group)
        if self._spilled is not None:
            self._spilled.flush()
        parts = chain(map(self._bytes, pieces), [END_OF_SECTION])
        return compressed_pieces(parts) if self.header.compressed else parts

    def _are_distinct(self, pieces: Sequence[Piece], key_group: int) -> bool:
        """Whether no key comes twice in a state, by hashes: False may be a mistake."""
        if self._spilled is not None:
            self._spilled.flush()
        for _, of_state in groupby(pieces, key=itemgetter(0)):
            with in_temporary_files(folder=self._folder), StoredHashes(self._folder) as hashes:
                for raw in _together(map(self._bytes, of_state)):
                    hashes.add(hashes_of(_stored_keys(self._records(raw, key_group))))
                if not hashes.are_distinct():
                    return False
        return True

    def _ordered(self, key_group: int) -> list[Piece]:
        held = chain(self._placed.get(key_group, ()), self._pieces.get(key_group, ()))
        every = chain(held, self._pieces_in_file(key_group))
        return sorted(every, key=lambda piece: piece[:2])

    def _pieces_in_file(self, key_group: int) -> Iterator[Piece]:
        for word, sizes, number in self._places.of(key_group):
            state_id, position = divmod(word, 1 << _POSITION_BITS)
            stored, size = divmod(sizes, 1 << _SIZE_BITS)
            yield state_id, number, _PlaceInFile(position, stored), size

    def raw_section(self, key_group: int) -> bytes:
        """As ``section``, not compressed."""
        raw = b"".join(self._parts(key_group))
        if self.check_duplicates and raw:
            raw = self._checked(raw, key_group, self._ordered(key_group))
        return raw

    def _parts(self, key_group: int) -> list[bytes | memoryview]:
        """What a section consists of, not compressed; nothing without records."""
        pieces = self._ordered(key_group)
        if not pieces:
            return []
        if self._spilled is not None:
            self._spilled.flush()
        return [*map(self._bytes, pieces), END_OF_SECTION]

    def _bytes(self, piece: Piece) -> bytes | memoryview:
        _, _, data, size = piece
        if isinstance(data, _PlaceInFile):
            assert self._spilled is not None  # it has places
            data = memoryview(os.pread(self._spilled.fileno(), data.size, data.position))
        return data if len(data) == size else memoryview(_ZSTD.decompress(data, size))

    def _checked(self, raw: bytes, key_group: int, pieces: list[Piece]) -> bytes:
        repeated = {}
        records = self._records(raw, key_group)
        state_ids = {piece[0] for piece in pieces}
        for state_id in state_ids:
            meta = self.header.states[state_id]
            is_only = len(state_ids) == 1
            own = records if is_only else records.take(records.states == state_id)
            index = ByteIndex(_stored_keys(own))
            if len(index) == len(own):
                continue
            if meta.is_queue:
                firsts = own.take(index.firsts)  # Flink's queue holds each timer once
                repeated[state_id] = [(key, b"") for key in _keys(firsts, self.prefix_bytes)]
            elif is_kind(meta, KeyedStateType.LIST):
                repeated[state_id] = _joined_lists(own, index, self.prefix_bytes)
            else:
                raise _duplicate(meta, key_group, index)
        if not repeated:
            return raw
        return self._rewritten(pieces, repeated)

    def _records(self, raw: bytes, key_group: int) -> SpanBatch:
        rows = min(_SCAN_ROWS, len(raw) // _LEAST_RECORD_BYTES + 1)
        scanner = SectionScanner(
            self.prefix_bytes, [True] * len(self.header.states), rows, len(raw) + 1
        )
        batches = list(scanner.batches(_whole(raw, key_group)))
        return SpanBatch(np.concatenate([each.spans for each in batches]), batches[0].source)

    def _rewritten(
        self, pieces: list[Piece], repeated: dict[int, list[tuple[bytes, bytes]]]
    ) -> bytes:
        """The section with replaced records for some states."""
        parts: list[bytes | memoryview] = []
        for state_id, group in groupby(pieces, key=lambda piece: piece[0]):
            if state_id in repeated:
                parts.append(
                    write_section([(state_id, repeated[state_id])])[: -len(END_OF_SECTION)]
                )
            else:
                parts += map(self._bytes, group)
        return b"".join([*parts, END_OF_SECTION])

    def stream(self, key_groups: KeyGroupRange | None = None) -> KeyedStream:
        """The header and the sections of some key groups; by default of all."""
        own = key_groups or self.key_groups
        return KeyedStream(self.header, own, self.prefix_bytes, map(self.stream_section, own))


class KeyedStream:
    """A whole stream of keyed state, built while it is iterated. It can be iterated once.

    ``offsets``, ``size`` and ``is_empty`` are known after that.

    Args:
        header: Its states.
        key_groups: Its key groups.
        prefix_bytes: Bytes of a key group.
        sections: One for each key group, in order, compressed as the header says; empty for key
            groups without records. One that is too large for memory comes in pieces.
        has_order: Whether pieces are runs whose records come in the order of their keys.
    """

    def __init__(
        self,
        header: KeyedBackendHeader,
        key_groups: KeyGroupRange,
        prefix_bytes: int,
        sections: Iterable[StreamSection],
        *,
        has_order: bool = False,
    ) -> None:
        self.header = header
        self.key_groups = key_groups
        self.prefix_bytes = prefix_bytes
        self._sections = sections
        self._has_order = has_order
        self._offsets: list[int] = []
        self.size = 0
        self.is_empty = True

    def raw_sections(self) -> Iterator[tuple[int, bytes]]:
        """Yields each key group that has records with its section, not compressed; instead of the
        stream. A large one comes in several sections, if its records are in order.
        """
        for key_group, pieces in zip(self.key_groups, self._sections, strict=True):
            if self._has_order and not isinstance(pieces, bytes):
                for run in pieces:
                    if run != END_OF_SECTION:
                        yield key_group, b"".join([run, END_OF_SECTION])
                continue
            section = pieces if isinstance(pieces, bytes) else b"".join(pieces)
            if section:
                is_compressed = self.header.compressed
                raw = decompress_frames(section, 0, len(section)) if is_compressed else section
                yield key_group, raw

    def __iter__(self) -> Iterator[bytes]:
        out = DataOutput()
        write_keyed_header(out, self.header)
        header = out.to_bytes()
        self.size = len(header)
        yield header
        for section in self._sections:
            start = self.size
            for piece in [section] if isinstance(section, bytes) else section:
                if piece:
                    self.is_empty = False
                    self.size += len(piece)
                    yield bytes(piece)
            self._offsets.append(start if self.size > start else 0)

    @property
    def offsets(self) -> KeyGroupRangeOffsets:
        if len(self._offsets) != len(self.key_groups):
            raise InvariantViolation("the stream was not written")
        return KeyGroupRangeOffsets(self.key_groups, tuple(self._offsets))


def _blocks(pieces: Sequence[Piece]) -> Iterator[tuple[int, int, bytes]]:
    """The records of a key group in memory as blocks of one state: its id, the first sequence
    number, and the records.
    """
    in_order = sorted(pieces, key=lambda piece: piece[:2])
    for state_id, own in groupby(in_order, key=itemgetter(0)):
        held: list[memoryview] = []
        size = first = 0
        for _, number, data, _ in own:
            assert isinstance(data, memoryview)  # it is in memory
            first = first if held else number
            held.append(data)
            size += len(data)
            if size >= _PACKED_BYTES:
                yield state_id, first, b"".join(held)
                held, size = [], 0
        if held:
            yield state_id, first, b"".join(held)


def _packed(raw: bytes) -> bytes:
    """Records as they stand in the temporary file."""
    if len(raw) < _LEAST_PACKED_BYTES:
        return raw
    data: bytes = _ZSTD.compress(raw, asbytes=True)
    return data if len(data) < len(raw) else raw


def _together(parts: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Runs one after the other as sections, in pieces of bounded size."""
    held: list[bytes | memoryview] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= _CHECKED_BYTES:
            yield b"".join([*held, END_OF_SECTION])
            held, size = [], 0
    if held:
        yield b"".join([*held, END_OF_SECTION])


def _whole(raw: bytes, key_group: int) -> SectionChunks:
    yield SectionChunk(raw, [Section(key_group, 0, len(raw), 0)])


def _stored_keys(records: SpanBatch) -> Ranges:
    return Ranges(records.spans[:, scan.KEY_START], records.spans[:, scan.KEY_END])


def _duplicate(meta: StateMetaInfoSnapshot, key_group: int, index: ByteIndex) -> DuplicateKeyError:
    more = len(index.numbers) - len(index)
    return DuplicateKeyError(
        f"State {meta.name!r} has {more} rows too many in key group {key_group}: a key comes more "
        f"than once; keep one row per key (and window, and map key)."
    )


def _joined_lists(
    records: SpanBatch, index: ByteIndex, prefix_bytes: int
) -> list[tuple[bytes, bytes]]:
    """One record per key, with the elements of all records of the key."""
    data = memoryview(records.source.data)
    places = records.spans - records.source.base
    values: list[list[bytes]] = [[] for _ in range(len(index))]
    for row, number in enumerate(index.numbers):
        start, end = places[row, scan.VALUE_START], places[row, scan.VALUE_END]
        values[number].append(bytes(data[start:end]))
    firsts = records.take(index.firsts)
    return list(zip(_keys(firsts, prefix_bytes), map(_DELIMITER.join, values), strict=True))


def _keys(records: SpanBatch, prefix_bytes: int) -> Iterator[bytes]:
    """The stored keys with their key group, without marks."""
    data = memoryview(records.source.data)
    places = records.spans - records.source.base
    for start, end in places[:, [scan.KEY_START, scan.KEY_END]].tolist():
        key = bytearray(data[start - prefix_bytes : end])
        key[0] &= 0x7F
        yield bytes(key)
