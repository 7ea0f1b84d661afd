"""Parts of a batch become state as exact arithmetic says, wherever the batch is cut."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.errors import ConfigError
from dstl_core.operators.aggregate_merge import (
    ByOrder,
    DecimalSum,
    Extreme,
    Merge,
    WholeSum,
    decimals_of,
)

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
LIMITS = {Types.INT: 31, Types.LONG: 63}


def big_decimals(values: list[Decimal | None]) -> pa.Array:
    """As Java's ``BigDecimal``: the shortest two's complement, and the scale."""
    rows = []
    for value in values:
        if value is None:
            rows.append(None)
            continue
        scale = -int(value.as_tuple().exponent)
        unscaled = int(value.scaleb(scale))
        size = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
        rows.append({"unscaled": unscaled.to_bytes(size, "big", signed=True), "scale": scale})
    return pa.array(rows, layout_of(Types.BIG_DEC).arrow_type)


def decimals(digits: int) -> st.SearchStrategy[Decimal]:
    limit = 10**digits - 1
    return st.builds(
        lambda number, scale: Decimal(number).scaleb(-scale),
        st.integers(-limit, limit),
        st.integers(0, 4),
    )


@given(st.lists(st.none() | decimals(30)), st.integers(4, 8))
def test_javas_decimals_become_decimals_of_one_scale(
    values: list[Decimal | None], scale: int
) -> None:
    assert decimals_of(big_decimals(values), scale).to_pylist() == values


def halves(values: list[int] | None) -> tuple[int | None, int | None]:
    if values is None:
        return None, None
    return sum(each >> 32 for each in values), sum(each & 0xFFFFFFFF for each in values)


@given(
    st.sampled_from([Types.INT, Types.LONG]),
    st.none() | LONGS,
    st.none() | st.lists(LONGS, min_size=1, max_size=5),
)
def test_a_sum_of_whole_numbers_is_exact_or_refused(
    kind: AnySerializer, held: int | None, batch: list[int] | None
) -> None:
    bits = LIMITS[kind]
    if held is not None:
        held = max(-(1 << bits), min((1 << bits) - 1, held))
    high, low = halves(batch)
    there = [each for each in (held, None if batch is None else sum(batch)) if each is not None]
    expected = sum(there) if there else None
    state = [pa.array([held], layout_of(kind).arrow_type)]
    parts = [pa.array([high], pa.int64()), pa.array([low], pa.int64())]
    try:
        [found] = WholeSum("u", "s", kind).merge(state, parts)
    except ConfigError as error:
        assert error.message.startswith("The sum of state 's' of operator 'u' does not fit")
        assert expected is not None
        assert not -(1 << bits) <= expected < 1 << bits
        return
    assert found.to_pylist() == [expected]


@given(st.none() | decimals(20), st.none() | decimals(20))
def test_a_sum_of_decimals_is_exact(held: Decimal | None, batch: Decimal | None) -> None:
    there = [each for each in (held, batch) if each is not None]
    parts = [pa.array([batch], pa.decimal128(38, 4)), pa.array([len(there)], pa.int64())]
    if batch is None:
        parts[1] = pa.array([0], pa.int64())
    [found] = DecimalSum("u", "s", Types.BIG_DEC).merge([big_decimals([held])], parts)
    assert found.to_pylist() == [sum(there, Decimal(0)) if there else None]


ROWS = st.lists(
    st.tuples(st.none() | st.integers(0, 3), st.none() | st.sampled_from("abc")), max_size=6
)


@given(ROWS, st.booleans())
def test_the_value_of_the_best_order_does_not_depend_on_how_rows_come(
    rows: list[tuple[int | None, str | None]], largest: bool
) -> None:
    merge = ByOrder("u", "s", Types.STRING, Types.INT, largest=largest)
    found = []
    for given_rows in (rows, rows[::-1]):
        held = [pa.nulls(1, each) for each in merge.types]
        for order, value in given_rows:
            kept = None if order is None else value
            parts = [pa.array([kept], pa.string()), pa.array([order], pa.int32())]
            held = merge.merge(held, parts)
        found.append([each[0].as_py() for each in held])
    ordered = [
        (order, value is not None, value or "") for order, value in rows if order is not None
    ]
    best = (max if largest else min)(ordered, default=None)
    expected = [None, None] if best is None else [best[2] if best[1] else None, best[0]]
    assert found == [expected, expected]


@given(st.lists(st.none() | st.floats(width=64)), st.booleans())
def test_nan_is_the_largest_number(values: list[float | None], largest: bool) -> None:
    merge: Merge = Extreme("u", "s", Types.DOUBLE, largest=largest)
    held = [pa.nulls(1, pa.float64())]
    for value in values:
        held = merge.merge(held, [pa.array([value], pa.float64(), from_pandas=False)])
    there = [(each != each, 0.0 if each != each else each) for each in values if each is not None]
    best = (max if largest else min)(there, default=None)
    [found] = held[0].to_pylist()
    if best is None:
        assert found is None
    else:
        assert (found != found, 0.0 if found != found else found) == best
