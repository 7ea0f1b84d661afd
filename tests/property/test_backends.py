"""Whatever a program does: every backend, with a changelog or without, on any number of subtasks,
holds what plain dictionaries hold, also after it went on from a checkpoint on another one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core.model.checkpoint import CheckpointMetadata
from dstl_core.model.snapshot_type import CheckpointOptions
from dstl_core.state.backends.state_backend import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    StateBackend,
)
from dstl_core.storage.location import Location
from dstl_core.testing import MemoryFileIO
from tests.examples import examples
from tests.stateful_job import Job, Model

KEYS = [f"key-{number}" for number in range(8)]
SMALL = EmbeddedRocksDBStateBackend(cache_bytes=1 << 20, write_buffer_bytes=1 << 20)
BACKENDS: list[StateBackend] = [HashMapStateBackend(), SMALL]
VERBS = [
    "value",
    "value",
    "list",
    "list all",
    "list set",
    "map",
    "map all",
    "map remove",
    "reducing",
    "aggregating",
    "folding",
    "expiring",
    "clear",
    "event timer",
    "event timer",
    "no event timer",
    "time timer",
    "split",
    "union",
]
ELEMENTS = st.tuples(st.sampled_from(VERBS), st.integers(0, 7), st.integers(0, 9))
SETUPS = st.tuples(st.sampled_from(BACKENDS), st.sampled_from([1, 2, 5]), st.booleans())
CONTROLS = st.one_of(
    st.tuples(st.just("checkpoint"), st.booleans(), st.none()),
    st.tuples(st.just("restart"), SETUPS, st.none()),
    st.tuples(st.just("savepoint"), SETUPS, st.none()),
    st.tuples(st.just("materialize"), st.none(), st.none()),
    st.tuples(st.just("subsume"), st.none(), st.none()),
    st.tuples(st.just("watermark"), st.integers(0, 12), st.none()),
    st.tuples(st.just("time"), st.integers(1, 900), st.none()),
    st.tuples(st.just("broadcast"), st.integers(0, 3), st.integers(0, 9)),
)
PROGRAMS = st.tuples(
    SETUPS,
    st.sampled_from([1, 300, 100_000]),
    st.lists(st.one_of(ELEMENTS, ELEMENTS, ELEMENTS, CONTROLS), min_size=10, max_size=70),
)


class Program:
    """A job and its model, step by step."""

    def __init__(
        self, setup: tuple[StateBackend, int, bool], threshold: int, *, batched: bool
    ) -> None:
        self._batched = batched
        self._waiting: list[dict[str, Any]] = []
        self.job = Job(
            MemoryFileIO(),
            Location.parse("memory://test/base"),
            preemptive_persist_threshold=threshold,
            compaction_min_segments=3,
        )
        self.model = Model()
        self.last: tuple[CheckpointMetadata | None, Model] = (None, Model())
        self._start(setup, None)

    def _start(
        self, setup: tuple[StateBackend, int, bool], snapshot: CheckpointMetadata | None
    ) -> None:
        backend, parallelism, changelog = setup
        self.job.start(backend, parallelism=parallelism, changelog=changelog, snapshot=snapshot)

    def step(self, name: str, first: Any, second: Any) -> None:
        job, model = self.job, self.model
        if name not in VERBS:
            self._apply_waiting()
        match name:
            case "checkpoint":
                taken = job.checkpoint(completes=first)
                if first:
                    self.last = taken, model.copy()
            case "restart":
                job.stop()
                snapshot, at_snapshot = self.last
                self.model = at_snapshot.copy()
                self._start(first, snapshot)
            case "savepoint":
                folder = f"memory://test/savepoints/{job.checkpoint_id}"
                taken = job.checkpoint(CheckpointOptions.for_savepoint(folder))
                job.stop()
                backend, parallelism, changelog = first
                job.start(
                    backend,
                    parallelism=parallelism,
                    changelog=changelog,
                    snapshot=taken,
                    folder=Location.parse(folder),
                )
                # Relative files belong to the savepoint: the next one to restore is a checkpoint.
                self.last = job.checkpoint(), model.copy()
            case "materialize":
                for subtask in job.subtasks:
                    if subtask.materialization is not None:
                        subtask.materialization.trigger()
            case "subsume":
                for subtask in job.subtasks:
                    subtask.notify_checkpoint_subsumed(job.checkpoint_id - 1)
            case "watermark":
                assert job.fire("event", first) == model.fire("event", first)
            case "time":
                job.clock.advance(first)
                now = job.clock.now_ms()
                assert job.fire("processing", now) == model.fire("processing", now)
            case "broadcast":
                job.put_broadcast(f"b{first}", second)
                model.broadcast[f"b{first}"] = second
            case verb:
                element = {"key": KEYS[first], "do": verb, "number": second}
                if verb == "time timer":
                    element["number"] = job.clock.now_ms() + 100 * second
                model.apply(element, job.clock.now_ms())
                if self._batched:
                    self._waiting.append(element)
                else:
                    job.apply(element)

    def _apply_waiting(self) -> None:
        if self._waiting:
            self.job.apply_batch(self._waiting)
            self._waiting = []

    def finish(self, setup: tuple[StateBackend, int, bool]) -> None:
        self._apply_waiting()
        self.job.check(self.model, KEYS)
        taken, expected = self.job.checkpoint(), self.model.copy()
        self.job.stop()
        self._start(setup, taken)
        self.job.check(expected, KEYS)
        assert self.job.fire("event", 100) == expected.fire("event", 100)
        self.job.stop()


@pytest.mark.slow
@given(PROGRAMS, SETUPS, st.booleans())
@settings(max_examples=examples(25))
def test_every_backend_holds_what_dictionaries_hold(
    program: tuple[tuple[StateBackend, int, bool], int, list[tuple[str, Any, Any]]],
    last: tuple[StateBackend, int, bool],
    batched: bool,
) -> None:
    setup, threshold, steps = program
    running = Program(setup, threshold, batched=batched)
    try:
        for step in steps:
            running.step(*step)
        running.finish(last)
    finally:
        running.job.stop()


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [1, 2, 5])
@pytest.mark.parametrize("changelog", [False, True], ids=["plain", "changelog"])
@pytest.mark.parametrize("batched", [False, True], ids=["one by one", "batches"])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.identifier)
def test_one_long_program_on_each(
    backend: StateBackend, batched: bool, changelog: bool, parallelism: int, tmp_path: Path
) -> None:
    """Every verb with every key, so that no setup depends on what is drawn."""
    running = Program((backend, parallelism, changelog), 300, batched=batched)
    for number in range(10):
        for index, _ in enumerate(KEYS):
            for verb in VERBS:
                running.step(verb, index, (number * 7 + index) % 10)
        running.step("checkpoint", number % 3 != 2, None)
        if number % 4 == 1:
            running.step("materialize", None, None)
        running.step("broadcast", number % 3, number)
        running.step("watermark", number // 2, None)
        running.step("time", 150, None)
    running.finish((backend, 5 if parallelism == 2 else 2, changelog))
