"""Windows that were read as columns and written from them fire in Flink's own window operators,
with the contents, the timers and the state of triggers that they had.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dstl_core.savepoint import Snapshot
from tests.columnar_copies import copy_through_columns
from tests.golden_files import GOLDEN as FOLDER
from tests.golden_files import Fixture
from tests.integration.flink.checker import Entry, FlinkChecker, Operator
from tests.integration.flink.model import texts

pytestmark = pytest.mark.flink

FIXTURE = Fixture(FOLDER / "d-windows-hashmap")
MINUTE = 60_000
END_OF_TIME = 2**63 - 1
TUMBLING = {"assigner": "tumbling", "size": MINUTE}
WINDOWS: dict[str, dict[str, Any]] = {
    "d-tumble-agg": {**TUMBLING, "function": "aggregate"},
    "d-tumble-reduce": {**TUMBLING, "function": "reduce"},
    "d-count-trigger": {**TUMBLING, "trigger": "count", "every": 3, "function": "reduce"},
    "d-session": {"assigner": "session", "size": 25_000, "function": "aggregate"},
    "d-evictor": {**TUMBLING, "evictor": 100, "function": "process"},
    "d-process": {**TUMBLING, "function": "process"},
    "d-count-window": {"assigner": "count", "size": 7, "function": "reduce"},
    "d-sliding": {"assigner": "sliding", "size": MINUTE, "slide": 20_000, "function": "reduce"},
    "d-window-state": {
        **TUMBLING,
        "trigger": "continuous",
        "every": 20_000,
        "function": "process with state",
    },
}
OPERATORS = [Operator(uid, window=window) for uid, window in WINDOWS.items()]


def contents(uid: str, state: str = "window-contents") -> list[Entry]:
    """What Flink itself restored of a state."""
    return [each for each in FIXTURE.truth if each["op"] == uid and each.get("state") == state]


def as_text(value: list[Any]) -> str:
    """A tuple as Java prints it."""
    return f"({','.join(map(str, value))})"


def missing_elements() -> list[Entry]:
    """What makes every window fire that counts its elements: so many of 0 as it still waits for."""
    found = []
    for uid, most in (("d-count-trigger", 3), ("d-count-window", 7)):
        for entry in contents(uid, "count"):
            element = {"op": uid, "key": entry["key"], "value": 0, "ts": 0}
            if isinstance(entry["ns"], list):
                element["ts"] = entry["ns"][0]
            found += [element] * (most - entry["value"])
    return found


def check_contents(fired: list[Entry]) -> None:
    """Every operator fired, and those without other functions with what Flink had restored."""
    assert {each["op"] for each in fired} == set(WINDOWS)
    for uid in ("d-tumble-reduce", "d-sliding"):
        stored = {(each["key"], *each["ns"]): [as_text(each["value"])] for each in contents(uid)}
        own = [each for each in fired if each["op"] == uid]
        assert {(each["key"], *each["ns"]): each["value"] for each in own} == stored
    sums = {each["key"]: each["value"][1] for each in contents("d-count-window")}
    counted = [each for each in fired if each["op"] == "d-count-window"]
    assert {each["key"]: int(each["value"][0].split(",")[1]) for each in counted} == sums


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
