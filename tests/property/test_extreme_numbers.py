"""Aggregates of doubles of every class are those of all rows, however these are cut into epochs.

The rows of every epoch are reduced as in a job, and the merges add the epochs up. Fractions of
plain Python say what is right.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dstl_core import aggregates
from dstl_core.aggregates import Aggregate
from dstl_core.aggregates.aggregate_merge import Merge
from dstl_core.aggregates.rows_of_keys import RowsOfKeys
from dstl_core.errors import ConfigError
from dstl_core.job.spec.operators import AggregateOperator
from dstl_core.job.task.reduced_rows import parts_of
from dstl_core.operators.aggregate_function import part_name
from tests.examples import WHOLE

INF, NAN, MOST = math.inf, math.nan, 1.7976931348623157e308
EPSILON = Fraction(1, 1 << 50)
"""A few roundings of a double."""
TINY = Fraction(5e-324) * 64
CLASSES: list[list[float]] = [
    [1e308, -1e308, 1.5e308, -1.5e308, MOST, -MOST],
    [INF, -INF],
    [NAN],
    [0.0, -0.0],
    [5e-324, -5e-324, 2.5e-320, -1e-310],
    [2.2250738585072014e-308, -1e-300, 1e-200],
    [1.0, -1.0, 0.1, 1 / 3, 7.25, 1e6],
    [1e16, -1e16, 9007199254740993.0],
    [1e138, -1e138, 1e139, 2.0**460, 1e154, -1e160],
]
END = (1 << 63) - 1
TIMES = [0, 500, 1000, 1500, 2000, 61_000, 1_000_000, 10**12, END, END - 500, -END - 1]
HALF_LIFE = 1000
BOUNDS = [-1e300, 0.0, 1e-320, 1e300]
Row = tuple[float, int]
"""A value and its time."""

CASES, SEED = (240 if WHOLE else 48), 24
"""Of ``make test``, too: rows of each class, of two, of three, and of all."""


def cases() -> list[list[Row]]:
    """Rows of a key: of one class, of two, or of all."""
    source = random.Random(SEED)
    cases_drawn = []
    for number in range(CASES):
        chosen = source.sample(CLASSES, 1 + number % 3) if number % 4 else CLASSES
        values = [each for some in chosen for each in some]
        rows = source.randint(1, 9)
        cases_drawn.append([(source.choice(values), source.choice(TIMES)) for _ in range(rows)])
    return cases_drawn


def cuts_of(count: int, source: random.Random) -> list[list[int]]:
    """The epoch of each row: all in one, one row in each, and any."""
    some = sorted(source.randint(0, 3) for _ in range(count))
    return [[0] * count, list(range(count)), some]


# --------------------------------------------------------------------------------- expected


def rounded(exact: Fraction) -> float:
    """The double of a number; an infinite one if there is none."""
    try:
        return float(exact)
    except OverflowError:
        return INF if exact > 0 else -INF


def near(actual: float | None, exact: Fraction, error: Fraction) -> bool:
    if actual is None or math.isnan(actual):
        return False
    if math.isinf(actual):
        return rounded(exact + error if actual > 0 else exact - error) == actual
    return abs(Fraction(actual) - exact) <= error + TINY


def same(actual: Any, expected: Any) -> bool:
    """Whether two numbers, or two lists of them, are equal; NaN equals itself, -0.0 equals 0.0."""
    if isinstance(expected, list):
        return len(actual) == len(expected) and all(map(same, actual, expected))
    return bool(actual == expected or (actual != actual and expected != expected))


def of_specials(values: Sequence[float]) -> float | None:
    """The sum if a value is not finite."""
    special = [each for each in values if not math.isfinite(each)]
    return sum(special) if special else None


def is_sum(values: Sequence[float], actual: Any, divisor: int = 1) -> bool:
    special = of_specials(values)
    if special is not None:
        return same(actual, special)
    error = EPSILON * sum(abs(Fraction(each)) for each in values)
    return near(actual, sum(map(Fraction, values)) / divisor, error / divisor)


def fits(values: Sequence[float]) -> bool:
    """Whether a double can hold the sum."""
    return of_specials(values) is not None or math.isfinite(rounded(sum(map(Fraction, values))))


def are_moments(values: Sequence[float], count: Any, mean: Any, m2: Any) -> bool:
    special = of_specials(values)
    if special is not None:
        return count == len(values) and same(mean, special) and math.isnan(m2)
    exact = [Fraction(each) for each in values]
    middle = sum(exact) / len(exact)
    distances = sum((each - middle) ** 2 for each in exact)
    largest = max(map(abs, exact))
    error = EPSILON * largest
    return (
        count == len(values)
        and near(mean, middle, error)
        and near(m2, distances, EPSILON * 16 * distances + len(exact) * error**2)
    )


def are_comoments(rows: Sequence[Row], count: int, *actual: float) -> bool:
    """Whether means and sums of products are those of the values and times, as doubles."""
    columns = values_of(rows), [float(time) for _, time in rows]
    special = of_specials(columns[0])
    if special is not None:
        return count == len(rows) and same(actual[0], special) and all(map(math.isnan, actual[2:]))
    exact = [[Fraction(each) for each in column] for column in columns]
    middles = [sum(column) / len(rows) for column in exact]
    one, other = (
        [each - middle for each in column] for column, middle in zip(exact, middles, strict=True)
    )
    products = [
        sum(first * second for first, second in zip(*pair, strict=True))
        for pair in ((one, one), (other, other), (one, other))
    ]
    errors = [EPSILON * max(map(abs, column)) for column in exact]
    are_near = [
        near(mean, middle, error)
        for mean, middle, error in zip(actual, middles, errors, strict=False)
    ]
    if not all(math.isfinite(rounded(product)) for product in products):
        return count == len(rows) and all(are_near) and all(map(math.isnan, actual[2:]))
    largest = [max(map(abs, distances)) for distances in (one, other)]
    squares = [
        (largest[0] * largest[0], errors[0] * errors[0], largest[0]),
        (largest[1] * largest[1], errors[1] * errors[1], largest[1]),
        (largest[0] * largest[1], errors[0] * errors[1], sum(largest)),
    ]
    are_near += [
        near(product, right, len(rows) * (EPSILON * 16 * size + square + TINY * distance))
        for product, right, (size, square, distance) in zip(
            actual[2:], products, squares, strict=True
        )
    ]
    return count == len(rows) and all(are_near)


def decayed(rows: Sequence[Row]) -> tuple[list[Fraction], int]:
    """The values at the last time of finite values."""
    last = max(time for _, time in rows)
    halves = [(last - time) * 2 // HALF_LIFE for _, time in rows]
    root = Fraction(math.sqrt(0.5))
    return [
        Fraction(0) if count > 9000 else Fraction(value) * root ** (count % 2) / 2 ** (count // 2)
        for (value, _), count in zip(rows, halves, strict=True)
    ], last


def is_decayed(rows: Sequence[Row], actual: Any, time: Any) -> bool:
    special = of_specials([value for value, _ in rows])
    if special is not None:
        return same(actual, special) and time == max(each for _, each in rows)
    values, last = decayed(rows)
    return time == last and near(actual, sum(values), EPSILON * sum(map(abs, values)))


def decayed_fits(rows: Sequence[Row]) -> bool:
    if of_specials([value for value, _ in rows]) is not None:
        return True
    return math.isfinite(rounded(sum(decayed(rows)[0])))


def by_size(value: float) -> tuple[bool, float]:
    return value != value, 0.0 if value != value else value


def values_of(rows: Sequence[Row]) -> list[float]:
    return [value for value, _ in rows]


def quantiles(rows: Sequence[Row]) -> list[float] | None:
    numbers = sorted(value for value in values_of(rows) if value == value)
    return [numbers[0], numbers[(len(numbers) - 1) // 2], numbers[-1]] if numbers else None


def buckets(rows: Sequence[Row]) -> list[int]:
    counts = [0] * (len(BOUNDS) + 1)
    for value in values_of(rows):
        counts[len(BOUNDS) if value != value else sum(value >= each for each in BOUNDS)] += 1
    return counts


def distinct(rows: Sequence[Row]) -> list[float]:
    keys = {by_size(value) for value in values_of(rows)}
    return [NAN if is_nan else value for is_nan, value in sorted(keys)]


def by_time(rows: Sequence[Row]) -> list[float]:
    return [value for value, _ in sorted(rows, key=lambda row: (row[1], by_size(row[0])))]


Check = Callable[[Sequence[Row], Any], bool]
Fits = Callable[[Sequence[Row]], bool]


def exactly(expected: Callable[[Sequence[Row]], Any]) -> Check:
    return lambda rows, actual: same(actual[0], expected(rows))


def always(rows: Sequence[Row]) -> bool:
    return True


WANTED: dict[str, tuple[Aggregate, Check, Fits]] = {
    "total": (
        aggregates.sum("v", "double"),
        lambda rows, actual: is_sum(values_of(rows), actual[0]),
        lambda rows: fits(values_of(rows)),
    ),
    "average": (
        aggregates.avg("v"),
        lambda rows, actual: is_sum(values_of(rows), actual[0]) and actual[1] == len(rows),
        lambda rows: fits(values_of(rows)),
    ),
    "spread": (
        aggregates.variance("v"),
        lambda rows, actual: are_moments(values_of(rows), *actual),
        always,
    ),
    "deviation": (
        aggregates.stddev("v"),
        lambda rows, actual: are_moments(values_of(rows), *actual),
        always,
    ),
    "together": (
        aggregates.corr("v", "t"),
        lambda rows, actual: are_comoments(rows, *actual),
        always,
    ),
    "decayed": (
        aggregates.decayed_sum("v", HALF_LIFE, "t", time_type="bigint"),
        lambda rows, actual: is_decayed(rows, *actual),
        decayed_fits,
    ),
    "least": (
        aggregates.min("v", "double"),
        exactly(lambda rows: min(values_of(rows), key=by_size)),
        always,
    ),
    "most": (
        aggregates.max("v", "double"),
        exactly(lambda rows: max(values_of(rows), key=by_size)),
        always,
    ),
    "first": (
        aggregates.first("v", "t", "double", order_type="bigint"),
        exactly(lambda rows: by_time(rows)[0]),
        always,
    ),
    "latest_of_most": (
        aggregates.max_by("t", "v", "bigint", order_type="double"),
        exactly(lambda rows: max((by_size(value), time) for value, time in rows)[1]),
        always,
    ),
    "some": (aggregates.collect_set("v", 4, "double"), exactly(lambda r: distinct(r)[:4]), always),
    "upper": (
        aggregates.top("v", 3, "double"),
        exactly(lambda rows: sorted(values_of(rows), key=by_size, reverse=True)[:3]),
        always,
    ),
    "later": (
        aggregates.last_values("v", 3, "t", "double", order_type="bigint"),
        exactly(lambda rows: by_time(rows)[::-1][:3]),
        always,
    ),
    "sizes": (aggregates.histogram("v", BOUNDS), exactly(buckets), always),
    "ranks": (aggregates.quantiles("v", [0.0, 0.5, 1.0]), exactly(quantiles), always),
    "n": (aggregates.count("v"), exactly(len), always),
}


# ------------------------------------------------------------------------------------ epochs


@pytest.fixture(scope="module")
def operator() -> AggregateOperator:
    wanted = {name: aggregate for name, (aggregate, _, _) in WANTED.items()}
    return AggregateOperator("u", "k", wanted, "string")


@pytest.fixture(scope="module")
def epochs(operator) -> dict[str, pa.RecordBatch]:
    """The reduced rows of each epoch of each cut of each case."""
    source = random.Random(SEED)
    rows = [
        (f"{case}/{cut}/{epoch}", value, time)
        for case, case_rows in enumerate(cases())
        for cut, numbers in enumerate(cuts_of(len(case_rows), source))
        for epoch, (value, time) in zip(numbers, case_rows, strict=True)
    ]
    names, values, times = zip(*rows, strict=True)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    batch = pa.record_batch(
        {"k": pa.array(names), "v": pa.array(values, from_pandas=False), "t": pa.array(times)}
    )
    of_rows = np.array([numbers[name] for name in names])
    reduced = pa.RecordBatch.from_pydict(parts_of(operator, batch, of_rows, len(numbers)))
    return {name: reduced.slice(number, 1) for name, number in numbers.items()}


def in_epochs(
    epochs: dict[str, pa.RecordBatch], case: int, cut: int, count: int
) -> Iterator[pa.RecordBatch]:
    for epoch in range(max(count, 4)):
        if f"{case}/{cut}/{epoch}" in epochs:
            yield epochs[f"{case}/{cut}/{epoch}"]


def run(merge: Merge, parts: Sequence[list[pa.Array]]) -> list[pa.Array]:
    held = [pa.nulls(1, each) for each in merge.types]
    for part in parts:
        merged = merge.merge(held, part)
        held = [new.cast(kind) for new, kind in zip(merged, merge.types, strict=True)]
    return held


def halves(merge: Merge, parts: Sequence[list[pa.Array]]) -> list[pa.Array]:
    """As ``run``, with the epochs in two halves whose states are combined, as windows do it."""
    middle = len(parts) // 2
    return merge.combined(run(merge, parts[:middle]), run(merge, parts[middle:]))


def parts_of_second_half(epochs: Sequence[int]) -> list[tuple[int, int]]:
    """The first epoch of the second half, with each last one."""
    second = epochs[len(epochs) // 2 :]
    return [(second[0], last) for last in second]


@pytest.mark.parametrize("name", WANTED)
def test_the_aggregate_is_that_of_all_rows(name: str, operator, epochs) -> None:
    at = [each for each, _ in operator.items].index(name)
    merge = operator.function.merges[at]
    _, is_right, does_fit = WANTED[name]
    source, checked, refused = random.Random(SEED), 0, 0
    for case, rows in enumerate(cases()):
        for cut, numbers in enumerate(cuts_of(len(rows), source)):
            parts = [
                [batch.column(part_name(at, each)) for each in merge.parts]
                for batch in in_epochs(epochs, case, cut, len(rows))
            ]
            so_far = [
                [row for row, epoch in zip(rows, numbers, strict=True) if epoch <= last]
                for last in sorted(set(numbers))
            ]
            if not all(map(does_fit, so_far)):
                with pytest.raises(ConfigError, match=f"^The sum of state '{name}.*does not fit"):
                    run(merge, parts)
                refused += 1
                continue
            second = [
                [row for row, epoch in zip(rows, numbers, strict=True) if first <= epoch <= last]
                for first, last in parts_of_second_half(sorted(set(numbers)))
            ]
            for way in (run, halves) if all(map(does_fit, second)) else (run,):
                held = way(merge, parts)
                if name == "ranks":
                    held = [merge.final(held)]
                actual = [each[0].as_py() for each in held]
                assert is_right(rows, actual), (rows, numbers, actual)
            checked += 1
    assert checked > CASES
    assert (refused > 0) == (does_fit is not always)


@pytest.mark.parametrize("name", WANTED)
def test_parts_of_rows_that_are_reduced_in_pieces_are_joined(name: str, operator) -> None:
    at = [each for each, _ in operator.items].index(name)
    merge, (aggregate, is_right, does_fit) = operator.function.merges[at], WANTED[name]
    checked = 0
    for rows in cases():
        numbers = np.arange(len(rows)) % 2
        pieces = [piece for piece in (rows, rows[::2], rows[1::2]) if piece]
        if not all(map(does_fit, pieces)):
            continue
        columns = {
            "v": pa.array([value for value, _ in rows], pa.float64(), from_pandas=False),
            "t": pa.array([time for _, time in rows], pa.int64()),
        }
        values, *orders = [columns[column] for column in aggregate.columns]
        parts = merge.reduced(RowsOfKeys(numbers, 2, values, orders))
        whole = merge.joined(parts, np.zeros(2, np.int64), 1)
        held = run(merge, [whole])
        if name == "ranks":
            held = [merge.final(held)]
        assert is_right(rows, [column[0].as_py() for column in held]), rows
        checked += 1
    assert checked > CASES // 2


def test_the_spread_of_a_key_with_one_infinite_value_is_no_number(operator) -> None:
    at = [each for each, _ in operator.items].index("deviation")
    merge = operator.function.merges[at]
    held = [pa.array([2]), pa.array([INF]), pa.array([NAN])]
    assert math.isnan(merge.final(held)[0].as_py())
