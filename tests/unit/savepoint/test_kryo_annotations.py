"""Classes whose form in Kryo is decided by annotations: named, never guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.savepoint.edit.upgrade import BLOCKED, SavepointUpgrade
from tests.command_line import run
from tests.golden_files import GOLDEN

__all__ = ["run"]
FOLDER = GOLDEN / "kryo-own-serializers"
READABLE = {"basket", "ints", "notnull", "tags"}
NAMED = {
    "compat": "Types5$Compat has a Kryo serializer of its own (com.esotericsoftware.kryo."
    "serializers.CompatibleFieldSerializer, by the annotation DefaultSerializer)",
    "tagged": "Types5$Tagged has a Kryo serializer of its own (com.esotericsoftware.kryo."
    "serializers.TaggedFieldSerializer, by the annotation DefaultSerializer)",
    "byjava": "Types5$ByJava has a Kryo serializer of its own (com.esotericsoftware.kryo."
    "serializers.JavaSerializer, by the annotation DefaultSerializer)",
    "opt": "Types5$Opt is stored in a form of its own, by the annotation FieldSerializer$Optional "
    "of its field n",
    "rints": "Types5$RInts has a Kryo serializer of its own (kt.Types5$Rev, by the annotation "
    "DefaultSerializer)",
}
"""The states of both savepoints that only Java reads, and what is said of them."""


def load(release: str) -> Snapshot:
    [savepoint] = (FOLDER / release).glob("savepoint-*")
    return Snapshot.load(str(savepoint), jars=[FOLDER / release / "job.jar"])


@pytest.mark.parametrize("release", ["flink-1.20.5", "flink-2.2.1"])
def test_neighbours_are_read_and_the_others_are_named(run: Any, release: str) -> None:
    [savepoint] = (FOLDER / release).glob("savepoint-*")
    code, out, errors = run("dump", str(savepoint), "--jar", str(FOLDER / release / "job.jar"))
    assert code == 0
    for state in READABLE:
        assert f'"state": "{state}"' in out
    for state, reason in NAMED.items():
        assert f'"state": "{state}"' not in out
        assert reason in errors
    if release == "flink-2.2.1":
        assert "state 'versioned'" in errors
        assert "state 'vints'" in errors


def test_values_are_those_that_flink_holds() -> None:
    [operator] = [each for each in load("flink-2.2.1").operators if each.states]
    held = {line["state"]: line["value"] for line in operator.dump() if line["key"] == 3}
    assert held["ints"] == {"a": 3, "b": -3, "c": 15}
    assert held["notnull"] == {"name": "n3", "n": 3, "in": {"q": 3}}
    assert held["basket"] == ["a3", "b3"]
    assert held["tags"] == [["k3", 3]]


def test_the_plan_of_an_upgrade_blocks_them(tmp_path: Path) -> None:
    steps = SavepointUpgrade(load("flink-1.20.5")).plan()
    blocked = {each.state: each.reason for each in steps if each.action == BLOCKED}
    assert blocked.keys() == NAMED.keys()
    for state, reason in NAMED.items():
        assert reason in blocked[state]
