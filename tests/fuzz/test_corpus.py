"""What fuzzing kept, and the seeds, run again without the fuzzer."""

from __future__ import annotations

import pytest

from tests.fuzz.targets import TARGETS, check, corpus, seeds


@pytest.mark.parametrize("target", TARGETS)
def test_the_seeds_are_read(target: str) -> None:
    """A seed that is refused would explore nothing."""
    inputs = list(seeds(target))
    assert len(inputs) >= 10
    for raw in inputs:
        TARGETS[target](raw)


@pytest.mark.parametrize("target", TARGETS)
def test_what_was_found_once(target: str) -> None:
    inputs = corpus(target)
    assert len(inputs) >= 10
    for path in inputs:
        check(target, path.read_bytes())
