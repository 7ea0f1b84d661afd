"""Entries on local disk, in RocksDB: for state larger than memory.

The only module that imports rocksdict. Rows are

    u16 table, u16 key group, scope                         value          (rows)
    u16 table, u16 key group, u32 length, scope, user key   value          (pairs)
    u16 table, u16 key group, element                                      (elements)

so that a key group is one range, and so is a scope. Nothing is logged ahead: the database holds a
copy of what checkpoints and the changelog hold, and is deleted when it is closed.
"""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompactionStyle,
    DBCompressionType,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    UniversalCompactOptions,
    WriteBatch,
    WriteOptions,
)

from dstl_core.errors import InvariantViolation, StorageError
from dstl_core.state.backends.checked_database import CheckedDatabase, refused
from dstl_core.state.tables.store import Group, Shape

_PREFIX = struct.Struct(">HH")
_LENGTH = struct.Struct(">I")
_KEEP: Any = object()
MAX_TABLES = 1 << 16
RUNS = 8
"""From so many sorted runs on, some are merged."""
MAX_RUNS = 16
"""A database that is given away has no more."""
_DATABASE_FILES = ("CURRENT", "IDENTITY", "MANIFEST")
"""What a database consists of beside its tables, by how names begin; nothing is logged ahead."""


class RocksDBStore:
    """One database, in a new folder that it owns. One thread.

    Args:
        folder: Where the folder is made.
        cache_bytes: Of blocks that were read.
        write_buffer_bytes: Of a memtable; there are up to three.
        source: Folder of a database that ``release`` gave, to start from; it is not changed.

    Raises:
        StorageError: It cannot be opened; the source may be damaged.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cache_bytes: int,
        write_buffer_bytes: int,
        source: Path | None = None,
    ) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix=".dstl-rocksdb-", dir=folder))
        except OSError as error:
            raise refused(error, folder) from error
        options = Options(raw_mode=True)
        blocks = BlockBasedOptions()
        blocks.set_block_cache(Cache(cache_bytes))
        blocks.set_bloom_filter(10, False)
        # Else indexes and filters of all files stay in memory, whatever the cache allows. If whole,
        # they are larger than a shard of the cache, and every look-up reads them again.
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
        blocks.set_partition_filters(True)
        blocks.set_pin_top_level_index_and_filter(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        options.set_block_based_table_factory(blocks)
        options.set_write_buffer_size(write_buffer_bytes)
        options.set_max_write_buffer_number(3)
        options.set_max_background_jobs(2)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_compaction_style(DBCompactionStyle.universal())
        options.set_universal_compaction_options(_merges())
        options.set_level_zero_file_num_compaction_trigger(RUNS)
        try:
            if source is not None:
                _link_database(source, self._folder)
            # Without these, a database that was there before is opened with the options that lie
            # in it: no filters, since a file of options has none, and a cache of 8 MB.
            families = {"default": options}
            self.db = Rdict(str(self._folder), options, column_families=families)
        except Exception as error:  # rocksdict has no narrower one
            shutil.rmtree(self._folder, ignore_errors=True)
            raise refused(error, source or folder) from error
        self._database = CheckedDatabase(self.db, folder)
        self._unlogged = WriteOptions()
        self._unlogged.disable_wal = True  # type: ignore[method-assign,assignment]  # a property
        self.db.set_write_options(self._unlogged)
        self._tables = 0
        self._closed = False

    @property
    def runs(self) -> int:
        """Sorted runs on disk: how many a look-up may have to ask."""
        return _runs(self.db)

    def start_at(self, table: int) -> None:
        """The number of the next table: that of one in the source, or a free one."""
        self._tables = table

    def open_table(self, shape: Shape) -> RocksDBGroups:
        if self._tables == MAX_TABLES:
            raise InvariantViolation("a backend has too many tables")
        self._tables += 1
        return RocksDBGroups(self._database, self._tables - 1, shape, self._unlogged)

    def view(self) -> object:
        # An iterator sees the database as it was when it was made, wherever it seeks. (Those of
        # rocksdict's own snapshots do not.)
        return _Frozen(self.db.iter())

    def release(self) -> Path:
        """Closes the database and gives its folder away, to be the source of another store.

        Raises:
            StorageError: The disk has not taken all of it; close it.
        """
        self._database.flush()
        if _runs(self.db) > MAX_RUNS:
            # Tasks were too short for what had to be merged beside them: closing gives that up.
            self._database.compact_range(None, None)
        self.db.close()
        self._closed = True
        return self._folder

    def close(self) -> None:
        """Closes and deletes the database, unless it was released."""
        if not self._closed:
            self._closed = True
            with suppress(Exception):  # it is deleted, whatever the disk has not taken of it
                self.db.close()
            shutil.rmtree(self._folder, ignore_errors=True)


def _merges() -> UniversalCompactOptions:
    """How runs become fewer: those of like size are merged. By levels, what an epoch has changed
    would soon be merged with all the rest, which takes longer than the task that it runs beside.
    """
    options = UniversalCompactOptions()
    # Restored state comes in runs of one size, which have no row in common: nothing to save.
    options.max_size_amplification_percent = 100 * MAX_RUNS
    return options


def _runs(db: Rdict) -> int:
    levels = [each["level"] for each in db.live_files()]
    return levels.count(0) + len(set(levels) - {0})


def _link_database(source: Path, target: Path) -> None:
    """Table files never change, so they are shared; the rest is small and copied."""
    for each in source.iterdir():
        if each.suffix == ".sst":
            os.link(each, target / each.name)
        elif each.name.startswith(_DATABASE_FILES):
            shutil.copy2(each, target / each.name)


class RocksDBGroups:
    """The key groups of one table."""

    is_sorted = True

    def __init__(
        self, db: CheckedDatabase, table: int, shape: Shape, write_options: WriteOptions
    ) -> None:
        self._db = db
        self._write_options = write_options
        self.table = table
        self._kind = _KINDS[shape]

    def new_group(self, key_group: int) -> Group:
        return self._kind(self._db, _PREFIX.pack(self.table, key_group))

    def get_many(
        self, groups: dict[int, Group], key_groups: Sequence[int], scopes: Sequence[bytes]
    ) -> list[Any]:
        rows = self._rows(key_groups, scopes)
        # In the order of the database, neighbours come out of one block.
        order = sorted(range(len(rows)), key=rows.__getitem__)
        found: list[Any] = [None] * len(rows)
        got: Any = self._db.get([rows[at] for at in order]) if rows else []
        for at, value in zip(order, got, strict=True):
            found[at] = value
        return found

    def put_many(
        self,
        groups: dict[int, Group],
        key_groups: Sequence[int],
        scopes: Sequence[bytes],
        values: Sequence[bytes | None],
    ) -> None:
        rows = self._rows(key_groups, scopes)
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        # Sorting is stable: of a row that comes twice, the last value stays.
        for at in sorted(range(len(rows)), key=rows.__getitem__):
            value = values[at]
            if value is None:
                delete(rows[at])
            else:
                put(rows[at], value)
        self._db.write(batch, self._write_options)

    def _rows(self, key_groups: Sequence[int], scopes: Sequence[bytes]) -> list[bytes]:
        prefixes = {each: _PREFIX.pack(self.table, each) for each in set(key_groups)}
        return [
            prefixes[key_group] + scope for key_group, scope in zip(key_groups, scopes, strict=True)
        ]

    def frozen(self, groups: dict[int, Group], view: object) -> dict[int, Group]:
        if not isinstance(view, _Frozen):
            raise InvariantViolation("a table is frozen to the view of another store")
        kind = _FrozenPairs if self._kind is _Pairs else self._kind
        return {key_group: kind(view, _PREFIX.pack(self.table, key_group)) for key_group in groups}


class _Frozen:
    """One moment of a database, to be scanned: one scan at a time."""

    def __init__(self, cursor: RdictIter) -> None:
        self._cursor = cursor

    def iter(self, options: ReadOptions) -> Any:
        return self._cursor

    def get(self, key: bytes) -> bytes | None:
        raise InvariantViolation("a frozen table is only scanned")

    def put(self, key: bytes, value: bytes) -> None:
        raise InvariantViolation("a frozen table was written to")

    delete = get


def _after(prefix: bytes) -> bytes | None:
    """The first key behind all that have a prefix; None if there is none."""
    number = int.from_bytes(prefix, "big") + 1
    return None if number >> 8 * len(prefix) else number.to_bytes(len(prefix), "big")


def _scan(db: Any, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The rows with a prefix, the prefix cut off, as they were when the scan began."""
    options = ReadOptions()
    end = _after(prefix)
    if end is not None:
        options.set_iterate_upper_bound(end)
    cursor = db.iter(options)
    cursor.seek(prefix)
    start = len(prefix)
    key, value, advance = cursor.key, cursor.value, cursor.next
    while cursor.valid():
        found = key()
        if not found.startswith(prefix):
            return
        yield found[start:], value()
        advance()
    try:
        # The end of the rows and a block that cannot be read look the same until one asks.
        cursor.status()
    except Exception as error:
        raise StorageError(
            f"The local database of a state backend is damaged ({error})."
        ) from error


