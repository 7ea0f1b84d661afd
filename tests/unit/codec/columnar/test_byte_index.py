"""Byte strings that are found by hash."""

from __future__ import annotations

import random

import numpy as np

from dstl_core.codec.columnar.kernels.memory import address_of
from dstl_core.codec.columnar.keyed.byte_index import Ranges, last_rows


def test_the_last_row_of_each_string_and_group() -> None:
    rng = random.Random(3)
    strings = [rng.randbytes(rng.choice([0, 1, 7, 8, 9, 20])) for _ in range(300)]
    chosen = [rng.choice(strings) for _ in range(5_000)]
    groups = [rng.randrange(3) for _ in chosen]
    data = np.frombuffer(b"".join(chosen) + b"\0", np.uint8)
    ends = address_of(data) + np.cumsum([len(each) for each in chosen])
    starts = ends - np.array([len(each) for each in chosen])
    expected = {key: row for row, key in enumerate(zip(groups, chosen, strict=True))}
    found = last_rows(Ranges(starts, ends), np.array(groups))
    assert found.tolist() == sorted(expected.values())


def test_no_rows() -> None:
    nothing = np.empty(0, np.int64)
    assert last_rows(Ranges(nothing, nothing), nothing).tolist() == []
