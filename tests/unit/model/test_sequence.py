from __future__ import annotations

import pytest

from dstl_core.errors import ConfigError
from dstl_core.model.sequence import SequenceNumber


def test_a_number_counts_up() -> None:
    assert SequenceNumber.of(0).next() == SequenceNumber(1)
    assert SequenceNumber(1) < SequenceNumber(2)
    assert str(SequenceNumber(7)) == "7"


@pytest.mark.parametrize("number", [-1, 2**63])
def test_numbers_out_of_range(number: int) -> None:
    with pytest.raises(ConfigError, match="out of range"):
        SequenceNumber.of(number)


def test_the_last_number_has_no_next() -> None:
    with pytest.raises(ConfigError, match="out of range"):
        SequenceNumber(2**63 - 1).next()