def _delete_range(db: Any, prefix: bytes) -> None:
    for suffix, _ in _scan(db, prefix):
        db.delete(prefix + suffix)


class _Rows(MutableMapping[bytes, Any]):
    """Scopes and values of one key group."""

    __slots__ = ("_db", "_delete", "_get", "_prefix", "_put")

    def __init__(self, db: Any, prefix: bytes) -> None:
        self._db = db
        self._prefix = prefix
        self._get = db.get
        self._put = db.put
        self._delete = db.delete

    def get(self, scope: bytes, default: Any = None) -> Any:
        found = self._get(self._prefix + scope)
        return default if found is None else found

    def __getitem__(self, scope: bytes) -> Any:
        found = self._get(self._prefix + scope)
        if found is None:
            raise KeyError(scope)
        return found

    def __contains__(self, scope: object) -> bool:
        return isinstance(scope, bytes) and self._get(self._prefix + scope) is not None

    def __setitem__(self, scope: bytes, value: Any) -> None:
        self._put(self._prefix + scope, value)

    def __delitem__(self, scope: bytes) -> None:
        self._delete(self._prefix + scope)

    def pop(self, scope: bytes, default: Any = _KEEP) -> Any:
        found = self._get(self._prefix + scope)
        if found is not None:
            self._delete(self._prefix + scope)
            return found
        if default is _KEEP:
            raise KeyError(scope)
        return default

    def __iter__(self) -> Iterator[bytes]:
        return (scope for scope, _ in _scan(self._db, self._prefix))

    def items(self) -> Any:
        return _scan(self._db, self._prefix)

    def __len__(self) -> int:
        return sum(1 for _ in _scan(self._db, self._prefix))

    def __bool__(self) -> bool:
        return next(_scan(self._db, self._prefix), None) is not None

    def clear(self) -> None:
        _delete_range(self._db, self._prefix)


