"""Real Flink restores our retained checkpoints: a canonical base and the logs of several runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from tests.integration.flink.checker import Entry, FlinkChecker, Operator, State
from tests.integration.flink.model import Model, texts
from tests.integration.flink.writing import LoggingJob, Run

pytestmark = pytest.mark.flink

UID = "flights"
COUNT = State("count", "value", "long")
PLACES = State("places", "list", "string")
DELAY = State("delay", "value", "double")
STATES = [COUNT, PLACES, DELAY]
KEYS = [f"N{number}" for number in range(40)] + ["", "Zürich", "😀"]


def update(state: State, key: str, do: str, value: Any = None) -> Entry:
    return {"op": UID, "key": key, "state": state.name, "do": do, "value": value}


def counts(keys: list[str], start: int) -> list[Entry]:
    return [update(COUNT, key, "update", start + number) for number, key in enumerate(keys)]


def visits(keys: list[str], place: str) -> list[Entry]:
    return [update(PLACES, key, "add", place) for key in keys]


FIRST_RUN = counts(KEYS[:30], 0) + visits(KEYS[:20], "JFK")
AFTER_FIRST_BASE = [
    *counts(KEYS[5:10], 1000),
    *visits(KEYS[15:25], "LGA"),
    update(COUNT, KEYS[0], "clear"),
    update(PLACES, KEYS[1], "clear"),
    update(PLACES, KEYS[2], "update", ["only", "these"]),
]
# In this run the states are first changed in another order, and there is a new one.
SECOND_RUN = [
    *visits(KEYS[10:35], "EWR"),
    *[update(DELAY, key, "update", number / 8) for number, key in enumerate(KEYS[20:])],
    *counts(KEYS[28:], -1),
    update(COUNT, KEYS[0], "update", 2**63 - 1),
    update(COUNT, KEYS[7], "clear"),
]
LATER_IN_SECOND_RUN = [
    update(DELAY, KEYS[21], "clear"),
    update(DELAY, KEYS[22], "update", "NaN"),
    update(PLACES, KEYS[11], "add_all", ["Ürümqi", ""]),
    update(PLACES, KEYS[12], "clear"),
    update(PLACES, KEYS[12], "add", "again"),
]
THIRD_RUN = [
    update(DELAY, "new in the third run", "update", -0.0),
    update(COUNT, KEYS[7], "update", 7),
    *visits(KEYS[:3], "BOS"),
]
AFTER_SCALING_UP = [*counts(KEYS[:3], 77), update(PLACES, KEYS[3], "clear")]


@dataclass(frozen=True)
class Taken:
    """A retained checkpoint and what it has to hold."""

    path: Path
    model: Model


def take_checkpoints(job: LoggingJob) -> dict[str, Taken]:
    """Four runs at parallelism 2, 2, 1 and 3, with checkpoints between them."""
    model = Model(UID, STATES)
    taken: dict[str, Taken] = {}

    def change(run: Run, updates: list[Entry]) -> None:
        run.apply(updates)
        model.apply(updates)

    def checkpoint(name: str, run: Run) -> None:
        taken[name] = Taken(run.checkpoint(), model.copy())

    run = job.run([COUNT, PLACES], parallelism=2)
    change(run, FIRST_RUN)
    checkpoint("log alone", run)
    run.materialize()
    checkpoint("base alone", run)
    change(run, AFTER_FIRST_BASE)
    checkpoint("one log", run)
    run.close()

    run = job.run([PLACES, DELAY, COUNT], parallelism=2)
    change(run, SECOND_RUN)
    run.checkpoint()
    change(run, LATER_IN_SECOND_RUN)
    checkpoint("two logs", run)
    run.close()

    run = job.run(STATES, parallelism=1)
    change(run, THIRD_RUN)
    checkpoint("logs of two subtasks and one", run)
    run.close()

    run = job.run(STATES, parallelism=3)
    assert run.had_to_materialize
    change(run, AFTER_SCALING_UP)
    checkpoint("scaled up", run)
    run.close()
    return taken


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Taken]:
    base = tmp_path_factory.mktemp("job")
    return take_checkpoints(LoggingJob(base, UID, "string", max_parallelism=128))


OPERATOR = Operator(UID, "string", STATES)


@pytest.mark.parametrize("changelog", [False, True], ids=["changelog off", "changelog on"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(
    "name",
    [
        "log alone",
        "base alone",
        "one log",
        "two logs",
        "logs of two subtasks and one",
        "scaled up",
    ],
)
def test_flink_restores_a_retained_checkpoint(
    flink: FlinkChecker,
    checkpoints: dict[str, Taken],
    name: str,
    backend: str,
    changelog: bool,
) -> None:
    taken = checkpoints[name]
    for parallelism in (1, 2, 3, 4):
        restored = flink.restore(
            taken.path, [OPERATOR], backend=backend, parallelism=parallelism, changelog=changelog
        )
        assert texts(restored.entries, "kg") == texts(taken.model.entries())


@pytest.mark.parametrize(
    "name", ["base alone", "one log", "two logs", "logs of two subtasks and one", "scaled up"]
)
def test_dump_shows_what_flink_restores(
    flink: FlinkChecker, checkpoints: dict[str, Taken], name: str
) -> None:
    taken = checkpoints[name]

    dumped = list(Snapshot.load(taken.path)[UID].dump())

    assert texts(dumped, "kg") == texts(taken.model.entries())
    assert texts(dumped) == texts(flink.restore(taken.path, [OPERATOR]).entries)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_compressed_logs_and_two_byte_prefixes(
    flink: FlinkChecker, tmp_path: Path, backend: str
) -> None:
    job = LoggingJob(tmp_path, UID, "string", max_parallelism=256, compressed=True)
    taken = take_checkpoints(job)["logs of two subtasks and one"]

    for changelog in (False, True):
        restored = flink.restore(
            taken.path, [OPERATOR], backend=backend, parallelism=3, changelog=changelog
        )
        assert texts(restored.entries, "kg") == texts(taken.model.entries())


def test_retiring_older_checkpoints_leaves_the_latest_whole(
    flink: FlinkChecker, tmp_path: Path
) -> None:
    job = LoggingJob(tmp_path, UID, "string", max_parallelism=128)
    taken = take_checkpoints(job)

    assert job.store.subsume()

    assert not taken["logs of two subtasks and one"].path.exists()
    latest = taken["scaled up"]
    restored = flink.restore(latest.path, [OPERATOR], parallelism=2)
    assert texts(restored.entries, "kg") == texts(latest.model.entries())


@pytest.mark.parametrize("changelog", [False, True], ids=["changelog off", "changelog on"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_flink_goes_on_from_our_checkpoint(
    flink: FlinkChecker,
    checkpoints: dict[str, Taken],
    tmp_path: Path,
    backend: str,
    changelog: bool,
) -> None:
    taken = checkpoints["logs of two subtasks and one"]
    updates = [
        *counts(KEYS[:20], 5000),
        update(COUNT, KEYS[25], "clear"),
        *visits(KEYS[30:], "SFO"),
        update(PLACES, "new in Flink", "add_all", ["a", "b"]),
        update(DELAY, KEYS[30], "update", "-Infinity"),
    ]
    model = taken.model.copy()
    model.apply(updates)

    savepoint = flink.restore(
        taken.path,
        [OPERATOR],
        backend=backend,
        parallelism=3,
        changelog=changelog,
        updates=updates,
        savepoint_to=tmp_path,
    ).savepoint

    assert savepoint is not None
    dumped = list(Snapshot.load(savepoint)[UID].dump())
    assert texts(dumped, "kg") == texts(model.entries())
    assert texts(dumped) == texts(flink.restore(savepoint, [OPERATOR]).entries)
