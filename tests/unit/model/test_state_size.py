"""When the log of a checkpoint is worth a materialization."""

from __future__ import annotations

from typing import Any

import pytest

from dstl_core.model.state_size import StateSize

MEGABYTE = 1 << 20


@pytest.mark.parametrize(
    ("materialized", "log", "limits", "expected"),
    [
        (0, 0, {}, False),
        (0, MEGABYTE - 1, {}, False),
        (0, MEGABYTE, {}, True),
        (MEGABYTE, MEGABYTE, {}, False),
        (MEGABYTE, MEGABYTE + 1, {}, True),
        (4 * MEGABYTE, MEGABYTE, {"ratio": 0.2}, True),
        (4, 5, {"least": 1}, True),
        (4, 0, {"ratio": 0.0, "least": 1}, False),
        (100, 9, {"most": 8}, True),
        (100, 8, {"most": 8}, False),
    ],
)
def test_a_log_is_large_by_ratio_or_by_bytes(
    materialized: int, log: int, limits: dict[str, Any], expected: bool
) -> None:
    assert StateSize(materialized, log).has_large_log(**limits) is expected
