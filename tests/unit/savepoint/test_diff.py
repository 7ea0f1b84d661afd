"""What differs between two snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstl_core.savepoint import Snapshot, diff_snapshots, rewrite_savepoint
from dstl_core.savepoint.diff import counts_of
from tests.golden_files import snapshot
from tests.integration.flink.checker import State
from tests.integration.flink.writing import write_savepoint

STATES = [State("n", "value", "long"), State("names", "list", "string")]


def put(key: str, value: int) -> dict:
    return {"key": key, "state": "n", "do": "update", "value": value}


@pytest.mark.parametrize(
    "other", ["a-rocksdb-canonical", "a-hashmap-native", "a-rocksdb-native-incremental"]
)
def test_the_same_job_in_other_forms_does_not_differ(other: str) -> None:
    before = Snapshot.load(snapshot("a-hashmap-canonical"))
    after = Snapshot.load(snapshot(other))
    keyed = [each for each in diff_snapshots(before, after) if each.operator == "a-keyed"]
    assert keyed == []


def test_another_max_parallelism_is_no_difference(tmp_path: Path) -> None:
    before = Snapshot.load(snapshot("a-hashmap-canonical"))
    after = Snapshot.load(rewrite_savepoint(before, tmp_path / "out", max_parallelism=17))
    assert list(diff_snapshots(before, after)) == []


def test_added_removed_and_changed_entries(tmp_path: Path) -> None:
    old = write_savepoint(
        tmp_path / "a", "op", "string", STATES, [put("same", 1), put("gone", 2), put("other", 3)]
    )
    new = write_savepoint(
        tmp_path / "b", "op", "string", STATES, [put("same", 1), put("new", 2), put("other", 4)]
    )
    found = list(diff_snapshots(Snapshot.load(old), Snapshot.load(new)))
    assert {(each.change, each.key, each.before, each.after) for each in found} == {
        ("removed", "gone", 2, None),
        ("added", "new", None, 2),
        ("changed", "other", 3, 4),
    }
    assert counts_of(iter(found)) == {
        ("op", "value", "n"): {"added": 1, "removed": 1, "changed": 1}
    }


def test_an_operator_on_one_side_only_is_added_or_removed(tmp_path: Path) -> None:
    old = write_savepoint(tmp_path / "a", "one", "string", STATES, [put("k", 1)])
    new = write_savepoint(tmp_path / "b", "two", "string", STATES, [put("k", 1)])
    found = list(diff_snapshots(Snapshot.load(old), Snapshot.load(new)))
    assert {(each.operator, each.change) for each in found} == {
        ("one", "removed"),
        ("two", "added"),
    }
