"""Parts of a batch become state as exact arithmetic says, wherever the batch is cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import datasketches
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core.aggregates.aggregate_merge import Merge
from dstl_core.aggregates.bounded_lists import BoundedList
from dstl_core.aggregates.by_order import ByBatch, ByOrder
from dstl_core.aggregates.counts import CountMerge
from dstl_core.aggregates.counts_by_value import CountsByValue
from dstl_core.aggregates.decayed_sums import DecayedSum
from dstl_core.aggregates.extremes import Extreme
from dstl_core.aggregates.histograms import HistogramMerge
from dstl_core.aggregates.moments import Moments
from dstl_core.aggregates.sketches import DistinctSketch, QuantileSketch
from dstl_core.aggregates.sums import Average, DecimalSum, FloatSum, WholeSum
from dstl_core.codec.columnar.types.java_decimals import decimals_of, largest_scale, with_scale
from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.errors import ConfigError, FormatError
from dstl_core.state.columns.column_fit import fit
from tests.examples import examples

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
    known = [each for each in (held, None if batch is None else sum(batch)) if each is not None]
    expected = sum(known) if known else None
    state = [pa.array([held], layout_of(kind).arrow_type)]
    parts = [pa.array([high], pa.int64()), pa.array([low], pa.int64())]
    try:
        [total] = WholeSum("u", "s", kind).merge(state, parts)
    except ConfigError as error:
        assert error.message.startswith("The sum of state 's' of operator 'u' does not fit")
        assert expected is not None
        assert not -(1 << bits) <= expected < 1 << bits
        return
    assert total.to_pylist() == [expected]


@given(st.none() | decimals(20), st.none() | decimals(20))
def test_a_sum_of_decimals_is_exact(held: Decimal | None, batch: Decimal | None) -> None:
    known = [each for each in (held, batch) if each is not None]
    parts = [pa.array([batch], pa.decimal128(38, 4)), pa.array([len(known)], pa.int64())]
    if batch is None:
        parts[1] = pa.array([0], pa.int64())
    [total] = DecimalSum("u", "s", Types.BIG_DEC).merge([big_decimals([held])], parts)
    assert total.to_pylist() == [sum(known, Decimal(0)) if known else None]


LARGEST = 10**38 - 1


@pytest.mark.parametrize(
    ("held", "batch"),
    [
        *((LARGEST, 0), (LARGEST, -LARGEST), (-LARGEST, 1), (10**37, 10**37 - 1)),
        *((10**37 - 1, 10**37 - 1), (5 * 10**37, 5 * 10**37), (LARGEST, 1), (-1, -LARGEST)),
    ],
)
def test_a_sum_of_decimals_has_up_to_38_digits(held: int, batch: int) -> None:
    parts = [pa.array([Decimal(batch), None], pa.decimal128(38)), pa.array([1, 0])]
    merge = DecimalSum("u", "s", Types.BIG_DEC)
    state = {"unscaled": held.to_bytes(16, "big", signed=True), "scale": 0}
    states = pa.array([state] * 2, layout_of(Types.BIG_DEC).arrow_type)
    if abs(held + batch) > LARGEST:
        with pytest.raises(ConfigError):
            merge.merge([states], parts)
        return
    [total] = merge.merge([states], parts)
    assert total.to_pylist() == [Decimal(held + batch), Decimal(held)]


@pytest.mark.parametrize("scales", [(4, 2), (2, 4), (0, 10)])
@pytest.mark.parametrize(
    ("merge", "expected"),
    [
        (DecimalSum("u", "s", Types.BIG_DEC), [Decimal("3")]),
        (Extreme("u", "s", Types.BIG_DEC, largest=True), [Decimal("2")]),
        (ByBatch("u", "s", Types.BIG_DEC, orders=0, last=False), [Decimal("1")]),
        (
            ByOrder(
                "u", "s", {"": Types.BIG_DEC}, [Types.BIG_DEC], largest=True, skips_nulls=False
            ),
            [Decimal("2")] * 2,
        ),
    ],
    ids=lambda case: type(case).__name__,
)
def test_a_batch_may_have_other_digits_after_the_point_than_the_state(
    scales: tuple[int, int], merge: Merge, expected: list[Decimal]
) -> None:
    of_state, of_batch = scales
    held = [big_decimals([Decimal(1).quantize(Decimal(1).scaleb(-of_state))])] * len(expected)
    values = pa.array([Decimal(2)], pa.decimal128(20, of_batch))
    parts = [values, pa.array([1], pa.int64()) if isinstance(merge, DecimalSum) else values]
    merged = merge.merge(held, parts[: len(merge.parts)])
    assert [each[0].as_py() for each in merged] == expected
    assert {each.type for each in merged} == {pa.decimal128(38, max(scales))}


@pytest.mark.parametrize("largest", [True, False])
def test_a_decimal_that_loses_digits_in_the_scale_of_the_state_is_refused(largest: bool) -> None:
    held = [big_decimals([Decimal(1).scaleb(-10)])]
    batch = [pa.array([Decimal(10**37)], pa.decimal128(38, 0))]
    with pytest.raises(ConfigError, match=r"^A value of state 's' of operator 'u' does not fit"):
        Extreme("u", "s", Types.BIG_DEC, largest=largest).merge(held, batch)


def in_parts(merge: Merge, values: list[float | None]) -> list[pa.Array]:
    """Values as the parts of a batch; those of a sum are large ones, scaled by 2 ** 600."""
    column = pa.array(values, pa.float64())
    if not isinstance(merge, FloatSum):
        return [column]
    return [pc.divide(column, 2.0**600), pa.nulls(len(column), pa.float64())]


@pytest.mark.parametrize(
    ("merge", "what"),
    [
        (FloatSum("u", "s", Types.FLOAT), "The sum"),
        (Extreme("u", "s", Types.FLOAT, largest=True), "A value"),
        (ByBatch("u", "s", Types.FLOAT, orders=0, last=True), "A value"),
    ],
    ids=lambda case: type(case).__name__,
)
def test_a_number_beyond_a_float_is_refused_and_an_infinite_one_is_not(
    merge: Merge, what: str
) -> None:
    held = [pa.array([1.0, None], pa.float32())]
    with pytest.raises(ConfigError, match=f"^{what} of state 's' .* its type, Float, .* 'double'"):
        merge.merge(held, in_parts(merge, [None, 1e300]))
    [sums] = merge.merge(held, in_parts(merge, [None, float("inf")]))
    assert sums.to_pylist() == [1.0, float("inf")]


ROWS = st.lists(
    st.tuples(st.none() | st.integers(0, 3), st.none() | st.sampled_from("abc")), max_size=6
)


@given(ROWS, st.booleans())
def test_the_value_of_the_best_order_does_not_depend_on_how_rows_come(
    rows: list[tuple[int | None, str | None]], largest: bool
) -> None:
    merge = ByOrder("u", "s", {"": Types.STRING}, [Types.INT], largest=largest, skips_nulls=False)
    values_held = []
    for given_rows in (rows, rows[::-1]):
        held = [pa.nulls(1, each) for each in merge.types]
        for order, value in given_rows:
            kept = None if order is None else value
            parts = [pa.array([kept], pa.string()), pa.array([order], pa.int32())]
            held = merge.merge(held, parts)
        values_held.append([each[0].as_py() for each in held])
    ordered = [
        (order, value is not None, value or "") for order, value in rows if order is not None
    ]
    best = (max if largest else min)(ordered, default=None)
    expected = [None, None] if best is None else [best[2] if best[1] else None, best[0]]
    assert values_held == [expected, expected]


@given(st.lists(st.none() | st.floats(width=64)), st.booleans())
def test_nan_is_the_largest_number(values: list[float | None], largest: bool) -> None:
    merge: Merge = Extreme("u", "s", Types.DOUBLE, largest=largest)
    held = [pa.nulls(1, pa.float64())]
    for value in values:
        held = merge.merge(held, [pa.array([value], pa.float64(), from_pandas=False)])
    pairs = [(each != each, 0.0 if each != each else each) for each in values if each is not None]
    best = (max if largest else min)(pairs, default=None)
    [best_value] = held[0].to_pylist()
    if best is None:
        assert best_value is None
    else:
        assert (best_value != best_value, 0.0 if best_value != best_value else best_value) == best


FLOATS = st.sampled_from([-1.5, 0.0, 2.0, float("inf"), float("nan")])
OF_A_KEY = st.lists(st.tuples(st.integers(0, 3), FLOATS), max_size=5)
BATCHES = st.lists(st.lists(OF_A_KEY, min_size=3, max_size=3), min_size=1, max_size=3)


def by_size(value: float) -> tuple[bool, float]:
    return value != value, 0.0 if value != value else value


def lists(values: list[list[object]], kind: pa.DataType) -> pa.Array:
    return pa.array([each or None for each in values], pa.list_(kind))


@given(BATCHES, st.integers(1, 4), st.booleans())
def test_a_list_has_the_first_or_the_last_values_however_rows_come(
    batches: list[list[list[tuple[int, float]]]], size: int, largest: bool
) -> None:
    merge = BoundedList("u", "s", Types.DOUBLE, Types.INT, size=size, largest=largest)
    held = [pa.nulls(3, each) for each in merge.types]
    for batch in batches:
        values = lists([[value for _, value in rows] for rows in batch], pa.float64())
        orders = lists([[order for order, _ in rows] for rows in batch], pa.int32())
        held = merge.merge(held, [values, orders])
    for key in range(3):
        rows = [row for batch in batches for row in batch[key]]
        rows.sort(key=lambda row: (row[0], by_size(row[1])), reverse=largest)
        values, orders = (column[key].as_py() or [] for column in held)
        kept = [(order, by_size(value)) for order, value in zip(orders, values, strict=True)]
        assert kept == [(order, by_size(value)) for order, value in rows[:size]]
        assert (held[0][key].as_py() is None) == (not rows)


@given(BATCHES, st.integers(1, 4), st.booleans())
def test_a_set_has_the_smallest_values_once_and_the_top_the_largest_ones(
    batches: list[list[list[tuple[int, float]]]], size: int, distinct: bool
) -> None:
    merge = BoundedList(
        "u", "s", Types.DOUBLE, None, size=size, largest=not distinct, distinct=distinct
    )
    held = [pa.nulls(3, each) for each in merge.types]
    for batch in batches:
        held = merge.merge(held, [lists([[v for _, v in rows] for rows in batch], pa.float64())])
    for key in range(3):
        values = [by_size(value) for batch in batches for _, value in batch[key]]
        if distinct:
            values = list(set(values))
        expected = sorted(values, reverse=not distinct)[:size]
        stored_values = held[0][key].as_py()
        assert (None if stored_values is None else [by_size(each) for each in stored_values]) == (
            expected or None
        )


def sparse(counts: list[list[int]]) -> list[pa.Array]:
    """Buckets as Spark gives them: without empty ones, in any order, and one of them twice."""
    pairs = [
        [(bucket, 1) for bucket, count in enumerate(key) if count]
        + [(bucket, count - 1) for bucket, count in enumerate(key) if count > 1][::-1]
        for key in counts
    ]
    kinds = pa.list_(pa.int32()), pa.list_(pa.int64())
    return [
        pa.array([[pair[at] for pair in key] for key in pairs], kind)
        for at, kind in enumerate(kinds)
    ]


@given(BATCHES)
def test_a_histogram_counts_every_value_once(
    batches: list[list[list[tuple[int, float]]]],
) -> None:
    merge = HistogramMerge("u", "s", [0, 2])
    held = [pa.nulls(3, each) for each in merge.types]
    expected = [[0, 0, 0] for _ in range(3)]
    for batch in batches:
        counts = [[0, 0, 0] for _ in range(3)]
        for key, rows in enumerate(batch):
            for _, value in rows:
                bucket = 0 if value < 0 else 1 if value < 2 else 2
                counts[key][bucket] += 1
                expected[key][bucket] += 1
        held = merge.merge(held, sparse(counts))
    assert held[0].to_pylist() == [each if any(each) else None for each in expected]


def test_a_histogram_of_other_bounds_is_refused() -> None:
    held = pa.array([[1, 2, 3]], pa.list_(pa.int64()))
    with pytest.raises(ConfigError, match="state 's' of operator 'u' has another number of buck"):
        HistogramMerge("u", "s", [0]).merge([held], sparse([[1, 2]]))


@given(st.lists(st.lists(st.integers(0, 40), max_size=20), max_size=4))
def test_sketches_of_few_values_are_exact_however_they_are_split(batches: list[list[int]]) -> None:
    distinct = DistinctSketch("u", "d", 12)
    median = QuantileSketch("u", "q", 200, [0.0, 0.5, 1.0])
    counted, ranked = pa.nulls(1, pa.binary()), pa.nulls(1, pa.binary())
    for batch in batches:
        hll, kll = datasketches.hll_sketch(12), datasketches.kll_doubles_sketch(200)
        for number in batch:
            hll.update(number)
            kll.update(float(number))
        parts = [hll.serialize_compact(), kll.serialize()] if batch else [None, None]
        [counted] = distinct.merge([counted], [pa.array(parts[:1], pa.binary())])
        [ranked] = median.merge([ranked], [pa.array(parts[1:], pa.binary())])
    values = sorted(each for batch in batches for each in batch)
    assert distinct.final([counted]).to_pylist() == [len(set(values))]
    half = values[(len(values) - 1) // 2] if values else None
    expected = [None] if not values else [[values[0], half, values[-1]]]
    assert median.final([ranked]).to_pylist() == expected


@pytest.mark.parametrize("state", [b"", b"\x02\x01\x07\x0c\x03\x04\x00\x08", b"no sketch at all"])
def test_bytes_that_are_no_sketch_are_a_format_error(state: bytes) -> None:
    held = [pa.array([state], pa.binary())]
    for merge in (DistinctSketch("u", "s", 12), QuantileSketch("u", "s", 200, [0.5])):
        with pytest.raises(FormatError, match="state 's' of operator 'u' is not a sketch"):
            merge.merge(held, held)
        with pytest.raises(FormatError, match="state 's' of operator 'u' is not a sketch"):
            merge.final(held)


@given(BATCHES)
def test_counts_of_values_are_those_of_all_rows(
    batches: list[list[list[tuple[int, float]]]],
) -> None:
    merge = CountsByValue("u", "s", Types.INT, size=4)
    held = [pa.nulls(3, each) for each in merge.types]
    for batch in batches:
        orders = lists([[order for order, _ in rows] for rows in batch], pa.int32())
        held = merge.merge(held, [orders])
    for key, counted in enumerate(held[0].to_pylist()):
        counts = Counter(order for batch in batches for order, _ in batch[key])
        assert counted == (sorted(counts.items()) or None)


def test_more_values_than_a_map_may_have_are_refused() -> None:
    held = [pa.array([[("a", 1), ("b", 1)]], pa.map_(pa.string(), pa.int64()))]
    merge = CountsByValue("u", "s", Types.STRING, size=2)
    [same] = merge.merge(held, [pa.array([["a"]], pa.list_(pa.string()))])
    assert same.to_pylist() == [[("a", 2), ("b", 1)]]
    with pytest.raises(ConfigError, match="has 3 distinct values in state 's' of operator 'u'"):
        merge.merge(held, [pa.array([["c"]], pa.list_(pa.string()))])


@given(st.lists(st.lists(st.tuples(st.integers(0, 10**13), st.integers(-9, 9)), max_size=4)))
def test_a_decayed_sum_is_that_of_all_rows_at_their_last_time(
    batches: list[list[tuple[int, int]]],
) -> None:
    merge = DecayedSum("u", "s", Types.LONG, 1000.0)
    held = [pa.nulls(1, each) for each in merge.types]
    for rows in batches:
        values = lists([[float(value) for _, value in rows]], pa.float64())
        held = merge.merge(held, [values, lists([[time for time, _ in rows]], pa.int64())])
    rows = [row for batch in batches for row in batch]
    last = max((time for time, _ in rows), default=None)
    assert held[1].to_pylist() == [last]
    if last is None:
        assert held[0].to_pylist() == [None]
    else:
        total = sum(value * 0.5 ** ((last - time) / 1000) for time, value in rows)
        assert held[0][0].as_py() == pytest.approx(total, abs=1e-9)


DECIMALS = st.integers(-(10**20), 10**20).map(lambda number: Decimal(number).scaleb(-2))
SOME = st.lists(st.integers(-9, 9), max_size=3)
Parts = Callable[[list[list[int]], list[list[Decimal]]], list[pa.Array]]


def moments(values: list[int]) -> tuple[int, float | None, float | None]:
    if not values:
        return 0, None, None
    mean = sum(values) / len(values)
    return len(values), mean, sum((each - mean) ** 2 for each in values)


def column(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(list(values), kind)


MONEY = pa.decimal128(38, 2)
MOMENTS = pa.int64(), pa.float64(), pa.float64()
COMBINED: dict[str, tuple[Merge, Parts]] = {
    "count": (CountMerge("u", "s"), lambda v, d: [column(map(len, v), pa.int64())]),
    "sum": (
        WholeSum("u", "s", Types.LONG),
        lambda v, d: [
            column((halves(each or None)[at] for each in v), pa.int64()) for at in (0, 1)
        ],
    ),
    "float sum": (
        FloatSum("u", "s", Types.FLOAT),
        lambda v, d: [
            pa.nulls(len(v), pa.float64()),
            column((sum(each) if each else None for each in v), pa.float64()),
        ],
    ),
    "decimal sum": (
        DecimalSum("u", "s", Types.BIG_DEC),
        lambda v, d: [
            column((sum(each) if each else None for each in d), MONEY),
            column(map(len, d), pa.int64()),
        ],
    ),
    "average": (
        Average("u", "s", WholeSum("u", "s", Types.LONG)),
        lambda v, d: [
            *(column((halves(each or None)[at] for each in v), pa.int64()) for at in (0, 1)),
            column(map(len, v), pa.int64()),
        ],
    ),
    "max": (
        Extreme("u", "s", Types.BIG_DEC, largest=True),
        lambda v, d: [column((max(each, default=None) for each in d), MONEY)],
    ),
    "min by": (
        ByOrder("u", "s", {"": Types.BIG_DEC}, [Types.INT], largest=False, skips_nulls=False),
        lambda v, d: [
            column((each[0] if each else None for each in d), MONEY),
            column((min(each, default=None) for each in v), pa.int32()),
        ],
    ),
    "last": (
        ByBatch("u", "s", Types.INT, orders=0, last=True),
        lambda v, d: [column((each[-1] if each else None for each in v), pa.int32())],
    ),
    "variance": (
        Moments("u", "s", root=False),
        lambda v, d: [
            *(column((moments(each)[at] for each in v), kind) for at, kind in enumerate(MOMENTS)),
            *(pa.nulls(len(v), each) for each in (*MOMENTS, pa.float64())),
        ],
    ),
    "histogram": (
        HistogramMerge("u", "s", [0]),
        lambda v, d: [*sparse([[len(each), len(other)] for each, other in zip(v, d, strict=True)])],
    ),
    "top": (
        BoundedList("u", "s", Types.BIG_DEC, Types.INT, size=2, largest=True),
        lambda v, d: [
            column((each[: len(other)] or None for each, other in zip(d, v, strict=True)), MONEYS),
            column((each[: len(other)] or None for each, other in zip(v, d, strict=True)), INTS),
        ],
    ),
    "counts of values": (
        CountsByValue("u", "s", Types.BIG_DEC, size=100),
        lambda v, d: [column((each or None for each in d), MONEYS)],
    ),
    "decayed sum": (
        DecayedSum("u", "s", Types.LONG, 2.0),
        lambda v, d: [
            column(([float(x) for x in each] or None for each in v), pa.list_(pa.float64())),
            column((each or None for each in v), LISTS),
        ],
    ),
    "distinct": (DistinctSketch("u", "s", 12), lambda v, d: [column(map(hll, v), pa.binary())]),
}
LISTS, INTS, MONEYS = (pa.list_(each) for each in (pa.int64(), pa.int32(), MONEY))


def hll(values: list[int]) -> bytes | None:
    sketch = datasketches.hll_sketch(12)
    for value in values:
        sketch.update(value)
    return sketch.serialize_compact() if values else None


@pytest.mark.parametrize("name", COMBINED)
@given(
    batches=st.lists(
        st.tuples(
            *[
                st.lists(values_of_list, min_size=2, max_size=2)
                for values_of_list in (SOME, st.lists(DECIMALS, max_size=3))
            ]
        ),
        min_size=3,
        max_size=3,
    )
)
def test_states_combine_to_the_state_of_all_their_batches(
    name: str, batches: list[tuple[list[list[int]], list[list[Decimal]]]]
) -> None:
    merge, parts_of = COMBINED[name]

    def stored(states: list[pa.Array]) -> list[pa.Array]:
        return [fit(each, kind, "a state") for each, kind in zip(states, merge.types, strict=True)]

    fresh = [pa.nulls(2, each) for each in merge.types]
    parts = [parts_of(*each) for each in batches]
    whole, apart = fresh, [stored(merge.merge(fresh, each)) for each in parts]
    for part in parts:
        whole = stored(merge.merge(whole, part))
    one, *others = apart
    assert approx(
        merge, stored(merge.combined(stored(merge.combined(one, others[0])), others[1]))
    ) == approx(merge, whole)
    assert approx(merge, stored(merge.combined(one, stored(merge.combined(*others))))) == approx(
        merge, whole
    )
    assert approx(merge, stored(merge.combined(one, fresh))) == approx(merge, one)
    assert approx(merge, stored(merge.combined(fresh, one))) == approx(merge, one)


def approx(merge: Merge, states: list[pa.Array]) -> Any:
    """States to compare: rounded numbers, and estimates instead of the bytes of sketches."""
    if isinstance(merge, DistinctSketch):
        return merge.final(states).to_pylist()
    return [
        [None if each is None else round(each, 6) for each in state.to_pylist()]
        if pa.types.is_floating(state.type)
        else with_scale(state, largest_scale(state)).to_pylist()
        for state in states
    ]


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.integers(4, 12), st.integers(0, 1_500)), min_size=1, max_size=4))
def test_a_sketch_of_another_size_goes_on_with_the_error_of_the_smallest(
    epochs: list[tuple[int, int]],
) -> None:
    held = [pa.nulls(1, pa.binary())]
    ranks = [pa.nulls(1, pa.binary())]
    seen: set[int] = set()
    for number, (lg_k, rows) in enumerate(epochs):
        values = range(1_000 * number, 1_000 * number + rows)
        seen.update(values)
        distinct, size = DistinctSketch("u", "d", lg_k), 8 << (lg_k - 4)
        median = QuantileSketch("u", "q", size, [0.0, 1.0])
        sketch, kll_sketch = datasketches.hll_sketch(lg_k), datasketches.kll_doubles_sketch(size)
        for value in values:
            sketch.update(value)
            kll_sketch.update(float(value))
        parts = [sketch.serialize_compact() if rows else None]
        held = distinct.merge(held, [pa.array(parts, pa.binary())])
        parts = [kll_sketch.serialize() if rows else None]
        ranks = median.merge(ranks, [pa.array(parts, pa.binary())])
    smallest = min(lg_k for lg_k, _ in epochs)
    [estimate] = distinct.final(held).to_pylist()
    # Five times the standard error of a sketch of that size.
    assert abs(estimate - len(seen)) <= 5 * 1.04 / 2 ** (smallest / 2) * len(seen) + 0.5
    [raw] = ranks[0].to_pylist()
    assert (raw is None) == (not seen)
    if raw is not None:
        merged = datasketches.kll_doubles_sketch.deserialize(raw)
        assert merged.n == sum(rows for _, rows in epochs)
        assert (merged.get_min_value(), merged.get_max_value()) == (min(seen), max(seen))
