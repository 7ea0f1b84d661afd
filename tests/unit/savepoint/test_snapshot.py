"""Looking things up in a snapshot: operators by every name, states, splits, lines of text."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstl_core import Snapshot
from dstl_core.checkpoint.store.metadata_file import publish_metadata_file
from dstl_core.errors import (
    ConfigError,
    NoSuchOperatorError,
    NoSuchStateError,
    StateFileNotFoundError,
)
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState
from dstl_core.model.ids import OperatorID, OperatorIdentifier
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from tests.golden_files import snapshot

A_KEYED = "b4752014cabfcda06294954685ce3a12"


@pytest.fixture(scope="module")
def golden() -> Snapshot:
    return Snapshot.load(snapshot("a-hashmap-canonical"))


@pytest.mark.parametrize(
    "name", ["a-keyed", "uid:a-keyed", A_KEYED, A_KEYED.upper(), f"hash:{A_KEYED}", "name:a-keyed"]
)
def test_an_operator_by_uid_hash_or_name(golden: Snapshot, name: str) -> None:
    assert golden[name].operator_id.hex == A_KEYED
    assert golden[name].label == "a-keyed"


def test_an_operator_by_its_identifier(golden: Snapshot) -> None:
    assert golden.operator(OperatorIdentifier.for_uid("a-keyed")).uid == "a-keyed"
    assert golden.operator(OperatorIdentifier.for_uid_hash(A_KEYED)).uid == "a-keyed"
    with pytest.raises(NoSuchOperatorError):
        golden.operator(OperatorIdentifier.for_uid("nobody"))


@pytest.mark.parametrize(
    "name",
    [
        *["nobody", "", "uid:nobody", "uid:", "hash:a-keyed", f"name:{A_KEYED}", "name:nobody"],
        *["00" * 16, "a-keyed\udcff", "uid:\ud800"],
    ],
)
def test_an_unknown_operator_names_those_that_there_are(golden: Snapshot, name: str) -> None:
    with pytest.raises(
        NoSuchOperatorError, match=r"not in the snapshot; .* 'a-keyed', 'sink', 'src'"
    ):
        _ = golden[name]


def made(folder: Path, *operators: OperatorState, version: int = 3) -> Snapshot:
    location = Location.parse(folder)
    metadata = CheckpointMetadata(version, 1, operators)
    publish_metadata_file(open_file_io(location), location, metadata, {})
    return Snapshot.load(folder)


def operator(uid: str, *, name: str = "", stored_uid: str = "") -> OperatorState:
    return OperatorState(OperatorID.for_uid(uid), 1, 128, (), name=name, uid=stored_uid)


def test_a_uid_that_nobody_stored_is_found_by_its_hash(tmp_path: Path) -> None:
    loaded = made(tmp_path / "s", operator("counter"))
    assert loaded["counter"].label == OperatorID.for_uid("counter").hex
    assert loaded["counter"].uid == ""


def test_uids_come_from_the_sidecar_where_the_metadata_has_none(tmp_path: Path) -> None:
    loaded = made(tmp_path / "s", operator("counter", stored_uid="counter"))
    assert loaded.metadata.operators[0].uid == ""
    assert loaded["counter"].label == "counter"


def test_a_name_that_two_operators_have_is_no_name(golden: Snapshot) -> None:
    first, second = golden.operators[:2]
    twin = Snapshot(golden.file, golden.file_io, golden.resolver, golden.registry)
    for twin_operator in twin.operators:
        twin_operator.name = "Map"
    with pytest.raises(NoSuchOperatorError, match="'Map' is in the snapshot more than once"):
        _ = twin["Map"]
    assert {first.label, second.label} <= {each.label for each in golden.operators}


def test_a_uid_comes_before_a_hash_and_a_hash_before_a_name(tmp_path: Path) -> None:
    tricky = OperatorID.for_uid("first").hex
    loaded = made(tmp_path / "s", operator("first"), operator(tricky))
    # The text is the hash of one operator and the uid of the other.
    assert loaded[tricky].operator_id == OperatorID.for_uid(tricky)
    assert loaded[f"hash:{tricky}"].operator_id == OperatorID.for_uid("first")


def test_states_by_name(golden: Snapshot) -> None:
    states = {info.name: (info.kind, info.type) for info in golden["a-keyed"].states}
    assert states == {
        "_timer_state/event_user-timers": ("event-timer", "Timer<String, VoidNamespace>"),
        "_timer_state/processing_user-timers": ("proc-timer", "Timer<String, VoidNamespace>"),
        "agg": ("aggregating", "Tuple2<Long, Long>"),
        "cnt": ("value", "Long"),
        "m": ("map", "Map<String, Long>"),
        "names": ("list", "List<String>"),
        "red": ("reducing", "Long"),
    }
    assert golden["a-keyed"].state_info("cnt").kind == "value"
    with pytest.raises(
        NoSuchStateError, match=r"'x' is not in operator 'a-keyed'; it has: .*'cnt'"
    ):
        golden["a-keyed"].state_info("x")
    with pytest.raises(NoSuchStateError, match="it has: none"):
        golden["src"].state_info("x")


def test_dump_of_one_state(golden: Snapshot) -> None:
    lines = list(golden["a-keyed"].dump("cnt"))
    assert len(lines) == 36
    assert {line["state"] for line in lines} == {"cnt"}
    with pytest.raises(NoSuchStateError):
        list(golden["a-keyed"].dump("x"))


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, [128]), (3, [42, 43, 43]), (128, [1] * 128), (500, [1] * 128)]
)
def test_splits_cover_all_key_groups(golden: Snapshot, count: int, sizes: list[int]) -> None:
    splits = golden["a-keyed"].key_group_splits(count)
    assert [len(each) for each in splits] == sizes
    assert [group for each in splits for group in each] == list(range(128))


@pytest.mark.parametrize("count", [0, -1])
def test_there_is_at_least_one_split(golden: Snapshot, count: int) -> None:
    with pytest.raises(ConfigError, match=f"at least one split, got {count}"):
        golden["a-keyed"].key_group_splits(count)


def test_how_state_is_stored() -> None:
    forms = {
        "a-hashmap-canonical": "canonical",
        "a-hashmap-native": "heap",
        "a-rocksdb-checkpoint-incremental": "rocksdb files",
        "a-hashmap-changelog-materialized": "changelog on heap",
        "a-rocksdb-changelog-materialized": "changelog on rocksdb files",
        "a-hashmap-changelog-multi": "changelog on nothing",
    }
    assert {name: Snapshot.load(snapshot(name))["a-keyed"].form() for name in forms} == forms
    assert Snapshot.load(snapshot("a-hashmap-canonical"))["src"].form() == "none"


def test_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(StateFileNotFoundError, match="There is no snapshot"):
        Snapshot.load(tmp_path)


def test_a_restored_part_is_that_part(golden: Snapshot) -> None:
    keyed = golden["a-keyed"]
    state = keyed.restore(keyed.keyed_handles, KeyGroupRange(35, 35))
    assert state.key_groups == KeyGroupRange(35, 35)
    lines = [line for line in keyed.dump("cnt") if line["kg"] == 35]
    rows = [(key, value) for table, (key, _, value) in state.rows(35) if table.meta.name == "cnt"]
    assert rows == [(line["key"], line["value"]) for line in lines]
