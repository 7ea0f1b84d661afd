"""How much a test takes: all of it in ``make soak``, a share of it in ``make test``.

Of 100 examples ``make test`` takes 20, ``make test-fast`` 5, and ``make soak`` 500. Many tests go
over each byte of a file, or over each file, in ``make soak`` only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import hypothesis

WHOLE = "DSTL_SOAK_SECONDS" in os.environ
"""Whether this is ``make soak``."""

_HEAD = 64
_TAIL = 16

Item = TypeVar("Item")


def examples(of_a_hundred: int) -> int:
    """The examples of a test that takes ``of_a_hundred`` where the profile has 100."""
    profile = hypothesis.settings().max_examples
    return max(5, of_a_hundred * profile // 100)


def places(size: int, step: int) -> list[int]:
    """Places in a file of ``size`` bytes: every ``step``-th, and all of its head and its tail."""
    return [
        place
        for place in range(size)
        if WHOLE or place < _HEAD or place >= size - _TAIL or place % step == 0
    ]


def thinned(items: Sequence[Item], step: int, first: int = 0) -> Sequence[Item]:
    """Every ``step``-th item from ``first`` on; tests of one list take different ones of it."""
    return items if WHOLE else items[first::step]
