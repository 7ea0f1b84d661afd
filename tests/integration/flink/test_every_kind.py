"""Real Flink restores checkpoints with every kind of state and timers, and runs go on from Flink's
savepoints: a base, logs of several runs that number their states differently, a rescale between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dstl_core.checkpoint.store.metadata_file import load_metadata_file, publish_metadata_file
from dstl_core.model.checkpoint import CheckpointMetadata
from dstl_core.model.snapshot_type import CheckpointOptions
from dstl_core.state.backends.state_backend import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    StateBackend,
)
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from tests.integration.flink.checker import (
    Entry,
    FlinkChecker,
    Operator,
    Restored,
    State,
    TimerService,
)
from tests.integration.flink.model import texts
from tests.stateful_job import UID, Job, Model

pytestmark = pytest.mark.flink

KEYS = [f"key-{number}" for number in range(20)] + ["", "Zürich", "😀"]
FAR_AWAY_MS = 4_102_444_800_000  # the year 2100: no processing-time timer fires before
NEVER_MS = 10**13
STATES = [
    State("value", "value", "long"),
    State("list", "list", "string"),
    State("map", "map", "long", map_key="string"),
    State("reducing", "reducing", "long"),
    State("aggregating", "aggregating", "tuple<long,long>"),
    State("expiring", "value", "long", ttl_ms=NEVER_MS),
]
OPERATOR_STATES = [
    State("split", "op-list", "string"),
    State("union", "op-union", "string"),
    State("broadcast", "op-broadcast", "long", map_key="string"),
]
OPERATOR = Operator(UID, "string", STATES, [TimerService()], OPERATOR_STATES)
BACKENDS: dict[str, StateBackend] = {
    "hashmap": HashMapStateBackend(),
    "rocksdb": EmbeddedRocksDBStateBackend(cache_bytes=1 << 20, write_buffer_bytes=1 << 20),
}
VERBS = [
    "value",
    "list",
    "list all",
    "map",
    "map all",
    "map remove",
    "reducing",
    "aggregating",
    "expiring",
    "event timer",
    "time timer",
    "no event timer",
    "clear",
]


def entries_of(model: Model) -> list[Entry]:
    """Keyed entries and timers as ``dstl dump`` prints them, without key groups."""
    entries: list[Entry] = []
    for key, state in model.keys.items():
        values: dict[str, tuple[str, Any]] = {
            "value": ("value", state["value"]),
            "list": ("list", state["list"] or None),
            "map": ("map", [[k, state["map"][k]] for k in sorted(state["map"])] or None),
            "reducing": ("reducing", state["reducing"]),
            "aggregating": ("aggregating", state["aggregating"] and list(state["aggregating"])),
            "expiring": (
                "value",
                state["expiring"] and {"v": state["expiring"][1], "ts": state["expiring"][0]},
            ),
        }
        for name, (kind, value) in values.items():
            if value is not None:
                place = {"op": UID, "kind": kind, "state": name, "key": key, "ns": None}
                entries.append({**place, "value": value})
    for kind, timers in (("event-timer", model.event), ("proc-timer", model.processing)):
        for time, key in timers:
            service = {"op": UID, "kind": kind, "service": "user-timers"}
            entries.append({**service, "key": key, "ns": None, "ts": time})
    return entries


def check(restored: Restored, model: Model) -> None:
    """What Flink holds is what the model holds."""
    keyed = [each for each in restored.entries if not each["kind"].startswith("op-")]
    assert texts(keyed, "kg") == texts(entries_of(model))
    values: dict[str, list[Any]] = {"op-list": [], "op-union": [], "op-broadcast": []}
    for entry in restored.entries:
        if entry["kind"] in values:
            values[entry["kind"]] += entry["value"]
    assert sorted(values["op-list"]) == sorted(model.split)
    assert sorted(values["op-union"]) == sorted(model.union)
    assert sorted(values["op-broadcast"]) == sorted(map(list, model.broadcast.items()))


@dataclass(frozen=True)
class Taken:
    """A retained checkpoint and what it has to hold."""

    path: Path
    metadata: CheckpointMetadata
    model: Model


class Runs:
    """Runs of one job, each going on from the checkpoint before."""

    def __init__(self, base: Path, backend: StateBackend, *, changelog: bool) -> None:
        location = Location.parse(base)
        self.job = Job(open_file_io(location), location, 128, folding=False)
        self.model = Model()
        self._backend = backend
        self._changelog = changelog

    def run(
        self, parallelism: int, taken: Taken | None = None, folder: Location | None = None
    ) -> None:
        self.job.stop()
        self.job.start(
            self._backend,
            parallelism=parallelism,
            changelog=self._changelog,
            snapshot=None if taken is None else taken.metadata,
            folder=folder,
        )

    def change(self, verbs: Sequence[str], keys: Sequence[str], seed: int) -> None:
        job, model = self.job, self.model
        job.clock.advance(7)
        for index, key in enumerate(keys):
            for at, verb in enumerate(verbs):
                # Never 7, which stands for null: Flink's own heap backend cannot write a null Long.
                number = (seed * 31 + index * 7 + at) % 100 * 10
                element = {"key": key, "do": verb, "number": number}
                if verb == "time timer":
                    element["number"] = FAR_AWAY_MS + number
                model.apply(element, job.clock.now_ms())
                job.apply(element)
        for verb in ("split", "union"):
            for number in range(5):
                element = {"key": keys[number % len(keys)], "do": verb, "number": seed + number}
                model.apply(element, 0)
                job.apply(element)
        job.put_broadcast(f"rule-{seed % 3}", seed)
        model.broadcast[f"rule-{seed % 3}"] = seed

    def materialize(self) -> None:
        for subtask in self.job.subtasks:
            if subtask.materialization is not None:
                subtask.materialization.materialize_now()

    def checkpoint(self) -> Taken:
        metadata = self.job.checkpoint()
        folder = self.job.layout.checkpoint(metadata.checkpoint_id)
        publish_metadata_file(self.job.file_io, folder, metadata, {})
        return Taken(Path(folder.path), metadata, self.model.copy())


def take_checkpoints(runs: Runs) -> dict[str, Taken]:
    """Runs at parallelism 2, 2, 1 and 3, with checkpoints between them."""
    taken: dict[str, Taken] = {}
    runs.run(2)
    runs.change(VERBS, KEYS[:15], 1)
    runs.materialize()
    taken["base"] = runs.checkpoint()
    runs.change(VERBS, KEYS[5:18], 2)
    taken["one log"] = runs.checkpoint()
    runs.change(VERBS[:4], KEYS[:5], 3)
    taken["two logs of one run"] = runs.checkpoint()
    # States are first changed in another order: their ids differ.
    runs.run(2, taken["two logs of one run"])
    runs.change(VERBS[::-1], KEYS[8:], 4)
    runs.checkpoint()
    runs.change(["list", "map", "value"], KEYS[:9], 5)
    taken["logs of two runs"] = runs.checkpoint()
    runs.run(1, taken["logs of two runs"])
    runs.change(["map remove", "event timer", *VERBS[5:9]], KEYS[::2], 6)
    taken["logs of both subtasks and one"] = runs.checkpoint()
    runs.run(3, taken["logs of both subtasks and one"])
    runs.change(VERBS, KEYS[3:9], 7)
    taken["scaled up"] = runs.checkpoint()
    return taken


SETUPS = [(name, changelog) for name in BACKENDS for changelog in (False, True)]
NAMES = ["base", "one log", "logs of two runs", "logs of both subtasks and one", "scaled up"]


@pytest.fixture(
    scope="module",
    params=SETUPS,
    ids=[f"{name}-{'changelog' if changelog else 'plain'}" for name, changelog in SETUPS],
)
def taken(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Taken]:
    name, changelog = request.param
    runs = Runs(tmp_path_factory.mktemp("job"), BACKENDS[name], changelog=changelog)
    checkpoints = take_checkpoints(runs)
    runs.job.stop()
    return checkpoints


@pytest.mark.parametrize("changelog", [False, True], ids=["changelog off", "changelog on"])
@pytest.mark.parametrize("backend", list(BACKENDS))
def test_flink_restores_every_kind_of_state(
    flink: FlinkChecker, taken: dict[str, Taken], backend: str, changelog: bool
) -> None:
    for parallelism, name in zip((2, 1, 3, 4, 2), NAMES, strict=True):
        restored = flink.restore(
            taken[name].path,
            [OPERATOR],
            backend=backend,
            parallelism=parallelism,
            changelog=changelog,
        )
        check(restored, taken[name].model)


def test_flink_fires_the_timers(flink: FlinkChecker, taken: dict[str, Taken]) -> None:
    checkpoint = taken["logs of both subtasks and one"]
    model = checkpoint.model.copy()
    restored = flink.restore(checkpoint.path, [OPERATOR], parallelism=2, watermark=500)
    due = [(time, key) for time, key in model.event if time <= 500]
    assert due
    assert sorted((each["ts"], each["key"]) for each in restored.fired) == sorted(due)


def theirs(number: int) -> list[Entry]:
    """What Flink changes of one key."""
    key = KEYS[number]
    changes: list[Entry] = [
        {"state": "value", "do": "update", "value": 7000 + number},
        {"state": "list", "do": "add", "value": "Flink's"},
        {"state": "map", "do": "put", "map_key": "flink", "value": number},
        {"state": "reducing", "do": "add", "value": 5},
        {"state": "aggregating", "do": "add", "value": [10, 1]},
    ]
    timer: Entry = {"service": "user-timers", "kind": "event-timer", "do": "register", "ts": 777}
    return [{"op": UID, "key": key, **change} for change in [*changes, timer]]


def follow(model: Model, number: int) -> None:
    """The same on the model."""
    key = KEYS[number]
    for verb, value in (("value", 7000 + number), ("reducing", 5), ("event timer", 777)):
        model.apply({"key": key, "do": verb, "number": value}, 0)
    state = model.keys[key]
    state["list"].append("Flink's")
    state["map"]["flink"] = number
    total, count = state["aggregating"] or (0, 0)
    state["aggregating"] = (total + 10, count + 1)


@pytest.mark.parametrize("form", ["canonical", "native"])
@pytest.mark.parametrize("backend", list(BACKENDS))
def test_a_run_goes_on_from_flinks_savepoint(
    flink: FlinkChecker, taken: dict[str, Taken], backend: str, form: str, tmp_path: Path
) -> None:
    checkpoint = taken["logs of both subtasks and one"]
    model = checkpoint.model.copy()
    for number in range(6):
        follow(model, number)
    savepoint = flink.restore(
        checkpoint.path,
        [OPERATOR],
        backend=backend,
        parallelism=2,
        updates=[each for number in range(6) for each in theirs(number)],
        savepoint_to=tmp_path / "savepoints",
        savepoint_format=form,
    ).savepoint
    assert savepoint is not None
    folder = Location.parse(savepoint)
    file = load_metadata_file(open_file_io(folder), folder)

    # Flink wrote it with one backend; here it goes on with both, logged and not.
    for name, changelog in SETUPS:
        runs = Runs(tmp_path / f"{name}-{changelog}", BACKENDS[name], changelog=changelog)
        runs.job.checkpoint_id = file.metadata.checkpoint_id
        runs.model = model.copy()
        runs.run(2, Taken(Path(folder.path), file.metadata, model), folder)
        runs.job.check(runs.model, KEYS)
        runs.change(VERBS, KEYS[2:12], 9)
        runs.job.check(runs.model, KEYS)
        again = runs.checkpoint()
        runs.job.stop()
        for changelog_in_flink in (False, True):
            restored = flink.restore(
                again.path,
                [OPERATOR],
                backend=backend,
                parallelism=3,
                changelog=changelog_in_flink,
            )
            check(restored, again.model)


def test_flink_restores_a_savepoint_with_every_kind_of_state(
    flink: FlinkChecker, tmp_path: Path
) -> None:
    runs = Runs(tmp_path, BACKENDS["rocksdb"], changelog=True)
    runs.run(2)
    runs.change(VERBS, KEYS, 1)
    folder = Location.parse(tmp_path / "savepoint")
    metadata = runs.job.checkpoint(CheckpointOptions.for_savepoint(str(folder)))
    publish_metadata_file(runs.job.file_io, folder, metadata, {})
    runs.job.stop()
    for backend in BACKENDS:
        restored = flink.restore(folder.path, [OPERATOR], backend=backend, parallelism=4)
        check(restored, runs.model)
