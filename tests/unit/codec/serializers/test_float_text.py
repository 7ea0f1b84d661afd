from __future__ import annotations

import pytest

from dstl_core.codec.serializers import Types


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float.fromhex("0x1.fffffep+127"), 3.4028235e38),  # the largest
        (-float.fromhex("0x1.fffffep+127"), -3.4028235e38),
        (float.fromhex("0x1.fffffcp+127"), 3.4028233e38),
        (float.fromhex("0x1p-149"), 1e-45),  # the smallest
        (float.fromhex("0x1p-126"), 1.1754944e-38),
        (float.fromhex("0x1.99999ap-4"), 0.1),
        (16777216.0, 16777216.0),
    ],
)
def test_the_shortest_decimal_of_a_float(value: float, text: float) -> None:
    assert Types.FLOAT.to_text(value) == text