class _Elements(_Rows):
    """Elements of one key group, in order; each maps to None."""

    __slots__ = ()

    def __getitem__(self, scope: bytes) -> None:
        if scope not in self:
            raise KeyError(scope)

    def get(self, scope: bytes, default: Any = None) -> Any:
        return None if scope in self else default

    def __setitem__(self, scope: bytes, value: None) -> None:
        self._put(self._prefix + scope, b"")

    def items(self) -> Any:
        return ((element, None) for element in self)


class _UserMap(_Rows):
    """The pairs of one scope. An empty one is no entry."""

    __slots__ = ()


class _Pairs(MutableMapping[bytes, Any]):
    """Scopes of one key group; each maps to its pairs, which stay on disk."""

    __slots__ = ("_db", "_prefix")

    def __init__(self, db: Any, prefix: bytes) -> None:
        self._db = db
        self._prefix = prefix

    def _of(self, scope: bytes) -> _UserMap:
        return _UserMap(self._db, b"".join((self._prefix, _LENGTH.pack(len(scope)), scope)))

    def get(self, scope: bytes, default: Any = None) -> Any:
        # Whether it is empty is not asked: a look-up of a user key answers that by itself.
        return self._of(scope)

    def __getitem__(self, scope: bytes) -> _UserMap:
        found = self._of(scope)
        if not found:
            raise KeyError(scope)
        return found

    def __contains__(self, scope: object) -> bool:
        return isinstance(scope, bytes) and bool(self._of(scope))

    def setdefault(self, scope: bytes, default: Any = None) -> Any:
        found = self._of(scope)
        if default:
            found.update(default)
        return found

    def __setitem__(self, scope: bytes, pairs: Any) -> None:
        found = self._of(scope)
        found.clear()
        found.update(pairs)

    def __delitem__(self, scope: bytes) -> None:
        self._of(scope).clear()

    def pop(self, scope: bytes, default: Any = None) -> Any:
        """Removes a scope. What was there is not given back, since it may be large."""
        self._of(scope).clear()
        return default

    def __iter__(self) -> Iterator[bytes]:
        return (scope for scope, _ in self.items())

    def items(self) -> Any:
        """Every scope with its pairs, as the scan meets them."""
        last: bytes | None = None
        for row, _ in _scan(self._db, self._prefix):
            (size,) = _LENGTH.unpack_from(row)
            scope = row[_LENGTH.size : _LENGTH.size + size]
            if scope != last:
                last = scope
                yield scope, self._of(scope)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return next(_scan(self._db, self._prefix), None) is not None

    def clear(self) -> None:
        _delete_range(self._db, self._prefix)


class _FrozenPairs(_Pairs):
    """As ``_Pairs``; the pairs of a scope come whole, since one scan cannot stand in another."""

    __slots__ = ()

    def items(self) -> Any:
        last: bytes | None = None
        pairs: dict[bytes, bytes] = {}
        for row, value in _scan(self._db, self._prefix):
            (size,) = _LENGTH.unpack_from(row)
            scope = row[_LENGTH.size : _LENGTH.size + size]
            if scope != last:
                if last is not None:
                    yield last, pairs
                last, pairs = scope, {}
            pairs[row[_LENGTH.size + size :]] = value
        if last is not None:
            yield last, pairs


_KINDS: dict[Shape, Callable[[Any, bytes], Group]] = {
    Shape.ROWS: _Rows,
    Shape.PAIRS: _Pairs,
    Shape.ELEMENTS: _Elements,
}
