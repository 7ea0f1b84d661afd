from __future__ import annotations

import pytest

from dstl_core.errors import ConfigError
from dstl_core.model.sequence import SequenceNumber, SequenceNumberRange


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


def test_a_range_is_half_open() -> None:
    numbers = SequenceNumberRange.generic(SequenceNumber(1), SequenceNumber(4))
    assert [numbers.contains(SequenceNumber(each)) for each in range(6)] == [
        *[False, True, True],
        *[True, False, False],
    ]
    assert (numbers.size, numbers.is_empty) == (3, False)
    assert str(numbers) == "from=1, to=4, size=3"


def test_an_empty_range() -> None:
    numbers = SequenceNumberRange.generic(SequenceNumber(4), SequenceNumber(4))
    assert numbers.is_empty
    assert not numbers.contains(SequenceNumber(4))


def test_a_range_does_not_run_backwards() -> None:
    with pytest.raises(ConfigError, match="ends before it starts: from=4, to=3"):
        SequenceNumberRange.generic(SequenceNumber(4), SequenceNumber(3))
