"""State goes from dstl to Flink and back: Flink changes it, dstl reads what Flink wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dstl_core import Snapshot, rewrite_savepoint
from dstl_core.clock import SystemClock
from tests.integration.flink.checker import Entry, FlinkChecker, Operator, State, TimerService
from tests.integration.flink.model import Model, text, texts
from tests.integration.flink.writing import write_savepoint

pytestmark = pytest.mark.flink

BACKENDS = ("hashmap", "rocksdb")
UID = "op"
OURS = [State("n", "value", "long"), State("names", "list", "string")]
EVERY_KIND = [
    *OURS,
    State("flag", "value", "boolean"),
    State("ratio", "value", "float"),
    State("nested", "value", "map<string,list<tuple<long,double>>>"),
    State("per window", "value", "int", ns="timewindow"),
    State("counts", "map", "long", map_key="string"),
    State("by number", "map", "tuple<string,boolean>", map_key="int"),
    State("texts", "map", "string", map_key="string"),
    State("sum", "reducing", "double"),
    State("total", "aggregating", "tuple<long,long>"),
]
TIMERS = [TimerService(), TimerService("window-timers", "timewindow")]
OPERATOR = Operator(UID, "string", EVERY_KIND, TIMERS)
FAR_AWAY_MS = 4_102_444_800_000  # the year 2100: no processing-time timer fires before
# 32-bit values as the doubles they widen to, written out by hand.
FLOATS = [
    0.10000000149011612,
    -0.0,
    16777216.0,
    3.4028234663852886e38,
    1.401298464324817e-45,
    1.1754943508222875e-38,
    "NaN",
    "-Infinity",
]


def ours(number: int) -> list[Entry]:
    key = f"key-{number}"
    return [
        {"op": UID, "key": key, "state": "n", "do": "update", "value": number},
        {"op": UID, "key": key, "state": "names", "do": "add_all", "value": ["ours", key]},
    ]


def theirs(number: int) -> list[Entry]:
    """Updates of one key in Flink: every kind of state, and timers."""
    key = f"key-{number}"
    window = [number * 1000, number * 1000 + 500]
    changes: list[Entry] = [
        {"state": "n", "do": "clear"},
        {"state": "names", "do": "add", "value": "Flink's"},
        {"state": "flag", "do": "update", "value": number % 2 == 0},
        {"state": "ratio", "do": "update", "value": FLOATS[number % len(FLOATS)]},
        {
            "state": "nested",
            "do": "update",
            "value": [["a", [[number, 0.5], [-1, -0.0]]], ["b", []]],
        },
        {"state": "per window", "do": "update", "value": number, "ns": window},
        {"state": "per window", "do": "update", "value": -number, "ns": [0, 1]},
        {"state": "counts", "do": "put", "map_key": "x", "value": number},
        {"state": "counts", "do": "put", "map_key": "Ü", "value": 2**62},
        {"state": "counts", "do": "put", "map_key": "gone", "value": 0},
        {"state": "counts", "do": "remove", "map_key": "gone"},
        {"state": "by number", "do": "put", "map_key": -number, "value": [key, True]},
        {"state": "texts", "do": "put", "map_key": "", "value": ""},
        {"state": "texts", "do": "put", "map_key": "null", "value": None},
        {"state": "sum", "do": "add", "value": 0.25},
        {"state": "sum", "do": "add", "value": float(number)},
        {"state": "total", "do": "add", "value": [number, 1]},
        {"state": "total", "do": "add", "value": [10, 1]},
        {"service": "user-timers", "kind": "event-timer", "do": "register", "ts": number},
        {"service": "user-timers", "kind": "event-timer", "do": "register", "ts": -5},
        {"service": "user-timers", "kind": "event-timer", "do": "delete", "ts": -5},
        {
            "service": "user-timers",
            "kind": "proc-timer",
            "do": "register",
            "ts": FAR_AWAY_MS + number,
        },
        {
            "service": "window-timers",
            "kind": "event-timer",
            "do": "register",
            "ts": window[1] - 1,
            "ns": window,
        },
    ]
    return [{"op": UID, "key": key, **change} for change in changes]


OUR_UPDATES = [update for number in range(40) for update in ours(number)]
FLINK_UPDATES = [update for number in range(20, 60) for update in theirs(number)]


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    return write_savepoint(
        tmp_path / "ours", UID, "string", OURS, OUR_UPDATES, max_parallelism=256, parallelism=2
    )


def model_of_all() -> Model:
    model = Model(UID, EVERY_KIND)
    model.apply(OUR_UPDATES + FLINK_UPDATES)
    return model


@pytest.mark.parametrize("changelog", [False, True], ids=["changelog off", "changelog on"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_dump_shows_what_flink_wrote_after_restoring_ours(
    flink: FlinkChecker, tmp_path: Path, savepoint: Path, backend: str, changelog: bool
) -> None:
    theirs = flink.restore(
        savepoint,
        [OPERATOR],
        backend=backend,
        parallelism=2,
        changelog=changelog,
        updates=FLINK_UPDATES,
        savepoint_to=tmp_path,
    ).savepoint
    assert theirs is not None

    reported = flink.restore(theirs, [OPERATOR], backend=backend).entries
    dumped = list(Snapshot.load(theirs)[UID].dump())

    assert texts(reported, "kg") == texts(model_of_all().entries())
    assert texts(dumped) == texts(reported)


@pytest.mark.parametrize("max_parallelism", [None, 100], ids=["renamed", "renamed and rescaled"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_kind_of_keyed_state_survives_a_rewrite(
    flink: FlinkChecker,
    tmp_path: Path,
    savepoint: Path,
    backend: str,
    max_parallelism: int | None,
) -> None:
    theirs = flink.restore(
        savepoint, [OPERATOR], backend=backend, updates=FLINK_UPDATES, savepoint_to=tmp_path
    ).savepoint
    assert theirs is not None

    out = rewrite_savepoint(
        Snapshot.load(theirs),
        tmp_path / "out",
        rename={UID: "renamed"},
        max_parallelism=max_parallelism,
    )

    renamed = Operator("renamed", "string", EVERY_KIND, TIMERS)
    for other in BACKENDS:
        restored = flink.restore(out, [renamed], backend=other, parallelism=3)
        assert texts(restored.entries, "kg", "op") == texts(model_of_all().entries(), "op")
        assert {entry["op"] for entry in restored.entries} == {"renamed"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_restored_timers_fire(
    flink: FlinkChecker, tmp_path: Path, savepoint: Path, backend: str
) -> None:
    theirs = flink.restore(
        savepoint, [OPERATOR], backend=backend, updates=FLINK_UPDATES, savepoint_to=tmp_path
    ).savepoint
    assert theirs is not None
    out = rewrite_savepoint(Snapshot.load(theirs), tmp_path / "out", max_parallelism=128)
    model = model_of_all()
    watermark_ms = 30_000

    after = flink.restore(
        out,
        [OPERATOR],
        backend=backend,
        parallelism=2,
        watermark=watermark_ms,
        savepoint_to=tmp_path / "after",
    )

    assert texts(after.entries, "kg") == texts(model.entries())
    assert texts(after.fired, "kg") == texts(model.fire(watermark_ms))
    assert len(after.fired) == 40 + 10  # ts = number, and the windows that end by then
    assert after.savepoint is not None
    left = list(Snapshot.load(after.savepoint)[UID].dump())
    assert texts(left, "kg") == texts(model.entries())


TTL_MS = 10 * 24 * 3600 * 1000
EXPIRING = [
    State("n", "value", "long", ttl_ms=TTL_MS),
    State("names", "list", "string", ttl_ms=TTL_MS),
    State("counts", "map", "long", map_key="string", ttl_ms=TTL_MS),
    State("sum", "reducing", "long", ttl_ms=TTL_MS),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_dump_shows_state_with_a_time_to_live(
    flink: FlinkChecker, tmp_path: Path, backend: str
) -> None:
    updates: list[Entry] = []
    for key in ("a", "b", "c"):
        updates += [
            {"op": UID, "key": key, "state": "n", "do": "update", "value": 5},
            {"op": UID, "key": key, "state": "names", "do": "add_all", "value": ["x", "y"]},
            {"op": UID, "key": key, "state": "counts", "do": "put", "map_key": "k", "value": 7},
            {"op": UID, "key": key, "state": "sum", "do": "add", "value": 1},
            {"op": UID, "key": key, "state": "sum", "do": "add", "value": 2},
        ]
    operator = Operator(UID, "string", EXPIRING)
    earliest_ms = SystemClock().now_ms()

    written = flink.restore(
        None, [operator], backend=backend, updates=updates, savepoint_to=tmp_path
    ).savepoint

    latest_ms = SystemClock().now_ms()
    assert written is not None
    dumped = list(Snapshot.load(written)[UID].dump())
    assert texts(dumped) == texts(flink.restore(written, [operator]).entries)
    values = {
        "n": {"v": 5, "ts": 0},
        "names": [{"v": "x", "ts": 0}, {"v": "y", "ts": 0}],
        "counts": [["k", {"v": 7, "ts": 0}]],
        "sum": {"v": 3, "ts": 0},
    }
    for entry in dumped:
        value = text(entry["value"])
        stamps = re.findall(r'(?<="ts":)\d+', value)
        assert all(earliest_ms <= int(stamp) <= latest_ms for stamp in stamps)
        assert re.sub(r'(?<="ts":)\d+', "0", value) == text(values[entry["state"]])
    assert sorted((entry["key"], entry["state"]) for entry in dumped) == sorted(
        (key, state.name) for key in "abc" for state in EXPIRING
    )
