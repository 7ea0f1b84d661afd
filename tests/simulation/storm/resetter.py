"""The plugin's reset again and again: it takes over from runs that are gone, and sweeps."""

from __future__ import annotations

import os
import time
from random import Random
from uuid import uuid4

from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.errors import DstlError
from tests.simulation.storm.actor import say, say_error
from tests.simulation.storm.pipeline import NAME

IS_STRUCK = True


def is_alive(run_id: str) -> bool:
    try:
        os.kill(int(run_id.removeprefix("pid-")), 0)
    except ProcessLookupError:
        return False
    return True


def run(base: str, seed: int, random: Random) -> None:
    store, at = PipelineStore(base, NAME), 0.0
    while True:
        time.sleep(random.uniform(0.2, 1))
        try:
            # It fences whoever works, so it leaves them time for some commits.
            latest = store.latest()
            if latest is None or latest.checkpoint_id < at:
                continue
            at = latest.checkpoint_id + random.uniform(5, 25)
            result = store.reset(f"reset-{uuid4()}", is_alive)
            store = PipelineStore(base, NAME)
        except (DstlError, OSError) as error:
            say_error(error)
        else:
            did = bool(result.swept_runs or result.deleted)
            say(reset=did, swept=len(result.deleted))
