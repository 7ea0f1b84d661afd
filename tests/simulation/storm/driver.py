"""A driver: applies input after input, gives way to others, and comes back.

It says what it was told of each commit, and what stopped it, and goes on until it is killed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import islice, pairwise
from random import Random
from typing import Protocol

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.errors import DstlError, FencedError
from dstl_core.job.coordination.job_coordinator import JobCoordinator
from dstl_core.job.coordination.job_materialization import (
    BackgroundMaterialization,
    adopt,
    materialize,
    materialize_beside,
)
from dstl_core.job.coordination.tasks import JobTasks
from tests.simulation.storm.actor import say, say_error
from tests.simulation.storm.pipeline import NAME, Pipeline, next_input

IS_STRUCK = True
ADOPT_AFTER = 3
"""Epochs that go on beside a materialization."""
LONGEST_PATIENCE_S = 120


class Engine(Protocol):
    """What commits: a job, with its tasks in this process or on Spark."""

    @property
    def tasks(self) -> JobTasks: ...

    def apply(self, number: int) -> CompletedCheckpoint:
        """Applies an input and commits it, or finds its commit."""
        ...


class Driver:
    """The life of one process.

    Args:
        base: Where the pipeline lies.
        new_engine: Makes a job that knows of no claim yet.
        random: Decides.
        epoch_s: What an epoch takes at least.
    """

    def __init__(
        self, base: str, new_engine: Callable[[], Engine], random: Random, epoch_s: float
    ) -> None:
        self._base, self._new_engine, self._random = base, new_engine, random
        self._epoch_s = epoch_s
        self._engine = new_engine()
        self._beside: tuple[BackgroundMaterialization, int] | None = None
        self._is_run = random.random() < 0.15
        self._stands_by = False
        self._fenced = 0
        """How often in a row."""

    @property
    def _commits(self) -> JobCoordinator:
        return self._engine.tasks.coordinator

    def run(self) -> None:
        while True:
            try:
                self._step()
            except (DstlError, OSError) as error:
                say_error(error)
                self._stands_by = isinstance(error, FencedError)
                self._fenced += self._stands_by
                if self._stands_by or self._random.random() < 0.5:
                    self._engine, self._beside = self._new_engine(), None

    def _step(self) -> None:
        if self._is_run:
            # As a run of Dagster does: the plugin's reset leaves the pipeline alone meanwhile.
            PipelineStore(self._base, NAME).begin(f"pid-{os.getpid()}")
            self._is_run = False
        if self._stands_by:
            self._stand_by()
            self._stands_by = False
        number = next_input(self._commits)
        _tell(self._engine.apply(number))
        self._fenced = 0
        draw = self._random.random()
        if self._beside is not None and number >= self._beside[1]:
            materialization, self._beside = self._beside[0], None
            adopt(self._engine.tasks, materialization)
            say(did="adopt")
        elif draw < 0.03 and self._beside is None:
            self._beside = materialize_beside(self._engine.tasks), number + ADOPT_AFTER
        elif draw < 0.05:
            materialize(self._engine.tasks)
            say(did="materialize")
        elif draw < 0.07:
            self._stands_by = True

    def _stand_by(self) -> None:
        """Looks on until nobody has committed for a while; then this driver takes over."""
        patience = self._random.uniform(2, 6) * self._seconds_of_an_epoch()
        # Those who cannot agree become more and more patient.
        patience = min(patience * 2**self._fenced, LONGEST_PATIENCE_S)
        latest, since = None, time.monotonic()
        while time.monotonic() - since < patience:
            time.sleep(patience / 10)
            newest = self._commits.latest()
            if newest != latest:
                latest, since = newest, time.monotonic()
                if self._random.random() < 0.01:
                    break  # impatient: it takes over from one that is well

    def _seconds_of_an_epoch(self) -> float:
        """How far apart the last commits are, which says how busy this machine is."""
        last = self._commits.find(lambda commits: list(islice(commits, 6)))
        gaps = sorted(a.committed_ms - b.committed_ms for a, b in pairwise(last))
        return max(gaps[len(gaps) // 2] / 1000 if gaps else 0, self._epoch_s)


def _tell(checkpoint: CompletedCheckpoint) -> None:
    say(
        told=checkpoint.facts.input.id,
        checkpoint=checkpoint.checkpoint_id,
        sha256=checkpoint.metadata_sha256,
    )


def run(base: str, seed: int, random: Random) -> None:
    Driver(base, lambda: Pipeline(base, seed), random, epoch_s=0.05).run()
