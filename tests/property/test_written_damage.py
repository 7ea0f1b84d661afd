"""Files of RocksDB that dstl wrote: flipped, lost and exchanged. Nothing but what is right, or an
error.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

import pytest

from dstl_core import Snapshot, rewrite_savepoint
from dstl_core.codec.sst.manifest import read_manifest
from dstl_core.errors import FormatError
from dstl_core.savepoint.edit import kept_state
from dstl_core.savepoint.write import folder as written_folder
from tests.golden_files import Fixture, snapshot
from tests.property.file_damage import (
    DamagedFile,
    answer_with,
    files_of_databases,
    right_answer,
)

SOURCE = "a-rocksdb-native-incremental"
UID = "a-keyed"
MOVED = ["cnt", "names", "_timer_state/event_user-timers"]


def _renamed(source: Snapshot, out: Path) -> None:
    """The MANIFEST has other names, and families that are gone."""
    names = {(UID, "cnt"): "m", (UID, "m"): "cnt"}
    rewrite_savepoint(source, out, rename_states=names, drop_states=[(UID, "red")], files="copy")


def _split(source: Snapshot, out: Path) -> None:
    """Two operators have the same table files, each with families of its own."""
    rewrite_savepoint(source, out, split={(UID, "apart"): MOVED}, files="copy")


def _merged(source: Snapshot, out: Path) -> None:
    """One MANIFEST is joined from two, with new numbers of files."""
    apart = out.with_name("apart")
    _split(source, apart)
    rewrite_savepoint(Snapshot.load(apart), out, merge={"apart": UID}, files="copy")


def _purged(source: Snapshot, out: Path) -> None:
    """Some table files are written again."""
    keys = sorted({str(line["key"]) for line in source[UID].dump("cnt")})[:2]
    rewrite_savepoint(source, out, erase_keys={UID: keys}, files="copy")


def _composed(source: Snapshot, out: Path) -> None:
    """All files are new."""
    canonical = out.with_name("canonical")
    rewrite_savepoint(source, canonical, files="canonical")
    rewrite_savepoint(Snapshot.load(canonical), out, format="native")


RESULTS: dict[str, Callable[[Snapshot, Path], None]] = {
    "renamed": _renamed,
    "split": _split,
    "merged": _merged,
    "purged": _purged,
    "composed": _composed,
}
ALL_AT_ONCE = [0x80, *(pytest.param(mask, marks=pytest.mark.soak) for mask in (0x01, 0x10, 0xFF))]


@contextmanager
def every_stream_is_a_file() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (written_folder, kept_state):
            patch.setattr(module, "DATA_INLINE_THRESHOLD", 0)
        yield


@pytest.fixture(scope="module", params=RESULTS)
def result(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fixture:
    folder = tmp_path_factory.mktemp("written") / request.param
    with every_stream_is_a_file():
        RESULTS[request.param](Snapshot.load(snapshot(SOURCE)), folder)
    assert len(right_answer(Fixture(folder))) > 30
    return Fixture(folder)


def named(result: Fixture, start: str) -> list[Path]:
    """Files by what their local names begin with."""
    local = files_of_databases(result)
    return [result.folder / name for name, own in sorted(local.items()) if own.startswith(start)]


def tables(result: Fixture) -> list[Path]:
    local = files_of_databases(result)
    return [result.folder / name for name, own in sorted(local.items()) if own.endswith(".sst")]


def changed(raw: bytes, at: int, mask: int) -> bytes:
    damaged = bytearray(raw)
    damaged[at] ^= mask
    return bytes(damaged)


@pytest.mark.parametrize("mask", ALL_AT_ONCE)
def test_every_changed_byte_of_a_manifest_is_found(result: Fixture, mask: int) -> None:
    manifests = named(result, "MANIFEST")
    assert len(manifests) >= 2
    for path in manifests:
        raw = path.read_bytes()
        read_manifest(raw)
        for at in range(len(raw)):
            with pytest.raises(FormatError):
                read_manifest(changed(raw, at, mask))


@pytest.mark.parametrize("step", [211, pytest.param(1, marks=pytest.mark.soak)])
def test_state_behind_a_changed_byte_is_right_or_refused(result: Fixture, step: int) -> None:
    for path in [*named(result, "MANIFEST"), *named(result, "CURRENT"), *tables(result)]:
        file = DamagedFile(result, path)
        for at in range(step // 2 % len(file.raw), len(file.raw), step):
            file.check(changed(file.raw, at, 0x40))


def test_a_lost_file_is_refused(result: Fixture) -> None:
    for path in [*named(result, "MANIFEST"), *named(result, "CURRENT"), *tables(result)]:
        assert answer_with(result, {path: None}) is None, path


def test_exchanged_files_are_refused(result: Fixture) -> None:
    """Of every two: lists of files, and table files."""
    for every in (named(result, "MANIFEST"), tables(result)):
        raw = {path: path.read_bytes() for path in every}
        for one, two in combinations(every, 2):
            if raw[one] != raw[two]:
                exchanged = {one: raw[two], two: raw[one]}
                assert answer_with(result, exchanged) is None, (one, two)


def test_files_of_another_result_are_refused(result: Fixture, tmp_path: Path) -> None:
    """The list of files before the change, or of a purge of other keys, with all that it names."""
    before = Fixture(tmp_path / "before")
    with every_stream_is_a_file():
        rewrite_savepoint(
            Snapshot.load(snapshot(SOURCE)), before.folder, rename={UID: "x"}, files="copy"
        )
    for path in named(result, "MANIFEST"):
        for other in named(before, "MANIFEST"):
            answer = answer_with(result, {path: other.read_bytes()})
            assert answer in (None, right_answer(result)), (path, other)


def test_random_flips_of_written_files(result: Fixture) -> None:
    chance = random.Random(result.name)
    every = [path for path in sorted(result.folder.iterdir()) if path.name != "_dstl.json"]
    for path in chance.sample(every, min(8, len(every))):
        file = DamagedFile(result, path)
        if file.raw:
            file.check(changed(file.raw, chance.randrange(len(file.raw)), 1))
