"""The property tests again, with fresh examples until the time is over (``make soak``).

``DSTL_SOAK_SECONDS`` is shared by all of them. A failure names the seed that repeats it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import hypothesis
import pytest

from tests.property import (
    test_damage,
    test_key_groups,
    test_serializers,
    test_state,
    test_stored_keys,
    test_writer,
)

PROPERTIES: list[Callable[[], None]] = [
    function
    for module in (
        test_damage,
        test_key_groups,
        test_serializers,
        test_state,
        test_stored_keys,
        test_writer,
    )
    for name, function in sorted(vars(module).items())
    if name.startswith("test_") and callable(function)
]


@pytest.mark.soak
@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda function: function.__name__)
def test_soak(holds: Callable[[], None], soak_seed: int, soak_seconds: float) -> None:
    end = time.monotonic() + soak_seconds / len(PROPERTIES)
    seed = soak_seed
    while True:
        try:
            hypothesis.seed(seed)(holds)()
        except BaseException as error:
            error.add_note(f"repeat with DSTL_SOAK_SEED={seed}")
            raise
        seed += 1
        if time.monotonic() > end:
            return
