"""Unpacks the data blocks of a table file, many at a time: the compiled ``SstFile.blocks``.

Whatever a kernel refuses goes to the record-wise code, whose error says what is wrong.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import xxhash

from dstl_core.codec.columnar.kernels.tables.table_blocks import (
    BLOCK_END,
    BLOCK_START,
    ENTRIES,
    ENTRY_WORDS,
    INDEX_WORDS,
    KEY_BYTES,
    KEY_END,
    KEY_START,
    MEASURED_WORDS,
    TRAILER_BYTES,
    measure_blocks,
    measure_index,
    unpack_blocks,
    unpack_index,
)
from dstl_core.codec.columnar.keyed.packed_blocks import (
    checksum_words,
    checksums,
    refused_payloads,
)
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.scratch import SPARE_BYTES, scratch, scratch_words
from dstl_core.codec.snappy_frames import MOST_TIMES
from dstl_core.codec.sst.block import (
    BLOCK_TRAILER_BYTES,
    XXH3_LAST_BYTE,
    block_entries,
    keys_limit,
    keys_too_large,
    unpack_block,
)
from dstl_core.codec.sst.file import SstFile, check_index_size
from dstl_core.errors import FormatError, InvariantViolation

_CRC32C, _XXH3 = 1, 4
_NONE, _SNAPPY = 0, 1
_TOO_LARGE = 1 << 40
_RUNS_AHEAD = 16
"""Blocks of a store that are read side by side."""
MAX_BLOCKS_BYTES = 1 << 30
"""Largest unpacked size of the blocks of one read together, unless 64 times their size in the file
is more: Zlib and ZSTD unpack a few bytes to a whole block.
"""
_MOST_TIMES_TOGETHER = 64
_KEYS_KNOWN = 256
Bytes = npt.NDArray[np.uint8]
_NOTHING = -1, -1, b""
_KEPT_BYTES = 64 << 10


@dataclass(frozen=True)
class TableEntries:
    """Entries in the order of their keys, ``[entries, ENTRY_WORDS]``; ``kept`` has their bytes."""

    lines: Int64s
    kept: list[Any]
    firsts: Int64s | None = None
    """The first entry of each block, and the number of all entries, if blocks were asked for."""

    def blocks_of(self, rows: Int64s) -> Int64s:
        """The places of the blocks of some entries among those that were asked for."""
        assert self.firsts is not None
        places: Int64s = np.searchsorted(self.firsts, rows, "right")
        return places - 1

    def __len__(self) -> int:
        return len(self.lines)

    def tagged_key(self, row: int) -> bytes:
        """A key with its sequence number and kind."""
        start, end = int(self.lines[row, KEY_START]), int(self.lines[row, KEY_END])
        return ctypes.string_at(start, end - start + TRAILER_BYTES)

    def key(self, row: int) -> bytes:
        start, end = int(self.lines[row, KEY_START]), int(self.lines[row, KEY_END])
        return ctypes.string_at(start, end - start)

    def between(self, start: bytes, stop: bytes | None) -> TableEntries:
        every = range(len(self.lines))
        first = bisect_left(every, start, key=self.key)
        last = len(every) if stop is None else bisect_left(every, stop, key=self.key)
        return TableEntries(self.lines[first:last], self.kept)


@dataclass(frozen=True)
class StoredBlocks:
    """Blocks of a table file as they are stored, from the offset ``begin`` on."""

    table: TableReader
    begin: int
    raw: bytes

    def entries(self, start: bytes, stop: bytes | None, least_key: int) -> TableEntries:
        """The entries of those blocks that may hold keys in ``[start, stop)``.

        Args:
            start: First key.
            stop: End of the keys; None means up to the end of the file.
            least_key: Smallest number of bytes of a key.

        Raises:
            FormatError: The file is damaged.
        """
        return self.table.entries(start, stop, least_key, self)

    def part(self, start: int, end: int) -> memoryview:
        """The bytes ``[start, end)`` of the file."""
        return memoryview(self.raw)[start - self.begin : end - self.begin]


class TableReader:
    """Reads the entries of one table file.

    Raises:
        FormatError: The index is damaged.
    """

    def __init__(self, file: SstFile) -> None:
        self.file = file
        self._begin: Callable[[int, int], None] | None = getattr(file.read, "begin", None)
        self._key_bytes = 0
        self._last: tuple[int, int, bytes] = _NOTHING
        """The last bytes that were read, if they are a small block: it may have keys of many parts.
        """
        parts = [self._unpacked_index(payload) for payload in file.index_payloads()]
        self._keys = [keys for _, keys in parts]
        self.index = np.concatenate([np.empty((0, INDEX_WORDS), np.int64), *(p for p, _ in parts)])
        """A line of ``INDEX_WORDS`` words for each data block."""
        starts, ends = self.index[:, BLOCK_START], self.index[:, BLOCK_END]
        befores = np.concatenate([np.zeros(1, np.int64), ends])[:-1]
        is_wrong = (starts < befores) | (ends > file.data_limit)
        is_wrong |= (ends < starts) | (ends - starts < BLOCK_TRAILER_BYTES)
        if is_wrong.any():
            self._refuse_index()
        file.check_bounds(self.bounds)
        self._first_block = lru_cache(_KEYS_KNOWN)(partial(bisect_left, self.bounds))
        """The number of the first block that may hold a key. Parts that follow each other ask for
        the same keys.
        """

    def _unpacked_index(self, payload: bytes) -> tuple[Int64s, Bytes]:
        raw = np.frombuffer(payload or b"\0", np.uint8)
        at = address_of(raw)
        end = at + len(payload)
        has_sizes = not self.file.delta_index
        measured = np.zeros(MEASURED_WORDS, np.int64)
        if not measure_index(at, end, has_sizes, address_of(measured)):
            self._refuse_index()
        self._key_bytes += int(measured[KEY_BYTES])
        check_index_size(self._key_bytes, self.file.data_limit)
        keys = np.empty(max(1, int(measured[KEY_BYTES])), np.uint8)
        lines = np.empty((int(measured[ENTRIES]), INDEX_WORDS), np.int64)
        key_trailer = 0 if self.file.user_key_index else TRAILER_BYTES
        room = address_of(keys), address_of(lines)
        if not unpack_index(at, end, has_sizes, key_trailer, BLOCK_TRAILER_BYTES, *room):
            self._refuse_index()
        return lines, keys

    def _refuse_index(self) -> None:
        _ = self.file.index
        raise InvariantViolation("a kernel refused an index that the decoder accepts")

    @property
    def bounds(self) -> Sequence[bytes]:
        """For each data block, a key at or above its last one, and below the next block."""
        return _Bounds(self.index)

    def entries_of(self, blocks: Int64s, least_key: int) -> TableEntries:
        """The entries of some blocks.

        Args:
            blocks: Their numbers, ascending, at least one.
            least_key: Smallest number of bytes of a key.

        Raises:
            FormatError: The file is damaged.
        """
        places = self.index[blocks]
        raw = memoryview(b"".join(self._runs(places)))
        together = places.copy()
        np.cumsum(places[:, BLOCK_END] - places[:, BLOCK_START], out=together[:, BLOCK_END])
        together[0, BLOCK_START] = 0
        together[1:, BLOCK_START] = together[:-1, BLOCK_END]
        return self._entries(raw, together, places[:, BLOCK_START], least_key)

    def _runs(self, places: Int64s) -> Iterator[bytes]:
        """The bytes of blocks; what follows each other is read at once."""
        firsts = np.flatnonzero(places[1:, BLOCK_START] != places[:-1, BLOCK_END]) + 1
        starts = places[[0, *firsts], BLOCK_START].tolist()
        runs = list(zip(starts, places[[*firsts - 1, -1], BLOCK_END].tolist(), strict=True))
        for at, (start, end) in enumerate(runs):
            if self._begin is not None:
                for later in runs[at : at + _RUNS_AHEAD]:
                    self._begin(*later)
            yield self.file.read(start, end)

    def read(self, start: bytes, stop: bytes | None) -> StoredBlocks | None:
        """Reads the blocks that may hold keys in ``[start, stop)``; None if there are none."""
        places = self.places(start, stop)
        if not len(places):
            return None
        begin, end = int(places[0, BLOCK_START]), int(places[-1, BLOCK_END])
        *place, raw = self._last
        if place != [begin, end]:
            raw = self.file.read(begin, end)
            is_kept = len(places) == 1 and end - begin <= _KEPT_BYTES
            self._last = (begin, end, raw) if is_kept else _NOTHING
        return StoredBlocks(self, begin, raw)

    def begin(self, start: bytes, stop: bytes | None) -> None:
        """Says that ``read`` will be asked for these blocks soon, where ``reads_ahead``."""
        if self._begin is None:
            return
        places = self.places(start, stop)
        if len(places):
            place = int(places[0, BLOCK_START]), int(places[-1, BLOCK_END])
            if self._last[:2] != place:
                self._begin(*place)

    @property
    def reads_ahead(self) -> bool:
        """Whether the store of the file reads several ranges at the same time."""
        return self._begin is not None

    def entries(
        self, start: bytes, stop: bytes | None, least_key: int, stored: StoredBlocks
    ) -> TableEntries:
        places = self.places(start, stop)
        if not len(places):
            return TableEntries(np.empty((0, ENTRY_WORDS), np.int64), [])
        begin = int(places[0, BLOCK_START])
        raw = stored.part(begin, int(places[-1, BLOCK_END]))
        moved = places.copy()
        moved[:, BLOCK_START : BLOCK_END + 1] -= begin
        entries = self._entries(raw, moved, places[:, BLOCK_START], least_key)
        self.file.check_count(len(entries), start, stop)
        for row in (0, len(entries) - 1) if len(entries) else ():
            self.file.check_key(entries.key(row))
        return replace(entries, firsts=None)

    def stored_bytes(self, start: bytes, stop: bytes | None) -> int:
        """Size of these blocks in the file."""
        places = self.places(start, stop)
        return int(places[-1, BLOCK_END] - places[0, BLOCK_START]) if len(places) else 0

    def places(self, start: bytes, stop: bytes | None) -> Int64s:
        """The lines of the index for these blocks."""
        if not self.file.may_hold(start, stop):
            return self.index[:0]
        last = len(self.index)
        if stop is not None:
            last = min(last, self._first_block(stop) + 1)
        return self.index[self._first_block(start) : last]

    def keys_between(
        self, start: bytes, stop: bytes | None, step: int
    ) -> Iterator[tuple[bytes, int]]:
        """Some of the last keys of these blocks (or keys after them and before the next block), one
        about every ``step`` bytes of the file, with the bytes since the one before.
        """
        places = self.places(start, stop)
        if not len(places):
            return
        sizes = places[:, BLOCK_END] - places[0, BLOCK_START]
        rows = np.flatnonzero(np.diff(sizes // step, prepend=0))
        bounds, before = _Bounds(places), 0
        for row in rows.tolist():
            size = int(sizes[row])
            yield bounds[row], size - before
            before = size

    def _unpacked(self, raw: memoryview, places: Int64s, offsets: Int64s) -> tuple[Bytes, Int64s]:
        """Where the payload of each block starts and ends in memory, ``[blocks, 2]``, and memory
        with those that were packed. Others stay in ``raw``, if ``SPARE_BYTES`` are behind them.

        Args:
            raw: The blocks.
            places: Lines of an index whose places are those in ``raw``.
            offsets: Where the blocks start in the file.
        """
        data = np.frombuffer(raw, np.uint8)
        starts = places[:, BLOCK_START]
        stops = places[:, BLOCK_END] - BLOCK_TRAILER_BYTES
        kinds = data[stops]
        sizes = stops - starts
        is_packed = kinds == _SNAPPY
        if is_packed.any():
            declared = _declared_sizes(data, starts)
            is_packed &= declared <= MOST_TIMES * sizes
            sizes = np.where(is_packed, declared, sizes)
        is_known = (is_packed | (kinds == _NONE)) & self._are_whole(raw, starts, stops)
        others: dict[int, bytes] = {}
        limit = max(MAX_BLOCKS_BYTES, _MOST_TIMES_TOGETHER * len(raw))
        held = 0
        for row in np.flatnonzero(~is_known).tolist():
            block = bytes(raw[int(starts[row]) : int(stops[row]) + BLOCK_TRAILER_BYTES])
            payload = unpack_block(block, self.file.checksum_type, int(offsets[row]))
            others[row], sizes[row] = payload, len(payload)
            held += len(payload)
            if held > limit:
                raise FormatError(
                    "The blocks of a table file are too large together",
                    offset=int(offsets[row]),
                    expected=f"<= {limit} bytes unpacked",
                    got=f"{held} up to this one",
                )
        is_packed &= is_known
        rows = np.flatnonzero(is_packed | ~is_known | (stops + SPARE_BYTES > len(raw)))
        moved = sizes[rows]
        highs = np.cumsum(moved)
        room = scratch(int(moved.sum()) + SPARE_BYTES)
        payloads = np.stack([starts, stops], 1) + address_of(data)
        payloads[rows] = np.stack([highs - moved, highs], 1) + address_of(room)
        targets = np.stack([highs - moved, highs], 1)
        packed = is_packed[rows]
        unpacked = rows[packed]
        stored = np.stack([starts[unpacked], stops[unpacked]], 1)
        for at in refused_payloads(data, stored, room, targets[packed]):
            row = int(unpacked[at])
            block = bytes(raw[int(starts[row]) : int(stops[row]) + BLOCK_TRAILER_BYTES])
            _refuse_payload(block, int(offsets[row]))
        # These come last: a payload that is unpacked may change bytes behind it.
        for row, (low, high) in zip(rows[~packed].tolist(), targets[~packed].tolist(), strict=True):
            room.data[low:high] = others.get(row, raw[int(starts[row]) : int(stops[row])])
        return room, payloads

    def _are_whole(self, raw: memoryview, starts: Int64s, stops: Int64s) -> Any:
        """Whether the checksum of each block is right; none of them for types that neither RocksDB
        nor dstl writes by itself.
        """
        data = np.frombuffer(raw, np.uint8)
        if self.file.checksum_type == _XXH3:
            of_bytes = xxhash.xxh3_64_intdigest
            places = zip(starts.tolist(), stops.tolist(), strict=True)
            digests = np.array([of_bytes(raw[at:to]) for at, to in places], np.uint64)
            digests ^= data[stops].astype(np.uint64) * np.uint64(XXH3_LAST_BYTE)
            known = digests.astype(np.uint32)
        elif self.file.checksum_type == _CRC32C:
            known = checksums(raw, starts, stops + 1)
        else:
            return np.zeros(len(starts), np.bool_)
        return known == checksum_words(raw)[stops + 1]

    def _entries(
        self, raw: memoryview, places: Int64s, offsets: Int64s, least_key: int
    ) -> TableEntries:
        """The entries of blocks. The arguments are those of ``_unpacked``."""
        room, payloads = self._unpacked(raw, places, offsets)
        measured = np.zeros(MEASURED_WORDS, np.int64)
        firsts = np.empty(len(payloads) + 1, np.int64)
        place, results = (address_of(payloads), len(payloads)), (firsts, measured)
        wrong = measure_blocks(*place, least_key, *map(address_of, results))
        if wrong >= 0:
            start, end = payloads[wrong].tolist()
            payload = ctypes.string_at(start, end - start)
            _refuse_block(payload, int(offsets[wrong]), least_key)
        stored = int((payloads[:, 1] - payloads[:, 0]).sum())
        limit = max(MAX_BLOCKS_BYTES, keys_limit(stored))
        if int(measured[KEY_BYTES]) > limit:
            raise keys_too_large(int(offsets[0]), limit)
        keys = scratch(int(measured[KEY_BYTES]) + SPARE_BYTES)
        lines = scratch_words(int(measured[ENTRIES]), ENTRY_WORDS)
        wrong = unpack_blocks(*place, address_of(keys), address_of(lines))
        if wrong >= 0:
            raise FormatError(
                "The entries of a table file are not in order", offset=int(offsets[wrong])
            )
        return TableEntries(lines, [raw, room, keys], firsts)


class _Bounds(Sequence[bytes]):
    """The keys of lines of an index."""

    def __init__(self, lines: Int64s) -> None:
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, at: int) -> bytes: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[bytes]: ...

    def __getitem__(self, at: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(at, slice):
            return _Bounds(self._lines[at])
        start, end = self._lines[at, :BLOCK_START].tolist()
        return ctypes.string_at(start, end - start)


def _declared_sizes(data: Bytes, starts: Int64s) -> Int64s:
    """The first number of each block, or ``_TOO_LARGE`` for one of more than three bytes."""
    first, second, third = (data[starts + at].astype(np.int64) for at in range(3))
    sizes = first & 0x7F
    sizes |= np.where(first < 0x80, 0, (second & 0x7F) << 7)
    sizes |= np.where(first & second < 0x80, 0, third << 14)
    return np.where(first & second & third < 0x80, sizes, _TOO_LARGE)


def _refuse_payload(block: bytes, offset: int) -> None:
    unpack_block(block, _XXH3, offset)
    raise InvariantViolation("a block could not be unpacked into its room")


def _refuse_block(payload: bytes, offset: int, least_key: int) -> None:
    for key, _ in block_entries(payload, offset):
        if len(key) < least_key + TRAILER_BYTES:
            raise FormatError(
                "A row's key is too short",
                offset=offset,
                expected=least_key,
                got=len(key) - TRAILER_BYTES,
            )
    raise InvariantViolation("a kernel refused a block that the decoder accepts")
