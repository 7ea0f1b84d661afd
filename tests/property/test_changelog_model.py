"""Any interleaving of what a writer can be told, with failures, against a small model.

The whole path runs: writers that share a storage, batches, retries, a disk that fails, hangs,
truncates and closes badly, deletions that fail. One example is one script; time is manual, so a
wait that would never end is an error.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core.testing import Fault
from tests.simulation.changelog_world import World


def play(seed: int, script: list[tuple[int, int]]) -> World:
    world = World(seed)
    for code, argument in script:
        world.act(code, argument)
        world.check_files()
    world.end(seed // 2)
    return world


SCRIPTS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 10_000)), max_size=60)


@settings(max_examples=300)
@given(st.integers(0, 10_000), SCRIPTS)
def test_any_interleaving(seed: int, script: list[tuple[int, int]]) -> None:
    play(seed, script)


@pytest.mark.soak
@settings(max_examples=5_000)
@given(st.integers(0, 2**32), SCRIPTS)
def test_any_interleaving_five_thousand_times(seed: int, script: list[tuple[int, int]]) -> None:
    play(seed + int(os.environ.get("DSTL_SOAK_SEED", "0")), script)


def test_long_scripts_reach_everything() -> None:
    """The scripts are no good if nothing happens in them: over some long ones every fault, outcome
    and way to end occurs.
    """
    faults: set[Fault] = set()
    outcomes: set[str] = set()
    confirmed = dead = 0
    for seed in range(25):
        random = Random(seed)
        script = [(random.randrange(100), random.randrange(10_000)) for _ in range(250)]
        world = play(seed, script)
        faults |= set(world.io.seen)
        for subject in world.subjects:
            outcomes |= {type(future.exception()).__name__ for future in subject.futures}
            confirmed += sum(handle.confirmed for handle in subject.handles)
            dead += sum(handle.dead for handle in subject.handles)
    assert faults == set(Fault)
    assert outcomes == {
        "NoneType",
        "UploadFailedError",
        "ChangesTruncatedError",
        "WriterClosedError",
    }
    assert confirmed > 50
    assert dead > 50
