"""Packs, unpacks and checks blocks of table files, many at a time, without Python code per block:
threads would wait for each other at each of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dstl_core.codec.checksums import masked_crc32c
from dstl_core.codec.columnar.kernels.tables import table_pack
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.scratch import scratch
from dstl_core.codec.sst.block import BLOCK_TRAILER_BYTES

Bytes = npt.NDArray[np.uint8]

_POLYNOMIAL = 0x82F63B78
"""Of CRC-32C, with the lowest power first."""
_LARGE_BYTES = 16 << 10
"""The checksum of a larger block is that of ``google-crc32c``: an instruction of the processor is
ten times as fast, and a call for each block is no matter.
"""


def _tables() -> npt.NDArray[np.uint32]:
    """The checksum of each byte with 0 to 7 bytes of zeros behind it."""
    tables = np.empty((8, 256), np.uint32)
    tables[0] = np.arange(256)
    for _ in range(8):
        tables[0] = tables[0] >> 1 ^ (tables[0] & 1) * np.uint32(_POLYNOMIAL)
    for zeros in range(1, 8):
        before = tables[zeros - 1]
        tables[zeros] = before >> 8 ^ tables[0][before & 0xFF]
    return tables


_CRC_TABLES = _tables()


def packed_blocks(payloads: memoryview, ends: Int64s) -> tuple[Bytes, Int64s]:
    """Blocks with their trailers, one after the other, and the end of each.

    Args:
        payloads: The payloads, one after the other.
        ends: The end of each.
    """
    count, size = len(ends), len(payloads)
    room = scratch(size + size // 6 + table_pack.ROOM_BYTES * count)
    places = np.empty(count, np.int64)
    table = scratch(table_pack.HASH_TABLE_BYTES)
    data = np.frombuffer(payloads, np.uint8)
    ends = np.ascontiguousarray(ends)
    rows = address_of(data), address_of(ends), count
    table_pack.pack_blocks(*rows, address_of(table), address_of(room), address_of(places))
    blocks = room[: int(places[-1])]
    starts = np.concatenate([[0], places[:-1]])
    stops = places - BLOCK_TRAILER_BYTES
    checksum_words(blocks.data)[stops + 1] = checksums(blocks.data, starts, stops + 1)
    return blocks, places


def checksum_words(raw: memoryview) -> npt.NDArray[np.uint32]:
    """The words that begin at each byte: a checksum begins at any."""
    return np.ndarray(len(raw) - 3, "<u4", raw, strides=(1,))


def checksums(raw: memoryview, starts: Int64s, stops: Int64s) -> npt.NDArray[np.uint32]:
    """The masked CRC-32C of some ranges of bytes."""
    data = np.frombuffer(raw, np.uint8)
    places = np.stack([starts, stops], axis=1) + address_of(data)
    crcs = np.empty(len(places), np.uint32)
    tables = address_of(_CRC_TABLES)
    table_pack.checksums_of(address_of(places), len(places), _LARGE_BYTES, tables, address_of(crcs))
    for row in np.flatnonzero(stops - starts > _LARGE_BYTES).tolist():
        crcs[row] = masked_crc32c(bytes(raw[int(starts[row]) : int(stops[row])]))
    return crcs


def refused_payloads(raw: Bytes, places: Int64s, room: Bytes, targets: Int64s) -> Iterator[int]:
    """Unpacks payloads; yields the numbers of those that cannot be unpacked into their targets.

    Args:
        raw: The packed payloads.
        places: Start and end of each in it.
        room: Where to unpack. All bytes behind the first target may change that are in no other
            one: a short copy writes a whole word.
        targets: Start and end of each in it, ascending.
    """
    lines = np.concatenate([places + address_of(raw), targets + address_of(room)], axis=1)
    place, count = address_of(lines), len(lines)
    room_end = address_of(room) + len(room)
    at = 0
    while (at := table_pack.unpack_payloads(place, at, count, room_end)) < count:
        yield at
        at += 1
