"""A job in Scala on the changelog state backend, by Flink 1.20.5: materialized state, and a log.

``Meters.scala`` is the job. What it holds of the numbers below 50 is written here again.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.model.handle import ChangelogStateBackendHandle
from tests.command_line import run
from tests.golden_files import GOLDEN

__all__ = ["run"]

JOB = GOLDEN / "scala-changelog"
JAR = str(JOB / "job.jar")
BACKENDS = ["hashmap", "rocksdb"]
NUMBERS = range(50)
LEVELS = ["Low", "High", "Alarm"]


def checkpoint(backend: str) -> Path:
    [path] = (JOB / backend).glob("checkpoints/*/chk-*")
    return path


def place(n: int) -> dict[str, Any]:
    return {"city": f"cïty-{n % 4}", "floor": n % 3}


def held_by_meters() -> list[dict[str, Any]]:
    """What ``Keep`` has of each meter."""
    fields: dict[tuple[str, str, str], Any] = {}
    history: dict[str, list[Any]] = defaultdict(list)
    by_place: dict[str, dict[str, Any]] = defaultdict(dict)
    timers: dict[str, set[int]] = defaultdict(set)
    totals: Counter[str] = Counter()
    for n in NUMBERS:
        key = f"meter-{n % 6}"
        fields["last", "value", key] = {
            "at": 1000 * n,
            "place": place(n),
            "value": [n / 4.0] if n % 2 == 0 else [],
            "level": LEVELS[n % 3],
            "tags": [f"t{at}" for at in range(n % 4)],
        }
        fields["fresh", "value", key] = [] if n % 5 == 0 else [place(n)]
        fields["parsed", "value", key] = {"success": n}
        history[key].append([n * 10_000_000_000, LEVELS[(n + 1) % 3]])
        own = json.dumps(place(n))
        if n % 7 == 6:
            by_place[key].pop(own, None)
        else:
            by_place[key][own] = {"left": f"left {n}"} if n % 2 == 0 else {"right": n}
        totals[key] += n
        if n % 10 == 9:
            del history[key]
        timers[key].add(9_000_000 + n)
        if n % 4 == 0:
            timers[key].discard(9_000_000 + n - 6)
    fields |= {("history", "list", key): items for key, items in history.items()}
    for key, pairs in by_place.items():
        fields["byPlace", "map", key] = [[json.loads(own), pairs[own]] for own in sorted(pairs)]
    for key, total in totals.items():
        count = sum(n % 6 == int(key[-1]) for n in NUMBERS)
        fields["total", "reducing", key] = [count, total]
    lines = [
        {"kind": kind, "state": state, "key": key, "ns": None, "value": value}
        for (state, kind, key), value in fields.items()
    ]
    return lines + [
        {"kind": "event-timer", "service": "user-timers", "key": key, "ns": None, "ts": time}
        for key, own in timers.items()
        for time in own
    ]


def held_by_places() -> list[dict[str, Any]]:
    """What ``Count`` has of each place."""
    visits = Counter(json.dumps(place(n)) for n in NUMBERS)
    lines: list[dict[str, Any]] = []
    for text, count in visits.items():
        key = json.loads(text)
        lines.append({"kind": "value", "state": "visits", "key": key, "ns": None, "value": count})
        lines.append(
            {
                "kind": "proc-timer",
                "service": "user-timers",
                "key": key,
                "ns": None,
                "ts": 4_000_000_000_000 + key["floor"],
            }
        )
    return lines


def in_order(lines: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(line, sort_keys=True) for line in lines)


def plain(line: dict[str, Any]) -> dict[str, Any]:
    """Without what the clock and hashes decide on: the time of an access, and the key group."""
    kept = {name: item for name, item in line.items() if name not in ("op", "kg")}
    return kept | {"value": kept["value"]["v"]} if kept.get("state") == "fresh" else kept


def check(lines: list[dict[str, Any]]) -> None:
    keyed = [plain(line) for line in lines if not line["kind"].startswith("op-")]
    assert in_order(keyed) == in_order(held_by_meters() + held_by_places())
    places = [item for line in lines if line.get("state") == "places" for item in line["value"]]
    assert in_order(places) == in_order(map(place, NUMBERS))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_dump_is_what_the_job_holds(backend: str, run: Any) -> None:
    path = checkpoint(backend)
    handles = [each for op in Snapshot.load(path).operators for each in op.keyed_handles]
    logged = [each for each in handles if isinstance(each, ChangelogStateBackendHandle)]
    assert len(logged) == len(handles) > 0
    assert any(each.materialized_size for each in logged)
    assert any(each.non_materialized for each in logged)
    ran = run("dump", str(path), "--jar", JAR)
    assert (ran.code, ran.err) == (0, "")
    check([json.loads(line) for line in ran.out.splitlines()])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_savepoint_of_it_has_the_same(backend: str, run: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("rewrite", str(checkpoint(backend)), str(out)).code == 0
    ran = run("dump", str(out), "--jar", JAR)
    assert (ran.code, ran.err) == (0, "")
    check([json.loads(line) for line in ran.out.splitlines()])
