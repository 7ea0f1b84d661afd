"""Starts the processes of the storm, kills, stops and wakes them, and counts what they say."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import select
import signal
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from random import Random
from typing import Any

from tests.simulation.storm.actor import live

_LOG = logging.getLogger(__name__)
_PACKAGE = "tests.simulation.storm"
# Processes are forked from one that has imported everything: they start in milliseconds.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [f"{_PACKAGE}.{each}" for each in ("driver", "collector", "resetter", "verifier", "proxy")]
    + ["pandas", "s3fs"]
)
COMMITS_BETWEEN_STRIKES = 15
"""Strikes at any moment; others come at calls that change the store."""
LONGEST_PAUSE_S = 5
REPORT_EVERY_S = 30
STUCK_S = 300
"""Without a commit for so long, nothing moves any more."""


class StormError(Exception):
    """Something was lost, doubled or stuck. The seed is in the text."""


@dataclass
class Told:
    """A commit that a driver was told of."""

    input: int
    checkpoint: int
    sha256: str


@dataclass
class Actor:
    """One place among the processes: whoever dies there is replaced."""

    module: str
    process: ForkServerProcess | None = None
    output: Connection | None = None
    rest: bytes = b""

    @property
    def pid(self) -> int:
        assert self.process is not None and self.process.pid is not None
        return self.process.pid


@dataclass
class Pause:
    """A process that is stopped, until others have committed so many or time is over."""

    pid: int
    told: int
    until: float


@dataclass
class Counts:
    """What happened."""

    told: dict[int, Told] = field(default_factory=dict)
    repeated: int = 0
    """Commits that more than one driver was told of."""
    faults: Counter[str] = field(default_factory=Counter)
    strikes: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    stopped: Counter[str] = field(default_factory=Counter)
    did: Counter[str] = field(default_factory=Counter)
    collected: int = 0
    resets: int = 0
    swept: int = 0
    verified: int = 0


class World:
    """The processes of one storm. Used by one thread.

    Args:
        base: Where the pipeline lies.
        seed: Of inputs, lives, faults and strikes.
        errors: The file that gets what the actors log.
        server: How to reach the S3 server without the proxy, where the base lies on one.
        on_spark: Whether the drivers are whole jobs on Spark, which take their time.
    """

    def __init__(
        self,
        base: str,
        seed: int,
        errors: Path,
        *,
        server: Mapping[str, str] | None = None,
        on_spark: bool = False,
    ) -> None:
        self.base, self.seed = base, seed
        self.counts = Counts()
        self._errors = errors
        self._server = server or {}
        self._random = Random(f"{seed} world")
        self._lives = 0
        self._pauses: list[Pause] = []
        self._strike_at = self._random.expovariate(1 / COMMITS_BETWEEN_STRIKES)
        self._verifier = Actor("verifier")
        self._actors = [
            *(Actor("spark_driver") for _ in range(2 if on_spark else 0)),
            *(Actor("driver") for _ in range(0 if on_spark else 3)),
            Actor("collector"),
            Actor("resetter"),
            self._verifier,
        ]
        self._proxy = Actor("proxy")
        self._through: dict[str, str] = {}

    def run(self, commits: int, seconds: float) -> None:
        """Until so many commits were told, or so many seconds have passed."""
        end, last = time.monotonic() + seconds, time.monotonic()
        seen, report = 0, last + REPORT_EVERY_S
        try:
            if self._server:
                self._start_proxy()
            while len(self.counts.told) < commits and time.monotonic() < end:
                for actor in self._actors:
                    if actor.process is None:
                        self._start(actor)
                self._listen()
                self._wake_and_strike()
                if time.monotonic() > report:
                    report += REPORT_EVERY_S
                    _LOG.info("%d commits told", len(self.counts.told))
                if len(self.counts.told) > seen:
                    seen, last = len(self.counts.told), time.monotonic()
                elif time.monotonic() - last > STUCK_S:
                    raise self._error(f"no commit for {STUCK_S} s: {self.counts}")
        finally:
            for actor in self._actors:
                self._end(actor)
            self._end(self._proxy)

    # --------------------------------------------------------------------------- processes

    def _start_proxy(self) -> None:
        self._start(self._proxy)
        assert self._proxy.output is not None
        raw = b""
        while not raw.endswith(b"\n"):
            raw += os.read(self._proxy.output.fileno(), 1)
        port = json.loads(raw)["port"]
        self._through = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}

    def _start(self, actor: Actor) -> None:
        self._lives += 1
        past = actor is self._verifier or actor is self._proxy
        environment = {**self._server, **({} if past else self._through)}
        actor.output, output = multiprocessing.Pipe(duplex=False)
        actor.rest = b""
        actor.process = _CONTEXT.Process(
            target=live,
            args=(
                f"{_PACKAGE}.{actor.module}",
                environment,
                self.base,
                self.seed,
                self._lives,
                output,
                str(self._errors),
            ),
            daemon=True,
        )
        actor.process.start()
        output.close()

    def _end(self, actor: Actor) -> None:
        if actor.process is not None and actor.output is not None:
            actor.process.kill()
            actor.process.join()
            actor.process.close()
            actor.output.close()
            actor.process = actor.output = None

    def _wake_and_strike(self) -> None:
        now, told = time.monotonic(), len(self.counts.told)
        over = [each for each in self._pauses if each.told <= told or each.until <= now]
        for pause in over:
            self._pauses.remove(pause)
            if any(each.process is not None and each.pid == pause.pid for each in self._actors):
                os.kill(pause.pid, signal.SIGCONT)
        if told >= self._strike_at:
            self._strike_at += self._random.expovariate(1 / COMMITS_BETWEEN_STRIKES)
            actor = self._random.choice(self._actors)
            if actor.process is not None and actor is not self._verifier:
                struck = self._random.choice([signal.SIGKILL, signal.SIGSTOP])
                self._struck(struck.name, actor.pid, "any moment")
                os.kill(actor.pid, struck)

    def _struck(self, name: str, pid: int, place: str) -> None:
        self.counts.strikes[name] += 1
        self.counts.places[f"{name} {place}"] += 1
        if name == "SIGSTOP":
            # Mostly long enough for another driver to take over, commit and retire.
            told = len(self.counts.told) + self._random.choice([1, 3, 10, 30])
            self._pauses.append(Pause(pid, told, time.monotonic() + LONGEST_PAUSE_S))

    # ----------------------------------------------------------------------- what they say

    def _listen(self) -> None:
        outputs = {
            actor.output: actor
            for actor in [*self._actors, self._proxy]
            if actor.output is not None
        }
        ready, _, _ = select.select([*outputs], [], [], 0.05)
        for output in ready:
            self._read(outputs[output])

    def _read(self, actor: Actor) -> None:
        assert actor.output is not None
        raw = os.read(actor.output.fileno(), 1 << 16)
        if not raw:
            self._died(actor)
            return
        *lines, actor.rest = (actor.rest + raw).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _died(self, actor: Actor) -> None:
        assert actor.process is not None
        actor.process.join()
        code = actor.process.exitcode
        self._end(actor)
        if code != -signal.SIGKILL:
            raise self._error(f"{actor.module} ended by itself with {code}")

    def _take(self, line: dict[str, Any]) -> None:
        counts = self.counts
        match line:
            case {"told": number, "checkpoint": checkpoint, "sha256": sha256}:
                self._tell(Told(number, checkpoint, sha256))
            case {"strike": name, "pid": pid, "at": place}:
                self._struck(name, pid, place)
            case {"fault": kind}:
                counts.faults[kind] += 1
            case {"stopped": kind}:
                counts.stopped[kind] += 1
            case {"did": what}:
                counts.did[what] += 1
            case {"collected": files}:
                counts.did["gc"] += 1
                counts.collected += files
            case {"reset": did, "swept": files}:
                counts.resets += did
                counts.swept += files
            case {"verified": checked, "problems": problems}:
                counts.verified += checked
                if problems:
                    raise self._error("a retained checkpoint is not whole: " + "; ".join(problems))
            case _:
                raise self._error(f"an actor says {line}")

    def _tell(self, told: Told) -> None:
        before = self.counts.told.setdefault(told.input, told)
        if before is not told:
            self.counts.repeated += 1
            if before != told:
                raise self._error(f"input {told.input} was told twice: {before}, then {told}")

    def _error(self, text: str) -> StormError:
        return StormError(f"seed {self.seed}, {self.base}: {text}")
