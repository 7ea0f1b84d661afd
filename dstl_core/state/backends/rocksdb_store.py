"""Stores entries in RocksDB on local disk, for state larger than memory.

Only this module imports rocksdict. Rows are

    u16 table, u16 key group, scope                         value          (rows)
    u16 table, u16 key group, u32 length, scope, user key   value          (pairs)
    u16 table, u16 key group, element                                      (elements)

so that a key group is one range, and so is a scope. There is no write-ahead log: the database is a
copy of the state in checkpoints and the changelog, and it is deleted when it is closed.
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
from dstl_core.state.tables.store import Group, Shape

_PREFIX = struct.Struct(">HH")
_LENGTH = struct.Struct(">I")
_KEEP: Any = object()
MAX_TABLES = 1 << 16
MEMTABLES = 3
RUNS = 8
"""With this number of sorted runs, RocksDB begins to merge them."""
MAX_RUNS = 16
"""``release`` gives away a database with at most this number of sorted runs."""
_DATABASE_FILES = ("CURRENT", "IDENTITY", "MANIFEST")
"""Prefixes of the files of a database besides its tables. There is no write-ahead log."""


class RocksDBStore:
    """One database in a new folder that it owns. One thread may use it.

    Args:
        folder: The parent of the new folder.
        cache_bytes: Size of the block cache.
        write_buffer_bytes: Size of a memtable; there are up to ``MEMTABLES``.
        source: Folder of a released database to start from; it is not changed.

    Raises:
        StorageError: The database cannot be opened; the source may be damaged.
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
        # Otherwise the indexes and filters of all files stay in memory, beyond the cache's limit.
        # Unpartitioned, they are larger than a shard of the cache, and every look-up reads them.
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
        blocks.set_partition_filters(True)
        blocks.set_pin_top_level_index_and_filter(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        options.set_block_based_table_factory(blocks)
        options.set_write_buffer_size(write_buffer_bytes)
        options.set_max_write_buffer_number(MEMTABLES)
        options.set_max_background_jobs(2)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_compaction_style(DBCompactionStyle.universal())
        options.set_universal_compaction_options(_merges())
        options.set_level_zero_file_num_compaction_trigger(RUNS)
        try:
            if source is not None:
                _link_database(source, self._folder)
            # Without these, an existing database opens with the options file in its folder: no
            # filters, because such a file has none, and a cache of 8 MB.
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
        """The number of sorted runs on disk; a look-up may read all of them."""
        return _runs(self.db)

    def start_at(self, table: int) -> None:
        """Sets the number of the next table: an existing table of the source, or an unused one."""
        self._tables = table

    def open_table(self, shape: Shape) -> RocksDBGroups:
        if self._tables == MAX_TABLES:
            raise InvariantViolation("a backend has too many tables")
        self._tables += 1
        return RocksDBGroups(self._database, self._tables - 1, shape, self._unlogged)

    def view(self) -> object:
        # An iterator shows the database as it was when the iterator was made, also after a seek.
        # (Iterators of rocksdict's own snapshots do not.)
        return _Frozen(self.db.iter())

    def release(self) -> Path:
        """Closes the database and returns its folder, which can be the source of another store.

        Raises:
            StorageError: Not all data could be written; call ``close``.
        """
        self._database.flush()
        if _runs(self.db) > MAX_RUNS:
            # Short tasks leave merges undone, and closing the database cancels them.
            self._database.compact_range(None, None)
        self.db.close()
        self._closed = True
        return self._folder

    def close(self) -> None:
        """Closes and deletes the database, unless it was released."""
        if not self._closed:
            self._closed = True
            with suppress(Exception):  # the database is deleted, so failed writes do not matter
                self.db.close()
            shutil.rmtree(self._folder, ignore_errors=True)


def _merges() -> UniversalCompactOptions:
    """Universal compaction: runs of similar size are merged.

    Level compaction would soon merge the changes of an epoch with all other rows, which takes
    longer than the task that runs at the same time.
    """
    options = UniversalCompactOptions()
    # Runs of restored state have equal sizes and no common rows, so merging them saves nothing.
    options.max_size_amplification_percent = 100 * MAX_RUNS
    return options


def _runs(db: Rdict) -> int:
    levels = [each["level"] for each in db.live_files()]
    return levels.count(0) + len(set(levels) - {0})


def _link_database(source: Path, target: Path) -> None:
    """Links table files, which never change, into the target; copies the other files."""
    for path in source.iterdir():
        if path.suffix == ".sst":
            os.link(path, target / path.name)
        elif path.name.startswith(_DATABASE_FILES):
            shutil.copy2(path, target / path.name)


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
        # Sorted by the order of the database, neighbouring rows are read from one block.
        order = sorted(range(len(rows)), key=rows.__getitem__)
        values: list[Any] = [None] * len(rows)
        got: Any = self._db.get([rows[at] for at in order]) if rows else []
        for at, value in zip(order, got, strict=True):
            values[at] = value
        return values

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
        # The sort is stable, so the last value of a repeated row is kept.
        for at in sorted(range(len(rows)), key=rows.__getitem__):
            value = values[at]
            if value is None:
                delete(rows[at])
            else:
                put(rows[at], value)
        self._db.write(batch, self._write_options)

    def add_many(
        self, groups: dict[int, Group], key_groups: Sequence[int], elements: Sequence[bytes]
    ) -> None:
        self.put_many(groups, key_groups, elements, [b""] * len(elements))

    def remove_many(
        self, groups: dict[int, Group], key_groups: Sequence[int], elements: Sequence[bytes]
    ) -> None:
        self.put_many(groups, key_groups, elements, [None] * len(elements))

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
    """A point-in-time view of a database, for one scan at a time."""

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
    """The first key after all keys with a prefix; None if there is none."""
    number = int.from_bytes(prefix, "big") + 1
    return None if number >> 8 * len(prefix) else number.to_bytes(len(prefix), "big")


def _scan(db: Any, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the rows with a prefix, without the prefix, as they were when the scan began."""
    options = ReadOptions()
    end = _after(prefix)
    if end is not None:
        options.set_iterate_upper_bound(end)
    cursor = db.iter(options)
    cursor.seek(prefix)
    start = len(prefix)
    key, value, advance = cursor.key, cursor.value, cursor.next
    while cursor.valid():
        scanned = key()
        if not scanned.startswith(prefix):
            return
        yield scanned[start:], value()
        advance()
    try:
        # An iterator stops at the last row and at an unreadable block. Only its status differs.
        cursor.status()
    except Exception as error:
        raise StorageError(
            f"The local database of a state backend is damaged ({error}); delete its folder "
            f"and try again: it is a copy of the state in checkpoints."
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
        value = self._get(self._prefix + scope)
        return default if value is None else value

    def __getitem__(self, scope: bytes) -> Any:
        value = self._get(self._prefix + scope)
        if value is None:
            raise KeyError(scope)
        return value

    def __contains__(self, scope: object) -> bool:
        return isinstance(scope, bytes) and self._get(self._prefix + scope) is not None

    def __setitem__(self, scope: bytes, value: Any) -> None:
        self._put(self._prefix + scope, value)

    def __delitem__(self, scope: bytes) -> None:
        self._delete(self._prefix + scope)

    def pop(self, scope: bytes, default: Any = _KEEP) -> Any:
        value = self._get(self._prefix + scope)
        if value is not None:
            self._delete(self._prefix + scope)
            return value
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
    """The elements of one key group, in order; each maps to None."""

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
    """The pairs of one scope. An empty map is not stored."""

    __slots__ = ()


class _Pairs(MutableMapping[bytes, Any]):
    """The scopes of one key group; each maps to its pairs, which stay on disk."""

    __slots__ = ("_db", "_prefix")

    def __init__(self, db: Any, prefix: bytes) -> None:
        self._db = db
        self._prefix = prefix

    def _of(self, scope: bytes) -> _UserMap:
        return _UserMap(self._db, b"".join((self._prefix, _LENGTH.pack(len(scope)), scope)))

    def get(self, scope: bytes, default: Any = None) -> Any:
        # An empty map is returned as well: the caller looks up a user key anyway.
        return self._of(scope)

    def __getitem__(self, scope: bytes) -> _UserMap:
        pairs = self._of(scope)
        if not pairs:
            raise KeyError(scope)
        return pairs

    def __contains__(self, scope: object) -> bool:
        return isinstance(scope, bytes) and bool(self._of(scope))

    def setdefault(self, scope: bytes, default: Any = None) -> Any:
        stored = self._of(scope)
        if default:
            stored.update(default)
        return stored

    def __setitem__(self, scope: bytes, pairs: Any) -> None:
        stored = self._of(scope)
        stored.clear()
        stored.update(pairs)

    def __delitem__(self, scope: bytes) -> None:
        self._of(scope).clear()

    def pop(self, scope: bytes, default: Any = None) -> Any:
        """Removes a scope. It does not return the pairs, which may be large."""
        self._of(scope).clear()
        return default

    def __iter__(self) -> Iterator[bytes]:
        return (scope for scope, _ in self.items())

    def items(self) -> Any:
        """Yields every scope with its pairs, in the order of the scan."""
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
    """As ``_Pairs``, but loads all pairs of a scope: the view allows only one scan at a time."""

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


def refused(error: Exception, folder: Path) -> StorageError:
    """The error for a failed read or write of a local database."""
    return StorageError(
        f"The local database of a state backend failed ({error}); make sure that its folder is "
        f"writable and has free space, or configure another folder.",
        location=str(folder),
    )


class CheckedDatabase:
    """The calls of a database that tables use. A full or damaged disk raises ``StorageError``.

    Args:
        db: An ``Rdict``.
        folder: The folder of the database.
    """

    def __init__(self, db: Any, folder: Path) -> None:
        def checked(call: Callable[..., Any]) -> Callable[..., Any]:
            def checked_call(*arguments: Any) -> Any:
                try:
                    return call(*arguments)
                except Exception as error:  # rocksdict raises no narrower type
                    raise refused(error, folder) from error

            return checked_call

        self.get = checked(db.get)
        self.put = checked(db.put)
        self.delete = checked(db.delete)
        self.write = checked(db.write)
        self.flush = checked(db.flush)
        self.compact_range = checked(db.compact_range)
        self.iter = db.iter  # the caller checks its status at the end
