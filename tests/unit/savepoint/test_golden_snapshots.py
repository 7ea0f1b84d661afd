"""Snapshots by real Flink: what we dump is what Flink restored from them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.checkpoint.store.metadata_file import load_metadata_file
from dstl_core.errors import FormatError
from dstl_core.model.handle import ByteStreamStateHandle, KeyGroupsSavepointStateHandle
from dstl_core.savepoint.read.entries import KeyedEntry
from dstl_core.state.restore.into_tables import restore_keyed_state
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from tests.golden_files import SNAPSHOTS, Fixture, as_lines, snapshot

EVERY_FORM = [fixture for fixture in SNAPSHOTS if fixture.name.startswith("a-")]
"""One job, in each form of savepoints and checkpoints."""


def dumped(folder: Path) -> list[dict[str, Any]]:
    loaded = Snapshot.load(folder)
    lines = [line for operator in loaded.operators for line in operator.dump()]
    # As a reader of the text gets it.
    return json.loads(json.dumps(lines))


@pytest.mark.parametrize("fixture", SNAPSHOTS, ids=str)
def test_every_entry_is_what_real_flink_restored(fixture: Fixture) -> None:
    assert as_lines(dumped(fixture.snapshot)) == as_lines(fixture.truth)


@pytest.mark.slow
@pytest.mark.parametrize("fixture", SNAPSHOTS, ids=str)
def test_what_only_java_can_read_is_reported_entry_by_entry(fixture: Fixture) -> None:
    loaded = Snapshot.load(fixture.snapshot)
    unreadable = [each for operator in loaded.operators for each in operator.unreadable()]
    assert Counter(
        (unread.operator, unread.kind, unread.state, json.dumps(unread.entry.to_line()["key"]))
        for unread in unreadable
        if isinstance(unread.entry, KeyedEntry)
    ) == Counter(
        (line["op"], line["kind"], line["state"], json.dumps(line["key"]))
        for line in fixture.unreadable
    )
    assert len(unreadable) == len(fixture.unreadable)


def test_the_snapshots_cover_backends_formats_and_releases() -> None:
    assert len(SNAPSHOTS) >= 69
    assert sum(len(fixture.truth) for fixture in SNAPSHOTS) > 14_000
    # o-wide has a subclass that nobody registered.
    assert [
        (fixture.name, len(fixture.unreadable)) for fixture in SNAPSHOTS if fixture.unreadable
    ] == [
        ("o-wide", 18),
        ("x-kryo-hashmap", 34),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("fixture", EVERY_FORM, ids=str)
def test_a_moved_snapshot_is_read_at_its_new_place(fixture: Fixture, tmp_path: Path) -> None:
    """All others have moved, too: Flink wrote them in another folder."""
    moved = tmp_path / "elsewhere"
    shutil.copytree(fixture.folder, moved)
    lines = dumped(Fixture(moved).snapshot)
    assert as_lines(lines) == as_lines(fixture.truth)


@pytest.mark.parametrize("fixture", SNAPSHOTS, ids=str)
def test_operators_and_states_are_those_of_the_job(fixture: Fixture) -> None:
    loaded = Snapshot.load(fixture.snapshot)
    for operator in fixture.descriptor["operators"]:
        operator_loaded = loaded[f"hash:{operator['uidHash']}"]
        assert (operator_loaded.parallelism, operator_loaded.max_parallelism) == (
            operator["parallelism"],
            operator["maxParallelism"],
        )
        names = {
            info.name for info in operator_loaded.states if not info.name.startswith("_timer_state")
        }
        assert names >= {state["name"] for state in operator.get("states", [])}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["a-hashmap-canonical", "a-rocksdb-canonical", "a-hashmap-canonical-compressed"]
)
def test_cutting_keyed_state_anywhere_is_a_format_error(name: str) -> None:
    folder = Location.parse(snapshot(name))
    loaded = Snapshot.load(str(folder))
    operator = loaded["a-keyed"]
    handle = operator.keyed_handles[0]
    assert isinstance(handle, KeyGroupsSavepointStateHandle)
    raw = loaded.resolver.read(handle.stream)
    for size in range(len(raw)):
        cut = replace(handle, stream=ByteStreamStateHandle("h", raw[:size]))
        with pytest.raises(FormatError):
            restore_keyed_state(
                [cut], cut.key_group_range, operator.max_parallelism, loaded.resolver
            )


def texts(state: KeyedState, key_group: int) -> list[tuple[str, str]]:
    """As text, since a NaN is not equal to itself."""
    return [
        (table.meta.name, repr([repr(part) for part in entry]))
        for table, entry in state.rows(key_group)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("fixture", SNAPSHOTS, ids=str)
def test_restored_state_is_written_back_with_the_same_contents(fixture: Fixture) -> None:
    loaded = Snapshot.load(fixture.snapshot)
    for operator in loaded.operators:
        for handle in operator.keyed_handles:
            state = operator.restore([handle], handle.key_group_range)
            raw, offsets = state.write_canonical()
            again = KeyGroupsSavepointStateHandle(offsets, ByteStreamStateHandle("h", raw))
            copy = operator.restore([again], handle.key_group_range)
            assert copy.write_canonical() == (raw, offsets)
            for key_group in handle.key_group_range:
                assert texts(copy, key_group) == texts(state, key_group)


def test_metadata_is_loaded_by_its_file_too() -> None:
    folder = Location.parse(snapshot("a-hashmap-canonical"))
    files = open_file_io(folder)
    assert load_metadata_file(files, folder) == load_metadata_file(files, folder.child("_metadata"))
