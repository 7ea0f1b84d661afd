"""``gc --delete`` again and again, with a small age."""

from __future__ import annotations

import time
from random import Random

from dstl_core.errors import DstlError
from dstl_core.savepoint.gc import collect_garbage
from tests.simulation.storm.actor import say, say_error
from tests.simulation.storm.pipeline import layout_of

IS_STRUCK = True


def run(base: str, seed: int, random: Random) -> None:
    root = layout_of(base).root
    while True:
        started = time.monotonic()
        try:
            report = collect_garbage(
                root, delete=True, older_than_ms=random.choice([0, 500, 2_000])
            )
        except (DstlError, OSError) as error:
            say_error(error)
        else:
            say(collected=report.deleted)
        time.sleep(0.1 + random.uniform(0, 3) * (time.monotonic() - started))
