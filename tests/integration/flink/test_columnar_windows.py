"""Windows that were read as columns and written from them fire in Flink's own window operators,
with the contents, the timers and the state of triggers that they had.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from tests.columnar_copies import copy_through_columns
from tests.golden_files import GOLDEN as FOLDER
from tests.golden_files import Fixture
from tests.integration.flink.checker import Entry, FlinkChecker, Operator, Windows
from tests.integration.flink.model import texts

pytestmark = pytest.mark.flink

FIXTURE = Fixture(FOLDER / "d-windows-hashmap")
MINUTE = 60_000
END_OF_TIME = 2**63 - 1
WINDOWS = {
    "d-tumble-agg": Windows("tumbling", "aggregate", MINUTE),
    "d-tumble-reduce": Windows("tumbling", "reduce", MINUTE),
    "d-count-trigger": Windows("tumbling", "reduce", MINUTE, trigger="count", every=3),
    "d-session": Windows("session", "aggregate", 25_000),
    "d-evictor": Windows("tumbling", "process", MINUTE, keep=100),
    "d-process": Windows("tumbling", "process", MINUTE),
    "d-count-window": Windows("count", "reduce", 7),
    "d-sliding": Windows("sliding", "reduce", MINUTE, 20_000),
    "d-window-state": Windows(
        "tumbling", "process", MINUTE, trigger="continuous", every=20_000, with_state=True
    ),
}
OPERATORS = [Operator(uid, windows=windows) for uid, windows in WINDOWS.items()]


def contents(uid: str, state: str = "window-contents") -> list[Entry]:
    """What Flink itself restored of a state."""
    return [each for each in FIXTURE.truth if each["op"] == uid and each.get("state") == state]


def missing_elements() -> list[Entry]:
    """What makes every window fire that counts its elements: so many of 0 as it still waits for."""
    elements = []
    for uid, most in (("d-count-trigger", 3), ("d-count-window", 7)):
        for entry in contents(uid, "count"):
            element = {"op": uid, "key": entry["key"], "value": 0, "ts": 0}
            if isinstance(entry["ns"], list):
                element["ts"] = entry["ns"][0]
            elements += [element] * (most - entry["value"])
    return elements


def check_contents(fired: list[Entry]) -> None:
    """Every operator fired, and those without other functions with what Flink had restored."""
    assert {each["op"] for each in fired} == set(WINDOWS)
    for uid in ("d-tumble-agg", "d-tumble-reduce", "d-sliding", "d-process"):
        stored = {(each["key"], *each["ns"]): each["value"] for each in contents(uid)}
        if uid != "d-process":
            stored = {place: [value] for place, value in stored.items()}
        own = [each for each in fired if each["op"] == uid]
        assert {(each["key"], *each["ns"]): each["value"] for each in own} == stored
    sums = {each["key"]: each["value"][1] for each in contents("d-count-window")}
    counted = [each for each in fired if each["op"] == "d-count-window"]
    assert {each["key"]: each["value"][0][1] for each in counted} == sums


@pytest.mark.parametrize(
    ("backend", "compressed", "parallelism"), [("hashmap", True, 3), ("rocksdb", False, 1)]
)
def test_windows_fire_with_their_contents(
    flink: FlinkChecker, tmp_path: Path, backend: str, compressed: bool, parallelism: int
) -> None:
    source = Snapshot.load(FIXTURE.snapshot)
    ours = copy_through_columns(source, tmp_path / "ours", compressed=compressed)
    options: dict[str, Any] = {"watermark": END_OF_TIME, "updates": missing_elements()}

    expected = flink.restore(FIXTURE.snapshot, OPERATORS, parallelism=2, **options).fired
    fired = flink.restore(
        ours, OPERATORS, backend=backend, parallelism=parallelism, **options
    ).fired

    assert texts(fired) == texts(expected)
    check_contents(fired)
