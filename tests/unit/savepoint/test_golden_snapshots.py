"""Snapshots by real Flink: what we dump is what Flink restored from them."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from dstl_core.checkpoint.metadata_file import load_metadata_file
from dstl_core.errors import DstlError, FormatError
from dstl_core.model.handle import ByteStreamStateHandle, KeyGroupsSavepointStateHandle
from dstl_core.savepoint import Snapshot
from dstl_core.state.keyed_state import restore_keyed_state
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from tests.golden_files import SNAPSHOTS, WHOLE_SNAPSHOTS, Fixture, as_lines, snapshot


def keyed(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry for entry in entries if not entry["kind"].startswith("op-")]


def dumped(fixture: Fixture) -> list[dict[str, Any]]:
    loaded = Snapshot.load(fixture.snapshot)
    lines = [line for operator in loaded.operators for line in operator.dump()]
    # As a reader of the text gets it.
    return json.loads(json.dumps(lines))


@pytest.mark.parametrize("fixture", WHOLE_SNAPSHOTS, ids=str)
def test_every_entry_is_what_real_flink_restored(fixture: Fixture) -> None:
    assert as_lines(keyed(dumped(fixture))) == as_lines(keyed(fixture.truth))


def test_the_whole_snapshots_cover_backends_formats_and_sizes() -> None:
    assert {fixture.name for fixture in WHOLE_SNAPSHOTS} >= {
        "a-hashmap-canonical",
        "a-hashmap-canonical-compressed",
        "a-hashmap-canonical-files",
        "a-hashmap-canonical-flink1.20.5",
        "a-hashmap-p3-max17",
        "a-rocksdb-canonical",
        "a-rocksdb-p2-max4096",
        "c-opstate-hashmap",
        "e-ttl-hashmap",
        "f-two-ops-hashmap",
    }
    assert sum(len(keyed(fixture.truth)) for fixture in WHOLE_SNAPSHOTS) > 3000


@pytest.mark.parametrize("fixture", WHOLE_SNAPSHOTS, ids=str)
def test_operators_and_states_are_those_of_the_job(fixture: Fixture) -> None:
    loaded = Snapshot.load(fixture.snapshot)
    for operator in fixture.descriptor["operators"]:
        found = loaded[f"hash:{operator['uidHash']}"]
        assert (found.parallelism, found.max_parallelism) == (
            operator["parallelism"],
            operator["maxParallelism"],
        )
        names = {info.name for info in found.states if not info.name.startswith("_timer_state")}
        assert names >= {state["name"] for state in operator.get("states", [])}


@pytest.mark.parametrize("fixture", SNAPSHOTS, ids=str)
def test_what_cannot_be_read_is_named_and_breaks_nothing_else(fixture: Fixture) -> None:
    loaded = Snapshot.load(fixture.snapshot)
    for operator in loaded.operators:
        problem = operator.problem()
        if problem is None:
            list(islice(operator.dump(), 1))
        else:
            assert problem
            with pytest.raises(DstlError):
                list(operator.dump())
    readable = [each for each in loaded.operators if each.problem() is None]
    assert readable, "the source and the sink at least have no keyed state"


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


@pytest.mark.parametrize("fixture", WHOLE_SNAPSHOTS, ids=str)
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
                assert [(table.meta, entry) for table, entry in copy.rows(key_group)] == [
                    (table.meta, entry) for table, entry in state.rows(key_group)
                ]


def test_metadata_is_loaded_by_its_file_too() -> None:
    folder = Location.parse(snapshot("a-hashmap-canonical"))
    files = open_file_io(folder)
    assert load_metadata_file(files, folder) == load_metadata_file(files, folder.child("_metadata"))
