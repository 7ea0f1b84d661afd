"""MANIFEST files: those of real Flink, judged by RocksDB itself, and damaged ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocksdict import AccessType, Options, Rdict

from dstl_core import Snapshot
from dstl_core.codec.sst import manifest_edits
from dstl_core.codec.sst.block import varint
from dstl_core.codec.sst.file import SstFile
from dstl_core.codec.sst.manifest import changed_manifest, read_manifest
from dstl_core.errors import FormatError
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    IncrementalRemoteKeyedStateHandle,
    StreamStateHandle,
)
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.state.restore.rocksdb import open_table_files
from tests.golden_files import snapshot

NAMES = [
    "a-rocksdb-checkpoint-incremental",
    "a-rocksdb-heaptimers-checkpoint",
    "forst-async-checkpoint",
    "o-hard-keys-rocksdb",
    "o-rescaled-claim-rocksdb",
    "x-lsm-rocksdb-incremental",
    "x-rescaled-rocksdb-incremental",
]
SMALL = ["a-rocksdb-checkpoint-incremental", "o-rescaled-claim-rocksdb"]


def operator_of(name: str) -> OperatorSnapshot:
    operators = Snapshot.load(snapshot(name)).operators
    return next(each for each in operators if each.keyed_handles)


def handles_of(operator: OperatorSnapshot) -> list[IncrementalRemoteKeyedStateHandle]:
    return [
        handle
        for handle in operator.keyed_handles
        if isinstance(handle, IncrementalRemoteKeyedStateHandle)
    ]


def files_of(name: str, index: int = 0) -> dict[str, bytes]:
    """The files of a handle by their local names."""
    operator = operator_of(name)
    handle = handles_of(operator)[index]
    read = operator.snapshot.resolver.read
    return {local: read(stream) for local, stream in handle.shared + handle.private}


def manifest_in(files: dict[str, bytes]) -> str:
    return files["CURRENT"].decode().strip()


@cache
def raw_of(name: str) -> bytes:
    files = files_of(name)
    return files[manifest_in(files)]


def database(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir()
    for name, raw in files.items():
        if not name.startswith("OPTIONS"):
            (folder / name).write_bytes(raw)
    return folder


def families(folder: Path) -> list[str]:
    return sorted(Rdict.list_cf(str(folder), Options(raw_mode=True)))


def rows(folder: Path, family: str) -> list[tuple[bytes, bytes]]:
    """What RocksDB itself reads."""
    options = {each: Options(raw_mode=True) for each in families(folder)}
    opened = Rdict(
        str(folder),
        Options(raw_mode=True),
        column_families=options,
        access_type=AccessType.read_only(),
    )
    try:
        return list(opened.get_column_family(family).items())
    finally:
        opened.close()


@pytest.mark.parametrize("name", NAMES)
def test_families_are_those_that_rocksdb_sees(name: str, tmp_path: Path) -> None:
    files = files_of(name)
    manifest = read_manifest(files[manifest_in(files)])
    assert sorted(each.name for each in manifest.families.values()) == families(
        database(tmp_path / "db", files)
    )
    assert {f"{number:06d}.sst" for number in manifest.family_of_file} == {
        file_name for file_name in files if file_name.endswith(".sst")
    }
    sizes = {f"{n:06d}.sst": each.files[n].size for n, each in manifest.family_of_file.items()}
    assert sizes == {each: len(raw) for each, raw in files.items() if each.endswith(".sst")}


@pytest.mark.parametrize("name", NAMES)
def test_without_a_change_it_is_the_same_bytes(name: str) -> None:
    assert changed_manifest(raw_of(name), {}, set()) == raw_of(name)


@pytest.mark.parametrize("new", ["n", "a state of another length", "é" * 5000])
def test_rocksdb_reads_a_renamed_family(tmp_path: Path, new: str) -> None:
    files = files_of("x-lsm-rocksdb-incremental")
    before = database(tmp_path / "before", files)
    key = manifest_in(files)
    renamed = files | {key: changed_manifest(files[key], {"v": new, "absent": "x"}, set())}
    after = database(tmp_path / "after", renamed)
    assert families(after) == sorted({*families(before), new} - {"v"})
    # The merge operator is not known here, so lists are left out.
    assert rows(after, new) == rows(before, "v") != []
    assert rows(after, "m") == rows(before, "m")


def test_rocksdb_reads_swapped_and_dropped_families_without_their_files(tmp_path: Path) -> None:
    files = files_of("x-lsm-rocksdb-incremental")
    before = database(tmp_path / "before", files)
    key = manifest_in(files)
    gone = {
        f"{number:06d}.sst"
        for number, family in read_manifest(files[key]).family_of_file.items()
        if family.name == "l"
    }
    assert gone
    changed = changed_manifest(files[key], {"v": "m", "m": "v"}, {"l"})
    left = {name: raw for name, raw in files.items() if name not in gone}
    after = database(tmp_path / "after", left | {key: changed})
    assert families(after) == sorted({*families(before)} - {"l"})
    assert rows(after, "m") == rows(before, "v")
    assert rows(after, "v") == rows(before, "m")


def test_two_families_of_one_name_are_refused() -> None:
    raw = raw_of("x-lsm-rocksdb-incremental")
    with pytest.raises(FormatError, match="would have the same name"):
        changed_manifest(raw, {"v": "m"}, set())
    changed_manifest(raw, {"v": "m"}, {"m"})


def test_edits_over_several_blocks(tmp_path: Path) -> None:
    """A name of 40,000 bytes goes over two blocks; each length before it moves the cut."""
    raw = raw_of("forst-async-checkpoint")
    for size in (*range(31_900, 32_800, 7), 32_743, 40_000, 70_000):
        long = changed_manifest(raw, {"sum": "s" * size}, set())
        assert "s" * size in {each.name for each in read_manifest(long).families.values()}
        assert changed_manifest(long, {"s" * size: "sum"}, set()) == raw


# ------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(
    "mask", [0x80, *(pytest.param(mask, marks=pytest.mark.soak) for mask in (0x01, 0xFF))]
)
def test_every_changed_byte_is_found(name: str, mask: int) -> None:
    raw = raw_of(name)
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= mask
        with pytest.raises(FormatError):
            read_manifest(bytes(damaged))


def test_every_cut_is_found_or_ends_with_an_edit() -> None:
    raw = raw_of("o-rescaled-claim-rocksdb")
    ends = {at + 7 + int.from_bytes(raw[at + 4 : at + 6], "little") for at in starts(raw)}
    for size in range(1, len(raw)):
        if size not in ends:
            with pytest.raises(FormatError):
                read_manifest(raw[:size])


def starts(raw: bytes) -> Iterator[int]:
    at = 0
    while at < len(raw):
        yield at
        at += 7 + int.from_bytes(raw[at + 4 : at + 6], "little")


def test_bytes_between_blocks_are_looked_at() -> None:
    # What is left of the first block is smaller than a header.
    size = next(
        size
        for size in range(31_900, 32_800)
        if changed_manifest(raw_of("forst-async-checkpoint"), {"sum": "s" * size}, set())[
            32_762:32_768
        ]
        == b"\0" * 6
    )
    raw = bytearray(changed_manifest(raw_of("forst-async-checkpoint"), {"sum": "s" * size}, set()))
    raw[32_767] = 1
    with pytest.raises(FormatError, match="The end of a block of a MANIFEST is not empty"):
        read_manifest(bytes(raw))


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_edits_of_any_bytes_are_read_or_refused(edits: list[bytes]) -> None:
    try:
        read_manifest(manifest_edits.framed(iter(edits)))
    except FormatError:
        pass


@given(st.randoms(use_true_random=False), st.integers(1, 4))
def test_changed_edits_with_right_checksums_are_read_or_refused(
    chance: random.Random, count: int
) -> None:
    edits = [
        edit for edit, _ in manifest_edits.edits_of(raw_of("a-rocksdb-checkpoint-incremental"))
    ]
    for _ in range(count):
        index = chance.randrange(len(edits))
        edit = bytearray(edits[index])
        if edit:
            edit[chance.randrange(len(edit))] = chance.randrange(256)
        edits[index] = bytes(edit)
    try:
        read_manifest(manifest_edits.framed(iter(edits)))
    except FormatError:
        pass


Streams = dict[str, StreamStateHandle]


def opened_with(change: Callable[[Streams], None], name: str) -> dict[str, int]:
    """Files of each family, of a handle with other streams."""
    operator = operator_of(name)
    handle = handles_of(operator)[0]
    streams = dict(handle.shared + handle.private)
    change(streams)
    changed = replace(handle, shared=tuple(streams.items()), private=())
    opened = open_table_files(changed, operator.snapshot.resolver)
    return {family: len(files) for family, files in opened.items()}


def test_every_changed_byte_of_current_is_found() -> None:
    for at in range(16):

        def damage(streams: Streams, at: int = at) -> None:
            raw = bytearray(b"MANIFEST-000005\n")
            raw[at] ^= 1
            streams["CURRENT"] = ByteStreamStateHandle("c", bytes(raw))

        with pytest.raises(FormatError, match="CURRENT names no MANIFEST"):
            opened_with(damage, "a-rocksdb-checkpoint-incremental")


@pytest.mark.parametrize("lost", ["CURRENT", "MANIFEST-000005", "000025.sst"])
def test_a_lost_file_is_named(lost: str) -> None:
    with pytest.raises(FormatError, match=f"{lost.split('-')[0]}"):
        opened_with(lambda streams: streams.pop(lost) and None, "a-rocksdb-checkpoint-incremental")


@pytest.mark.parametrize("name", NAMES)
def test_exchanged_files_are_found(name: str) -> None:
    """Of every two table files of different families."""
    files = files_of(name)
    members = read_manifest(files[manifest_in(files)]).family_of_file
    problems = set()
    for one, own in members.items():
        for two, other in members.items():
            if own is other or one > two:
                continue

            def exchange(streams: Streams, one: int = one, two: int = two) -> None:
                a, b = f"{one:06d}.sst", f"{two:06d}.sst"
                streams[a], streams[b] = streams[b], streams[a]

            with pytest.raises(FormatError, match="of a MANIFEST is another one") as refused:
                opened_with(exchange, name)
            is_other_size = own.files[one].size != other.files[two].size
            problems.add(("bytes" in str(refused.value), is_other_size))
    assert problems <= {(True, True), (False, False)}


@pytest.mark.parametrize("name", NAMES)
def test_each_file_has_the_id_that_its_manifest_says(name: str) -> None:
    files = files_of(name)
    for number, family in read_manifest(files[manifest_in(files)]).family_of_file.items():
        raw = files[f"{number:06d}.sst"]
        file = SstFile(lambda start, end, raw=raw: raw[start:end], len(raw))
        assert file.unique_id == family.files[number].unique_id is not None


@pytest.mark.parametrize("has_ids", [True, False])
def test_files_of_the_same_size_are_told_apart(has_ids: bool) -> None:
    """By their ids, and where older RocksDB stores none, by the family in them."""
    files = files_of("x-lsm-rocksdb-incremental")
    key = manifest_in(files)
    members = read_manifest(files[key]).family_of_file
    one, two = (
        next(number for number, family in members.items() if family.name == name)
        for name in ("v", "m")
    )
    raw = {number: files[f"{number:06d}.sst"] for number in (one, two)}
    sizes = {one: len(raw[two]), two: len(raw[one])}

    def exchange(streams: Streams) -> None:
        for number, other in ((one, two), (two, one)):
            streams[f"{number:06d}.sst"] = ByteStreamStateHandle(f"{number}", raw[other])
        # A MANIFEST that has the sizes of the exchanged files.
        edits = [edit for edit, _ in manifest_edits.edits_of(files[key])]
        for number, size in sizes.items():
            old = varint(number) + varint(members[number].files[number].size)
            new = varint(number) + varint(size)
            edits = [edit.replace(old, new) for edit in edits]
            unique_id = members[number].files[number].unique_id
            assert unique_id is not None
            if not has_ids:
                edits = [edit.replace(unique_id, bytes(16)) for edit in edits]
        streams[key] = ByteStreamStateHandle("m", manifest_edits.framed(iter(edits)))

    message = "is another one" if has_ids else "A table file is of another column family"
    with pytest.raises(FormatError, match=message):
        opened_with(exchange, "x-lsm-rocksdb-incremental")


def test_a_file_that_the_manifest_does_not_name_is_not_read() -> None:
    name = "a-rocksdb-checkpoint-incremental"

    def add(streams: Streams) -> None:
        streams["000999.sst"] = ByteStreamStateHandle("garbage", b"not a table")

    assert opened_with(add, name) == opened_with(lambda _: None, name)


def test_files_of_a_renamed_family_are_those_of_its_new_name() -> None:
    """The table files still have the old one in their properties."""
    name = "x-lsm-rocksdb-incremental"
    files = files_of(name)
    key = manifest_in(files)
    before = opened_with(lambda _: None, name)

    def rename(streams: Streams) -> None:
        raw = changed_manifest(files[key], {"v": "w", "m": "l", "l": "m"}, set())
        streams[key] = ByteStreamStateHandle("m", raw)

    after = opened_with(rename, name)
    assert (after.pop("w"), after.pop("l"), after.pop("m")) == (
        before.pop("v"),
        before.pop("m"),
        before.pop("l"),
    )
    assert after == before
