"""Finds equal byte strings: the Python side of ``kernels.hashing``."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np

from dstl_core.codec.columnar.kernels.hashing import (
    HASHES,
    find_rows,
    hash_rows,
    mark_last_rows,
    number_rows,
)
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.scratch import scratch_words

# A new seed in every process, so that nobody can prepare keys that collide.
SEED = secrets.randbits(62)


@dataclass(frozen=True)
class Ranges:
    """Byte strings as int64 addresses, ``[rows]`` each. The caller keeps the memory alive."""

    starts: Int64s
    ends: Int64s

    def __len__(self) -> int:
        return len(self.starts)


def hashes_of(rows: Ranges, seed: int | None = None) -> Int64s:
    """A hash of 64 bits of each byte string, by a seed; by default that of this process."""
    starts, ends = np.ascontiguousarray(rows.starts), np.ascontiguousarray(rows.ends)
    hashes: Int64s = np.empty(len(rows), np.int64)
    places = address_of(starts), address_of(ends)
    hash_rows(*places, 8, len(rows), SEED if seed is None else seed, address_of(hashes))
    return hashes


class ByteIndex:
    """Numbers distinct byte strings in order of first use.

    ``numbers[row]`` is the number of a row's string; ``firsts[number]`` is the first row with it.
    """

    def __init__(self, rows: Ranges) -> None:
        count = len(rows)
        starts, ends = np.ascontiguousarray(rows.starts), np.ascontiguousarray(rows.ends)
        slots = 1 << max(4, (2 * count).bit_length())
        self._table = scratch_words(slots, 1)
        self._table.fill(-1)
        self._spans = scratch_words(max(1, count), 2)
        self._hashes = np.empty(HASHES, np.int64)
        firsts = np.empty(max(1, count), np.int64)
        self.numbers: Int64s = np.empty(count, np.int64)
        distinct = number_rows(
            address_of(starts),
            address_of(ends),
            count,
            SEED,
            address_of(self._table),
            slots - 1,
            address_of(self._spans),
            address_of(self._hashes),
            address_of(firsts),
            address_of(self.numbers),
        )
        self.firsts: Int64s = firsts[:distinct]

    def __len__(self) -> int:
        return len(self.firsts)

    def find(self, rows: Ranges) -> Int64s:
        """The number of each string; -1 for a string that is not in the index."""
        starts, ends = np.ascontiguousarray(rows.starts), np.ascontiguousarray(rows.ends)
        rows_found: Int64s = np.empty(len(rows), np.int64)
        find_rows(
            address_of(starts),
            address_of(ends),
            len(rows),
            SEED,
            address_of(self._table),
            len(self._table) - 1,
            address_of(self._spans),
            address_of(self._hashes),
            address_of(rows_found),
        )
        return rows_found


def last_rows(rows: Ranges, groups: Int64s) -> Int64s:
    """The last row of each distinct byte string, ascending; strings of two groups differ.

    Args:
        rows: The byte strings.
        groups: A number for each of them.
    """
    count = len(rows)
    starts, ends = np.ascontiguousarray(rows.starts), np.ascontiguousarray(rows.ends)
    groups = np.ascontiguousarray(groups, np.int64)
    slots = 1 << max(4, (2 * count).bit_length())
    table = scratch_words(slots, 1)
    table.fill(-1)
    hashes = np.empty(HASHES, np.int64)
    marks = np.empty(max(1, count), np.uint8)
    mark_last_rows(
        address_of(starts),
        address_of(ends),
        address_of(groups),
        count,
        SEED,
        address_of(table),
        slots - 1,
        address_of(hashes),
        address_of(marks),
    )
    return np.flatnonzero(marks[:count])
