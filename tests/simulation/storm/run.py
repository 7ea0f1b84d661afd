"""One storm from beginning to end, on a local folder or on S3, and its report."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.s3_server import s3_server
from tests.simulation.storm.ending import Ending, look
from tests.simulation.storm.world import Counts, World


@dataclass(frozen=True)
class Storm:
    """What a storm is like. It ends after so many commits or seconds, whichever comes first."""

    storage: Literal["local", "s3"]
    seed: int
    commits: int
    seconds: float
    on_spark: bool = False

    def run(self, folder: Path) -> str:
        """Runs it; gives the report. The folder is for the log and, without S3, for the pipeline.

        Raises:
            StormError: Something was lost, doubled or stuck.
        """
        log = folder / "log.txt"
        if self.storage == "local":
            base = str(folder / "pipeline")
            return self._run(World(base, self.seed, log, on_spark=self.on_spark))
        with s3_server() as server, _environment(server.environment):
            base = server.make_bucket(f"storm-{self.seed}")
            return self._run(
                World(base, self.seed, log, server=server.environment, on_spark=self.on_spark)
            )

    def _run(self, world: World) -> str:
        started = time.monotonic()
        title = f"storm on {self.storage}{', Spark' if self.on_spark else ''}"
        try:
            world.run(self.commits, self.seconds)
            ending = look(world.base, self.seed, world.counts, with_output=not self.on_spark)
        except BaseException as error:
            error.add_note(_report(title, world, time.monotonic() - started, None))
            raise
        return _report(title, world, time.monotonic() - started, ending)


def _report(title: str, world: World, seconds: float, ending: Ending | None) -> str:
    counts: Counts = world.counts
    lines = [
        f"{title}, seed {world.seed}, {seconds:.0f} s: {len(counts.told)} commits told, {ending}",
        f"  strikes: {_list(counts.strikes)}",
        f"  of them at: {_list(counts.places)}",
        f"  faults of the store: {_list(counts.faults)}",
        f"  calls that ended with: {_list(counts.stopped)}",
        f"  beside the epochs: {_list(counts.did)}, {counts.collected} files collected, "
        f"{counts.resets} resets that took over and swept {counts.swept} files, "
        f"{counts.verified} checkpoints verified meanwhile, {counts.repeated} commits found again",
    ]
    return "\n".join(lines)


def _list(counter: dict[str, int]) -> str:
    counted = sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {name}" for name, count in counted) or "none"


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
