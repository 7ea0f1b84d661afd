"""A checkpoint of Scala's types on the changelog state backend goes on in Flink 2.2.1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from tests.integration.flink.checker import FlinkChecker, Operator, State, TimerService
from tests.unit.savepoint.test_scala_changelog import (
    BACKENDS,
    JAR,
    checkpoint,
    held_by_meters,
    held_by_places,
    in_order,
    plain,
)

pytestmark = pytest.mark.flink
TYPES = {"history": "Tuple2<Long, String>", "total": "Tuple2<Integer, Long>"}
LEFT_OUT = ["last", "fresh", "parsed", "byPlace", "places"]


def as_tuple(value: Any) -> Any:
    """A place is a tuple as a key of the new job."""
    return [value["city"], value["floor"]] if isinstance(value, dict) else value


@pytest.mark.parametrize("backend", BACKENDS)
def test_flink_2_holds_what_the_job_in_scala_held(
    flink: FlinkChecker, tmp_path: Path, backend: str
) -> None:
    source = Snapshot.load(checkpoint(backend), jars=[JAR])
    meters, places = (
        next(op for op in source.operators if op.has_state(state)) for state in ("last", "visits")
    )
    upgrade = SavepointUpgrade(
        source,
        "2.2",
        drop=LEFT_OUT,
        types=TYPES,
        new_keys={places.label: "Tuple2<String, Integer>"},
    )
    upgraded = upgrade.write(tmp_path / "up")
    job = [
        Operator(
            hash=meters.label,
            key="string",
            states=[State("history", "list", "tuple<long,string>")],
            timers=[TimerService()],
        ),
        Operator(
            hash=places.label,
            key="tuple<string,int>",
            states=[State("visits", "value", "long")],
            timers=[TimerService()],
        ),
    ]
    restored = flink.restore(upgraded, job, backend=backend, parallelism=3, strict=False)
    expected = [line for line in held_by_meters() if line.get("state", "history") == "history"]
    expected += [{**line, "key": as_tuple(line["key"])} for line in held_by_places()]
    held = json.loads(json.dumps(restored.entries))
    assert in_order(map(plain, held)) == in_order(expected)
