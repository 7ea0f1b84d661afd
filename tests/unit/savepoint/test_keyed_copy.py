"""State as bytes into other sections: the same with any memory, of every key and value type."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest

from dstl_core import Snapshot, rewrite_savepoint
from dstl_core.errors import ConfigError, StorageError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.edit.keyed_units import range_sections, sections_for, shuffle_of
from dstl_core.savepoint.edit.rewriting import Output
from dstl_core.savepoint.read.state_parts import StatesOf, merged_header
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.state.columns.keyed_sections import KeyedSections
from tests.golden_files import as_lines, snapshot


@pytest.mark.parametrize("count", [128, 4096])
@pytest.mark.parametrize(
    "name", ["a-hashmap-canonical", "a-rocksdb-checkpoint-incremental", "x-lsm-rocksdb-incremental"]
)
def test_little_memory_gives_the_same_sections(name: str, count: int, tmp_path: Path) -> None:
    operator = next(each for each in Snapshot.load(snapshot(name)).operators if each.keyed_handles)
    parts = [StatesOf(operator)]
    header = merged_header(parts)
    assert header is not None
    output = Output(SavepointFolder(tmp_path))
    with (
        sections_for(parts, header, count) as large,
        sections_for(parts, header, count, memory=1) as small,
    ):
        for sections in (large, small):
            shuffle_of(parts, header, count).into(sections, output)
        groups = KeyGroupRange(0, count - 1)
        own_sections = [large.section(each) for each in groups]
        assert own_sections == [small.section(each) for each in groups]
        assert any(own_sections)
        assert b"".join(large.stream()) == b"".join(small.stream())


@pytest.mark.parametrize(("has_digits", "least", "most"), [(True, 0.35, 0.6), (False, 0.8, 1)])
def test_records_in_the_temporary_file_are_packed(
    has_digits: bool, least: float, most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digits take half of their bytes, and random bytes all of them."""
    operator = next(o for o in Snapshot.load(snapshot("a-hashmap-canonical")).operators if o.states)
    header = merged_header([StatesOf(operator)])
    assert header is not None and not header.compressed
    spill = tmp_path / "spill"
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda prefix, dir: spill.open("w+b"))
    chance, runs = random.Random(7), []
    for size in (100, 5_000, 1 << 21, 3_000, 1 << 20, 20_000):
        for place in range(6):
            raw = chance.randbytes(size)
            runs.append((place % 2, place // 2, raw.hex()[:size].encode() if has_digits else raw))
    with KeyedSections(
        header, KeyGroupRange(0, 3), 128, memory=3 << 20, check_duplicates=False
    ) as sections:
        for state, key_group, raw in runs:
            sections.add_run(state, key_group, raw)
        written = spill.stat().st_size
        for key_group in range(3):
            own = [
                raw
                for at in (0, 1)
                for state, group, raw in runs
                if (state, group) == (at, key_group)
            ]
            assert sections.section(key_group) == b"".join([*own, b"\xff\xff"])
        assert sections.section(3) == b""
        told = sections.packed_bytes - sections.packed_memory
    total = sum(len(raw) for _, _, raw in runs)
    assert least * total < written <= told + (1 << 20) < most * total


def test_records_without_room_are_refused_before_they_are_read() -> None:
    [operator] = [o for o in Snapshot.load(snapshot("a-hashmap-canonical")).operators if o.states]
    parts = [StatesOf(operator)]
    header = merged_header(parts)
    assert header is not None
    with sections_for(parts, header, 17, memory=1 << 20) as sections:
        sections.check_room(1 << 20)
        with pytest.raises(
            StorageError, match=r"expected 4\.0 EiB free .* 1\.0 MiB of memory, got "
        ):
            sections.check_room(1 << 62)


@pytest.mark.slow
def test_every_key_type_is_moved_to_its_key_groups(tmp_path: Path) -> None:
    source = Snapshot.load(snapshot("x-keys-hashmap"))
    kept = [each for each in source.operators if each.label != "k-pojo"]
    before = [{**line, "kg": 0} for each in kept for line in each.dump()]
    out = rewrite_savepoint(source, tmp_path / "out", remove=["k-pojo"], max_parallelism=512)
    moved = Snapshot.load(out)
    after = [{**line, "kg": 0} for each in moved.operators for line in each.dump()]
    assert as_lines(after) == as_lines(before)
    assert verify_snapshot(moved).findings == [], "every key is in its key group"


@pytest.mark.slow
def test_keys_whose_hash_only_java_knows_are_refused(tmp_path: Path) -> None:
    source = Snapshot.load(snapshot("x-keys-hashmap"))
    with pytest.raises(ConfigError, match="cannot be a key: its Java hash is not known"):
        rewrite_savepoint(source, tmp_path / "out", max_parallelism=512)
    assert not (tmp_path / "out" / "_metadata").exists()


def test_values_that_only_java_reads_are_moved_as_they_are(tmp_path: Path) -> None:
    source = Snapshot.load(snapshot("x-kryo-hashmap"))
    out = rewrite_savepoint(source, tmp_path / "out", max_parallelism=512)
    back = rewrite_savepoint(Snapshot.load(out), tmp_path / "back", max_parallelism=128)
    old, new = source["with-kryo"], Snapshot.load(back)["with-kryo"]
    groups = KeyGroupRange(0, 127)
    sections = []
    for operator in (old, new):
        parts = [StatesOf(operator)]
        header = merged_header(parts)
        assert header is not None
        with range_sections(parts, header, 128, groups) as collected:
            sections.append([sorted(collected.section(each)) for each in groups])
    assert sections[0] == sections[1]
    assert [info.type for info in new.states] == [info.type for info in old.states]
