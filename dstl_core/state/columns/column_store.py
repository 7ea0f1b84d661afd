"""Keyed value state as Arrow columns with look-up by key: a base, and a newer level per epoch.

A level is a table sorted by a hash of its keys, and the column of hashes. A look-up is a binary
search in each level, the newest first. The row of a key in a level has all its states. Levels never
change, so copies share their files. The file of a large base is memory-mapped.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.cached_property import cached_property
from dstl_core.codec.columnar.kernels.hashing import hash_rows, order_hashes, place_hashes
from dstl_core.codec.columnar.keyed.byte_index import ByteIndex, Ranges
from dstl_core.codec.columnar.keyed.encoder import EncodedRows, EncodeProgram
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.input import one_array
from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import FormatError
from dstl_core.state.columns.checked_files import check_file, write_checked
from dstl_core.state.tables.descriptor import ValueStateDescriptor

RAW, KEY = "key bytes", "key"
"""Columns of a level: a key as it is encoded, and its value."""
_SUFFIXES = (".arrow", ".npy")
MAX_LEVELS = 8
REBUILD_RATIO = 0.5
"""Ratio of rows in newer levels to rows in the base, above which all levels are merged."""

_PLAIN = (pa.types.is_integer, pa.types.is_date, pa.types.is_boolean)
"""Types of keys whose values are equal if their bytes are, so that the values alone are kept."""

FOUND_ROWS = 1 << 20
"""Keys that are compared at a time."""

Chosen = npt.NDArray[np.bool_]

Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
_MOST_BITS = 22
_FEW = 32
"""With fewer than one of this number of hashes, searching each one is faster than one pass."""


def bytes_of(rows: EncodedRows) -> pa.Array:
    """Encoded rows as an Arrow column, without a copy."""
    base = rows.data.address
    offsets = np.zeros(len(rows) + 1, np.int64)
    offsets[1:] = rows.ends - base
    return pa.Array.from_buffers(
        pa.large_binary(), len(rows), [None, pa.py_buffer(offsets), rows.data]
    )


@dataclass(frozen=True)
class Keys:
    """Keys in three forms: values, what tells them apart, and hashes."""

    values: pa.Array
    identity: pa.Array
    hashes: Hashes

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def order(self) -> Places:
        """The positions of the keys, sorted by their hashes as in a level."""
        return order_of(self.hashes)


@dataclass
class Level:
    """Rows sorted by the hashes of their keys.

    ``path`` is the path of its files without suffix, None if it is not stored; ``digests`` are the
    sha256 of these files.
    """

    hashes: Hashes
    table: pa.Table
    path: Path | None = None
    digests: tuple[str, ...] = ()

    def write_table(self, file: Any) -> None:
        with pa.ipc.new_file(file, self.table.schema) as writer:
            writer.write_table(self.table, max_chunksize=max(1, self.table.num_rows))

    def write_hashes(self, file: Any) -> None:
        np.save(file, self.hashes)

    def find(self, keys: Keys, rows: Places, identity: str) -> Places:
        """The row of each key, -1 for keys that are not in the level.

        Args:
            keys: All keys.
            rows: The keys to find, in the order of their hashes.
            identity: The column that tells keys apart.
        """
        places = places_of(keys.hashes[rows], self.hashes)
        parts = [
            self._same(
                keys, rows[start : start + FOUND_ROWS], places[start : start + FOUND_ROWS], identity
            )
            for start in range(0, len(rows), FOUND_ROWS)
        ]
        return np.concatenate(parts) if parts else places

    def _same(self, keys: Keys, rows: Places, places: Places, identity: str) -> Places:
        """As ``find``; ``places`` are those of the first row with the hash of each key."""
        wanted = keys.hashes[rows]
        positions = np.full(len(rows), -1, np.int64)
        open_rows = np.arange(len(rows))
        column = self.table.column(identity)
        while len(open_rows):
            at = places[open_rows]
            inside = at < len(self.hashes)
            open_rows, at = open_rows[inside], at[inside]
            same = self.hashes[at] == wanted[open_rows]
            open_rows, at = open_rows[same], at[same]
            if not len(open_rows):
                break
            equal = pc.equal(
                column.take(pa.array(at)).combine_chunks(),
                keys.identity.take(pa.array(rows[open_rows])),
            ).to_numpy(zero_copy_only=False)
            positions[open_rows[equal]] = at[equal]
            open_rows = open_rows[~equal]
            places[open_rows] += 1  # another key has the same hash
        return positions


class ColumnStore:
    """The state of one subtask. One thread may use it.

    Args:
        key_type: The type of the keys.
        states: The states.
        seed: The seed of the hash; random for every store that is not opened from files.
    """

    def __init__(
        self,
        key_type: AnySerializer,
        states: Sequence[ValueStateDescriptor],
        seed: int | None = None,
    ) -> None:
        self.seed = secrets.randbits(62) if seed is None else seed
        self._encode_keys = EncodeProgram([(KEY, layout_of(key_type))])
        self.key_type: pa.DataType = self._encode_keys.layouts[KEY].arrow_type
        is_plain = any(test(self.key_type) for test in _PLAIN)
        self._identity = KEY if is_plain else RAW
        self.schema = pa.schema(
            [(each.name, layout_of(each.serializer).arrow_type) for each in states]
        )
        raw = [] if is_plain else [(RAW, pa.large_binary())]
        self._stored = pa.schema([*raw, (KEY, self.key_type), *self.schema])
        self.levels: list[Level] = []

    # ---------------------------------------------------------------------------------- keys

    def keys(self, values: pa.Array) -> tuple[Keys, Places]:
        """The distinct keys of a column, in order of appearance, and the key number of each row."""
        firsts, numbers = self._numbered(values)
        distinct = values.take(pa.array(firsts))
        # To encode a key again is faster than to copy its bytes from among those of all rows.
        encoded = self._encode_keys.encode({KEY: distinct}, len(distinct))
        identity = distinct if self._identity == KEY else bytes_of(encoded)
        return Keys(distinct, identity, self._hashes(encoded.ranges)), numbers

    def _numbered(self, values: pa.Array) -> tuple[Places, Places]:
        """The first row of each distinct key, and the key number of each row."""
        encoded = self._encode_keys.encode({KEY: values}, len(values))
        index = ByteIndex(encoded.ranges)
        return index.firsts, index.numbers

    def _hashes(self, ranges: Ranges) -> Hashes:
        starts, ends = np.ascontiguousarray(ranges.starts), np.ascontiguousarray(ranges.ends)
        hashes = np.empty(len(starts), np.int64)
        hash_rows(
            address_of(starts), address_of(ends), 8, len(starts), self.seed, address_of(hashes)
        )
        return hashes.view(np.uint64)

    # ------------------------------------------------------------------------------- look up

    def lookup(self, keys: Keys) -> pa.Table:
        """The states of each key; null where it has no state."""
        # In the order of a level, the look-up passes its memory once from start to end.
        rows = keys.order
        parts: list[tuple[pa.Table, pa.Array]] = []
        order: list[Places] = []
        for level in reversed(self.levels):
            if not len(rows):
                break
            places = level.find(keys, rows, self._identity)
            is_here = places >= 0
            if is_here.any():
                parts.append((level.table, pa.array(places[is_here])))
                order.append(rows[is_here])
                rows = rows[~is_here]
        if len(rows):
            parts.append((self.nothing(1), pa.array(np.zeros(len(rows), np.int64))))
            order.append(rows)
        back = np.empty(len(keys), np.int64)
        if order:
            back[np.concatenate(order)] = np.arange(len(keys))
        return _taken(self.schema, parts, pa.array(back))

    def bytes_per_key(self, names: Sequence[str]) -> float:
        """The mean number of bytes that a key has in some states."""
        rows = sum(level.table.num_rows for level in self.levels)
        size = sum(level.table.column(name).nbytes for level in self.levels for name in names)
        return size / rows if rows else 0.0

    def nothing(self, rows: int) -> pa.Table:
        """A table of this number of rows without state."""
        return pa.Table.from_arrays(
            [pa.nulls(rows, each.type) for each in self.schema], schema=self.schema
        )

    def put(self, keys: Keys, states: pa.Table, chosen: Chosen | None = None) -> None:
        """Replaces the rows of distinct keys: of the chosen keys, or of all."""
        order = keys.order if chosen is None else keys.order[chosen[keys.order]]
        if not len(order):
            return
        raw = [] if self._identity == KEY else [keys.identity]
        columns = [*raw, keys.values, *(states.column(name) for name in self.schema.names)]
        table = pa.Table.from_arrays(columns, schema=self._stored)
        self.levels.append(Level(keys.hashes[order], table.take(pa.array(order)).combine_chunks()))

    # ------------------------------------------------------------------------------- rebuild

    def tidy(self) -> None:
        """Merges small levels, and all levels if they are large compared with the base."""
        if len(self.levels) <= 1:
            return
        above = sum(level.table.num_rows for level in self.levels[1:])
        if above > REBUILD_RATIO * self.levels[0].table.num_rows:
            self.levels = [self._merged(self.levels, drop_empty=True)]
        elif len(self.levels) > MAX_LEVELS:
            # Merges levels of similar size, so that a row is written a logarithmic number of times.
            first = len(self.levels) - 1
            total = self.levels[first].table.num_rows
            while first > 1 and self.levels[first - 1].table.num_rows <= 2 * total:
                first -= 1
                total += self.levels[first].table.num_rows
            first = min(first, len(self.levels) - 2)
            merged = self._merged(self.levels[first:], drop_empty=False)
            self.levels[first:] = [merged]

    def capture(self) -> ColumnStore:
        """Captures a point-in-time view. It shares the levels, which never change."""
        twin = copy.copy(self)
        twin.levels = list(self.levels)
        return twin

    def whole(self) -> pa.Table:
        """All keys that have state, once each: the column ``KEY`` and the states."""
        if not self.levels:
            empty = pa.Table.from_arrays([pa.nulls(0, self.key_type)], names=[KEY])
            for field in self.schema:
                empty = empty.append_column(field, pa.nulls(0, field.type))
            return empty
        _, table, order = self._first_rows(self.levels, drop_empty=True)
        wanted = table.select([KEY, *self.schema.names])
        return _taken(wanted.schema, [(wanted, None)], pa.array(order))

    def _merged(self, levels: Sequence[Level], *, drop_empty: bool) -> Level:
        hashes, table, order = self._first_rows(levels, drop_empty=drop_empty)
        hashes = hashes[order]
        return Level(hashes, _taken(self._stored, [(table, None)], pa.array(order)))

    def _first_rows(
        self, levels: Sequence[Level], *, drop_empty: bool
    ) -> tuple[Hashes, pa.Table, Places]:
        """The rows of levels with their hashes, and the newest row of each key by its hash."""
        newest_first = levels[::-1]
        table = pa.concat_tables([level.table for level in newest_first])
        hashes = np.concatenate([level.hashes for level in newest_first])
        order = _first_rows(hashes, _one(table.column(self._identity)))
        if drop_empty:
            order = order[_present(table.select(self.schema.names))[order]]
        return hashes, table, order

    # --------------------------------------------------------------------------------- files

    def save(self, folder: Path) -> dict[str, list[str]]:
        """Stores the levels, and links those that are stored already.

        Returns:
            The names of the levels, with the sha256 of their files.
        """
        stored = {}
        for level in self.levels:
            if level.path is None:
                name = uuid4().hex
                digests = [
                    write_checked(folder / f"{name}.arrow", level.write_table),
                    write_checked(folder / f"{name}.npy", level.write_hashes),
                ]
            else:
                name, digests = level.path.name, list(level.digests)
                for suffix in _SUFFIXES:
                    source = level.path.with_name(name + suffix)
                    (folder / source.name).hardlink_to(source)
            stored[name] = digests
        return stored

    def open(self, folder: Path, stored: Mapping[str, Sequence[str]]) -> None:
        """Maps stored levels into memory; ``stored`` is the result of ``save``.

        Raises:
            FormatError: The levels are damaged, or have other types.
        """
        wanted = self._stored
        for name, digests in stored.items():
            try:
                for suffix, digest in zip(_SUFFIXES, digests, strict=True):
                    check_file(folder / (name + suffix), digest)
                table = pa.ipc.open_file(pa.memory_map(str(folder / f"{name}.arrow"))).read_all()
                hashes = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            except (OSError, ValueError, pa.ArrowException) as error:
                raise FormatError(f"A local copy is damaged ({error})") from error
            if table.schema.types != wanted.types or table.schema.names != wanted.names:
                raise FormatError("A local copy has other states", got=str(table.schema))
            if hashes.dtype != np.uint64 or hashes.shape != (table.num_rows,):
                raise FormatError("A local copy is damaged", field="hashes")
            self.levels.append(Level(hashes, table, folder / name, tuple(digests)))


def files_of(stored: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The names of the files of stored levels, with their sha256."""
    return {
        name + suffix: digest
        for name, digests in stored.items()
        for suffix, digest in zip(_SUFFIXES, digests, strict=True)
    }


