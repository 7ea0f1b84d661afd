"""Equal hashes among more of them than memory holds, against a set of Python."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dstl_core.state.columns import stored_hashes
from dstl_core.state.columns.stored_hashes import StoredHashes


@pytest.mark.parametrize("limit", [10, 1_000, 1_000_000])
@pytest.mark.parametrize("equal", [0, 1])
def test_equal_hashes_are_seen(monkeypatch: pytest.MonkeyPatch, limit: int, equal: int) -> None:
    monkeypatch.setattr(stored_hashes, "_MOST_HELD", limit)
    source = random.Random(limit)
    values = list({source.randrange(-(1 << 63), 1 << 63) for _ in range(5_000)})
    values += source.sample(values, equal)
    with StoredHashes() as hashes:
        for start in range(0, len(values), 700):
            hashes.add(np.array(values[start : start + 700], np.int64))
            assert sum(map(len, hashes._held)) < limit + 700
        assert hashes.are_distinct() == (len(set(values)) == len(values))


def test_no_hashes_are_distinct() -> None:
    with StoredHashes() as hashes:
        assert hashes.are_distinct()
