"""Records become sorted table files; what they hold, plain Python says."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from dstl_core.codec.columnar.keyed import sst_writer
from dstl_core.codec.columnar.keyed.sst_blocks import TableReader
from dstl_core.codec.columnar.keyed.sst_writer import FamilyTable, tables_of
from dstl_core.codec.keyed_canonical import write_section
from dstl_core.codec.sst.file import PUT, SstFile
from dstl_core.codec.sst.manifest import (
    NEW_MANIFEST_NUMBER,
    ManifestFile,
    new_manifest,
    read_manifest,
)
from dstl_core.codec.sst.table_builder import BOTTOM_LEVEL
from dstl_core.errors import DuplicateKeyError, FormatError

Rows = dict[bytes, bytes]
FAMILIES = ["n", "names", "nothing"]


def sections(states: Sequence[Rows], prefix: int, seed: int = 5) -> list[tuple[int, bytes]]:
    """The sections of all key groups, with the records of a state in any order."""
    random_order = random.Random(seed)
    groups = sorted({key[:prefix] for rows in states for key in rows})
    written = []
    for group in groups:
        runs = []
        for at, rows in enumerate(states):
            own = [(key, value) for key, value in rows.items() if key[:prefix] == group]
            random_order.shuffle(own)
            runs.append((at, own))
        written.append((int.from_bytes(group, "big"), write_section(runs)))
    return written


def opened(table: FamilyTable) -> SstFile:
    data = b"".join(table.table.parts)
    return SstFile(lambda start, end: data[start:end], len(data))


def check(states: Sequence[Rows], prefix: int, table_bytes: int = 64 << 20) -> list[FamilyTable]:
    names = FAMILIES[: len(states)]
    tables = list(tables_of(names, prefix, sections(states, prefix), table_bytes))
    held: list[list[tuple[bytes, bytes]]] = [[] for _ in states]
    for own in tables:
        file = opened(own)
        entries = list(file.entries(b"", None))
        assert {(entry.kind, entry.newest_first) for entry in entries} == {(PUT, 0)}
        assert (file.column_family, file.unique_id) == (names[own.state_id], own.table.unique_id)
        assert (own.table.smallest, own.table.largest) == (entries[0].key, entries[-1].key)
        by_kernel = TableReader(file)
        stored = by_kernel.read(b"", None)
        assert stored is not None
        lines = stored.entries(b"", None, prefix)
        assert [lines.key(row) for row in range(len(lines))] == [entry.key for entry in entries]
        held[own.state_id] += [(entry.key, entry.value) for entry in entries]
    assert held == [sorted(rows.items()) for rows in states]
    return tables


def group_key(prefix: int, key_group: int, key: bytes) -> bytes:
    return key_group.to_bytes(prefix, "big") + key


def test_states_of_all_shapes_are_sorted_into_their_families() -> None:
    source = random.Random(11)
    for prefix in (1, 2):
        groups = [0, 1, 127] if prefix == 1 else [0, 255, 256, 32767]
        numbers = {
            group_key(prefix, source.choice(groups), number.to_bytes(8, "big", signed=True)): bytes(
                source.randrange(40)
            )
            for number in source.sample(range(-5000, 5000), 3000)
        }
        # Keys that are the start of others, and share more than eight bytes with their neighbours.
        nested = {
            group_key(prefix, group, b"the same start"[: source.randrange(15)] + end): end
            for group in groups
            for end in (source.randbytes(source.randrange(4)) for _ in range(800))
        }
        check([numbers, nested, {}], prefix)


def test_values_fill_a_block_up_to_any_byte() -> None:
    for size in range(4060, 4110):
        noise = random.Random(size)
        check([{group_key(1, 3, bytes((n,))): noise.randbytes(size) for n in range(3)}], 1)


def test_a_block_ends_at_each_number_of_entries() -> None:
    for count in (1, 15, 16, 17, 31, 32, 33, 500):
        check([{group_key(2, 9, b"key-%04d" % number): b"v" for number in range(count)}], 2)


def test_values_that_are_empty_and_values_of_many_blocks() -> None:
    noise = random.Random(2)
    rows = {
        group_key(1, 0, b""): b"",
        group_key(1, 0, b"\0"): noise.randbytes(3 << 20),
        group_key(1, 0, b"\0\0"): b"",
        group_key(1, 1, b"k" * 70_000): b"v" * (9 << 20),
    }
    check([rows], 1)


def test_files_end_at_their_size_and_do_not_overlap() -> None:
    noise = random.Random(3)
    rows = {group_key(1, n % 4, b"%06d" % n): noise.randbytes(50) for n in range(20_000)}
    tables = check([rows, {group_key(1, 2, b"x"): b"y"}], 1, table_bytes=100_000)
    own = [each.table for each in tables if each.state_id == 0]
    assert len(own) == 13
    assert all(low.largest < high.smallest for low, high in pairwise(own))


def test_the_largest_unfinished_file_ends_when_all_are_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sst_writer, "HELD_BYTES", 40_000)
    monkeypatch.setattr(sst_writer, "_SORTED_BYTES", 10_000)
    noise = random.Random(4)
    many = {group_key(1, n % 50, b"%05d" % n): noise.randbytes(100) for n in range(3000)}
    few = dict.fromkeys(list(many)[:40], b"1")
    tables = check([many, few], 1)
    assert len([each for each in tables if each.state_id == 0]) > 5


def test_a_key_in_two_records_is_refused() -> None:
    key = group_key(1, 7, b"twice")
    section = write_section([(0, [(key, b"1"), (group_key(1, 7, b"a"), b""), (key, b"2")])])
    with pytest.raises(DuplicateKeyError, match="State 'n' has a key in two records"):
        list(tables_of(["n"], 1, [(7, section)]))


def test_a_section_that_is_cut_is_refused() -> None:
    [(key_group, section)] = sections([{group_key(1, 7, b"key"): b"value"}], 1)
    for end in range(1, len(section)):
        with pytest.raises(FormatError):
            list(tables_of(["n"], 1, [(key_group, section[:end])]))


def test_a_new_manifest_names_every_file_of_every_family() -> None:
    rows = {group_key(1, n % 4, b"%06d" % n): b"" for n in range(2000)}
    tables = list(tables_of(["n"], 1, sections([rows], 1), 10_000))
    files = [own.table.as_file(number) for number, own in enumerate(tables, 5)]

    manifest = read_manifest(new_manifest({"n": files, "é/empty": []}))

    families = {family.name: list(family.files.values()) for family in manifest.families.values()}
    assert families == {"default": [], "n": files, "é/empty": []}
    assert {file.level for file in files} == {BOTTOM_LEVEL}


@pytest.mark.parametrize("place", [lambda size: 3, lambda size: size // 2, lambda size: size - 60])
def test_a_flipped_byte_is_noticed(place: Callable[[int], int]) -> None:
    rows = {group_key(1, 1, b"%06d" % n): b"%d" % n for n in range(3000)}
    [own] = tables_of(["n"], 1, sections([rows], 1))
    data = bytearray(b"".join(own.table.parts))
    data[place(len(data))] ^= 1
    with pytest.raises(FormatError):
        list(SstFile(lambda start, end: bytes(data[start:end]), len(data)).entries(b"", None))


def rows_at(sizes: Sequence[int], group: bytes, seed: int = 7) -> Rows:
    random_bytes = random.Random(seed).randbytes
    return {group + bytes([at]): random_bytes(size) for at, size in enumerate(sizes)}


IN_ROCKSDB: dict[str, tuple[list[Rows], int, int]] = {
    "nothing": ([{}, {}], 1, 64 << 20),
    "one empty value": ([{b"\0\0": b""}], 1, 64 << 20),
    "a record in each of many key groups": (
        [{group.to_bytes(2, "big") + b"\0": b"v" for group in range(0, 32_768, 64)}],
        2,
        64 << 20,
    ),
    "values around a block and above": (
        [rows_at([0, 1, 4095, 4096, 4097, 65_535, 65_536, 65_537, 1 << 20], b"\0\5")],
        2,
        64 << 20,
    ),
    "keys above a block": ([{b"\5" + bytes([n]) * 70_000: b"v" for n in range(9)}], 1, 64 << 20),
    "keys that end with zeros": ([{b"\3a" + bytes(n): b"%d" % n for n in range(60)}], 1, 64 << 20),
    "small tables of three states": (
        [rows_at(range(200), b"\0\1", 1), rows_at(range(250), b"\0\2", 2), {}],
        2,
        9000,
    ),
}


@pytest.mark.parametrize("case", IN_ROCKSDB)
def test_rocksdb_itself_opens_what_is_written(case: str, tmp_path: Path) -> None:
    states, prefix, table_bytes = IN_ROCKSDB[case]
    names = FAMILIES[: len(states)]
    files: dict[str, list[ManifestFile]] = {name: [] for name in names}
    tables = tables_of(names, prefix, sections(states, prefix), table_bytes)
    for number, table in enumerate(tables, NEW_MANIFEST_NUMBER + 1):
        files[names[table.state_id]].append(table.table.as_file(number))
        (tmp_path / f"{number:06d}.sst").write_bytes(b"".join(table.table.parts))
    manifest = f"MANIFEST-{NEW_MANIFEST_NUMBER:06d}"
    (tmp_path / manifest).write_bytes(new_manifest(files))
    (tmp_path / "CURRENT").write_text(f"{manifest}\n")

    families = {name: Options(raw_mode=True) for name in ["default", *names]}
    database = Rdict(str(tmp_path), Options(raw_mode=True), families)
    try:
        held = [dict(database.get_column_family(name).items()) for name in names]
        in_order = [list(database.get_column_family(name).keys()) for name in names]
    finally:
        database.close()
    assert held == states
    assert in_order == [sorted(rows) for rows in states]