def _first_rows(hashes: Hashes, identity: pa.Array) -> Places:
    """The first row of each key, sorted by hash. Each level is sorted, so sorting merges them."""
    order = np.argsort(hashes, kind="stable")
    in_order = hashes[order]
    again = np.flatnonzero(in_order[1:] == in_order[:-1]) + 1
    keys, before = (identity.take(pa.array(rows)) for rows in (order[again], order[again - 1]))
    if keys.equals(before):
        first_rows: Places = np.delete(order, again)
        return first_rows
    # Two keys have the same hash.
    if identity.type == pa.large_binary():
        firsts = ByteIndex(ranges_of(identity)).firsts
    else:
        _, firsts = np.unique(identity.to_numpy(zero_copy_only=False), return_index=True)
    return firsts[np.argsort(hashes[firsts], kind="stable")]


def _present(states: pa.Table) -> npt.NDArray[np.bool_]:
    """Whether a row has any state."""
    is_present = np.zeros(states.num_rows, np.bool_)
    for column in states.columns:
        is_present |= column.is_valid().to_numpy()
    return is_present


def _taken(
    schema: pa.Schema, parts: Sequence[tuple[pa.Table, pa.Array | None]], places: pa.Array
) -> pa.Table:
    """Rows of tables, one column after the other: beside the result, it copies a column at a time.

    Args:
        schema: The columns.
        parts: Tables, and the rows of each; None: all its rows.
        places: The positions of the wanted rows among those rows.
    """
    columns = []
    for field in schema:
        chunks: list[pa.Array] = []
        for table, rows in parts:
            column = table.column(field.name)
            chunks += (column if rows is None else column.take(rows)).chunks
        columns.append(_one(pa.chunked_array(chunks, field.type)).take(places))
    return pa.Table.from_arrays(columns, schema=schema)


