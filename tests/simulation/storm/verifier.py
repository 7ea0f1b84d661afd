"""``verify`` of every retained checkpoint, again and again. It looks past the proxy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

from dstl_core import Snapshot
from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.errors import DstlError
from dstl_core.savepoint.verify.verify import verify_snapshot
from tests.simulation.storm.actor import say
from tests.simulation.storm.pipeline import store_of

IS_STRUCK = False


def problems_of(store: CompletedCheckpointStore) -> Iterator[list[str]]:
    """What is wrong with each checkpoint that is retained, from the first look to the last."""
    store.refresh()
    for checkpoint in store.retained:
        path = str(store.folder_of(checkpoint))
        try:
            problems = [str(each) for each in verify_snapshot(Snapshot.load(path)).findings]
        except (DstlError, OSError) as error:
            problems = [str(error)]
        if problems:
            store.refresh()
            if checkpoint not in store.retained:
                continue  # it was retired meanwhile
        yield [f"{path}: {each}" for each in problems]


def run(base: str, seed: int, random: Random) -> None:
    store = store_of(base)
    while True:
        checked, problems = 0, []
        started = time.monotonic()
        for problems_seen in problems_of(store):
            checked += 1
            problems += problems_seen
        say(verified=checked, problems=problems)
        time.sleep(0.2 + 8 * (time.monotonic() - started))
