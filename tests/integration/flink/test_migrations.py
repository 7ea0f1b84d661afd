"""Real Flink restores migrated savepoints: keys of another type, with three states and timers."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstl_core import Snapshot
from dstl_core.savepoint import Migration, SavepointMigration
from dstl_core.savepoint.write.folder import KeyedForm
from tests.integration.flink.checker import (
    Entry,
    FlinkChecker,
    FlinkRestoreError,
    Operator,
    State,
    TimerService,
)
from tests.integration.flink.model import texts

pytestmark = pytest.mark.flink

STATES = [
    State("total", "value", "long"),
    State("names", "list", "string"),
    State("by-currency", "map", "long", map_key="string"),
]
KEYS = [-(2**40), -1, 0, *range(7, 400, 7), 2**40]


def job(key: str) -> Operator:
    return Operator("accounts", key, STATES, [TimerService()])


def changes() -> list[Entry]:
    """Three states and one timer of each key, whose texts are the keys of the old job."""
    entries: list[Entry] = []
    for key in KEYS:
        own = {"op": "accounts", "key": str(key)}
        timer = {"service": "user-timers", "kind": "event-timer", "ts": 1000 + abs(key) % 977}
        entries += [
            {**own, "state": "total", "do": "update", "value": key * 3},
            {**own, "state": "names", "do": "add_all", "value": [f"n{key}", "ä"]},
            {**own, "state": "by-currency", "do": "put", "map_key": "EUR", "value": key},
            {**own, **timer, "do": "register"},
        ]
    return entries


def expected() -> list[Entry]:
    """What the new job holds of it: the same, under numbers."""
    entries: list[Entry] = []
    for key in KEYS:
        own = {"op": "accounts", "key": key, "ns": None}
        entries += [
            {**own, "kind": "value", "state": "total", "value": key * 3},
            {**own, "kind": "list", "state": "names", "value": [f"n{key}", "ä"]},
            {**own, "kind": "map", "state": "by-currency", "value": [["EUR", key]]},
        ]
    return entries + timers()


def timers() -> list[Entry]:
    own = {"op": "accounts", "kind": "event-timer", "service": "user-timers", "ns": None}
    return [{**own, "key": key, "ts": 1000 + abs(key) % 977} for key in KEYS]


def migrate(flink: FlinkChecker, folder: Path, form: KeyedForm = "canonical") -> str:
    """Keys of texts become numbers: each gets its new key group, and its timers go along."""
    old = flink.restore(
        None, [job("string")], parallelism=2, updates=changes(), savepoint_to=folder / "old"
    )
    new = flink.restore(None, [job("long")], savepoint_to=folder / "new")
    declared = {"migration": 1, "operators": {"accounts": {"key": "cast(key, BIGINT)"}}}
    assert old.savepoint is not None and new.savepoint is not None
    return SavepointMigration(
        Migration.of(declared),
        Snapshot.load(old.savepoint),
        Snapshot.load(new.savepoint),
        recompute=1.0,
        format=form,
    ).write(folder / "out")


@pytest.mark.parametrize(("backend", "parallelism"), [("hashmap", 1), ("rocksdb", 3)])
def test_each_key_has_its_states_and_each_timer_fires_once(
    flink: FlinkChecker, tmp_path: Path, backend: str, parallelism: int
) -> None:
    form: KeyedForm = "native" if backend == "rocksdb" else "canonical"
    restored = flink.restore(
        migrate(flink, tmp_path, form),
        [job("long")],
        backend=backend,
        parallelism=parallelism,
        watermark=5000,
        fires=len(KEYS),
    )
    assert texts(restored.entries, "kg") == texts(expected())
    assert texts(restored.fired, "kg") == texts(timers())


def test_the_new_job_refuses_what_is_not_migrated(flink: FlinkChecker, tmp_path: Path) -> None:
    old = flink.restore(None, [job("string")], updates=changes()[:4], savepoint_to=tmp_path)
    with pytest.raises(FlinkRestoreError, match=r"StateMigrationException.*key serializer"):
        flink.restore(old.savepoint, [job("long")])