def _one(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array, without a copy if it is one."""
    return column.chunk(0) if column.num_chunks == 1 else one_array(column)


def ranges_of(raw: pa.Array) -> Ranges:
    """The addresses of the values of a large binary column, which has to stay alive."""
    if not len(raw):
        return Ranges(np.empty(0, np.int64), np.empty(0, np.int64))
    _, offsets, data = raw.buffers()
    places = np.frombuffer(offsets, np.int64)[raw.offset : raw.offset + len(raw) + 1]
    base = data.address if data is not None else 0
    return Ranges(places[:-1] + base, places[1:] + base)


def batches_of(table: pa.Table, rows: int) -> Iterator[pa.RecordBatch]:
    """Splits a table into batches of at most ``rows`` rows."""
    for batch in table.to_batches(max_chunksize=rows):
        if batch.num_rows:
            yield batch


def order_of(hashes: Hashes) -> Places:
    """The positions of hashes in ascending order; equal hashes keep theirs."""
    hashes = np.ascontiguousarray(hashes)
    rows = len(hashes)
    bits = min(max(1, rows.bit_length()), _MOST_BITS)
    ends = np.zeros((1 << bits) + 1, np.int64)
    order, in_order = np.empty(rows, np.int64), np.empty(rows, np.uint64)
    order_hashes(
        address_of(hashes),
        rows,
        64 - bits,
        address_of(ends),
        address_of(order),
        address_of(in_order),
    )
    return order


def places_of(wanted: Hashes, hashes: Hashes) -> Places:
    """For each hash, the position of the first one in ``hashes`` that is not below it.

    Args:
        wanted: Hashes in ascending order.
        hashes: Hashes in ascending order.
    """
    if len(wanted) * _FEW < len(hashes):
        return np.searchsorted(hashes, wanted).astype(np.int64)
    wanted, hashes = np.ascontiguousarray(wanted), np.ascontiguousarray(hashes)
    places = np.empty(len(wanted), np.int64)
    place_hashes(
        address_of(wanted), len(wanted), address_of(hashes), len(hashes), address_of(places)
    )
    return places
