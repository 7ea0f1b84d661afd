"""Any interleaving of what a writer can be told, with failures, against a small model.

The whole path runs: writers that share a storage, batches, retries, a disk that fails, hangs,
truncates and closes badly, deletions that fail. One example is one script; time is manual, so a
wait that would never end is an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core.testing import Fault
from tests.examples import examples
from tests.simulation.changelog_bugs import BUGS
from tests.simulation.changelog_world import World

SCRIPTS_TO_FIND_A_BUG = 60


def play(seed: int, script: list[tuple[int, int]]) -> World:
    world = World(seed, writers=2 + seed % 2)
    for code, argument in script:
        world.act(code, argument)
        world.check()
    world.end(seed // 2)
    return world


INSTRUCTIONS = st.tuples(st.integers(0, 99), st.integers(0, 10_000))
# Left alone, lists are about five long: nothing fails and is tried again in so few steps.
SCRIPTS = st.lists(INSTRUCTIONS, max_size=20) | st.lists(INSTRUCTIONS, min_size=25, max_size=80)


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(st.integers(0, 10_000), SCRIPTS)
def test_any_interleaving(seed: int, script: list[tuple[int, int]]) -> None:
    play(seed, script)


@pytest.mark.soak
@settings(max_examples=5_000)
@given(st.integers(0, 2**32), SCRIPTS)
def test_any_interleaving_five_thousand_times(seed: int, script: list[tuple[int, int]]) -> None:
    play(seed + int(os.environ.get("DSTL_SOAK_SEED", "0")), script)


def long_script(seed: int) -> list[tuple[int, int]]:
    random = Random(seed)
    return [(random.randrange(100), random.randrange(10_000)) for _ in range(250)]


@pytest.mark.slow
def test_long_scripts_reach_everything() -> None:
    """The scripts are no good if nothing happens in them: over some long ones every fault, outcome
    and way to end occurs.
    """
    faults: set[Fault] = set()
    outcomes: set[str] = set()
    confirmed = dead = refused = 0
    for seed in range(25):
        world = play(seed, long_script(seed))
        faults |= set(world.io.seen)
        refused += world.refused
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
    assert refused > 50


@pytest.mark.slow
@pytest.mark.parametrize("plant", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(Exception) as failure:
        for seed in range(SCRIPTS_TO_FIND_A_BUG):
            play(seed, long_script(seed))
    # It was found by what it broke, not by a mistake of the plant.
    assert not isinstance(failure.value, AttributeError | TypeError | NameError)
