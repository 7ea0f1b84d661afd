"""Every aggregate of every type is what plain Python makes of all rows, however they are cut into
epochs.

One engine runs here: ``tests/integration/spark/test_engines.py`` holds that both write the same.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dstl_core import AggregateOperator, LocalEngine, Snapshot, StatefulJob, aggregates
from dstl_core.aggregates import Aggregate
from tests.examples import WHOLE

Row = dict[str, Any]
Expected = Callable[[list[Row]], Any]

UTC = dt.UTC
EPOCH = dt.datetime(1970, 1, 1)
TYPES = {
    "o": pa.int32(),
    "n": pa.int32(),
    "l": pa.int64(),
    "f": pa.float32(),
    "d": pa.float64(),
    "c": pa.decimal128(12, 2),
    "s": pa.string(),
    "b": pa.binary(),
    "t": pa.bool_(),
    "day": pa.date32(),
    "ts": pa.timestamp("us", "UTC"),
    "tn": pa.timestamp("us"),
}
NUMBERS = {"n", "l", "f", "d", "c"}
KEYS = {pa.int64(): range(8), pa.string(): [f"key {at}" for at in range(8)]}
SEEDS = range(20 if WHOLE else 2)


def random_rows(seed: int, keys: Sequence[Any], count: int = 200) -> list[Row]:
    """Rows of some keys: one without any value, one without nulls, others with some. Orders tie."""
    chooser = random.Random(seed)
    makers = {
        "n": lambda: chooser.randint(-(1 << 31), (1 << 31) - 1),
        "l": lambda: chooser.randint(-(1 << 55), 1 << 55),
        "f": lambda: chooser.choice([0.5, -2.25, 1e10, math.nan, math.inf, 0.0]),
        "d": lambda: chooser.choice([chooser.uniform(-1e6, 1e6), 0.0]),
        "c": lambda: Decimal(chooser.randint(-(10**11), 10**11)).scaleb(-2),
        "s": lambda: chooser.choice(["", "a", "ß", "😀", "ab", "z" * 40]),
        "b": lambda: chooser.randbytes(chooser.randrange(4)),
        "t": lambda: chooser.random() < 0.5,
        "day": lambda: dt.date(2000, 1, 1) + dt.timedelta(chooser.randint(-40_000, 40_000)),
        "ts": lambda: EPOCH.replace(tzinfo=UTC) + _micros(chooser),
        "tn": lambda: EPOCH + _micros(chooser),
    }
    rows = []
    for _ in range(count):
        key = chooser.choice(keys)
        nulls = {keys[0]: 1.0, keys[1]: 0.0}.get(key, 0.4)
        row = {"k": key, "o": None if chooser.random() < 0.1 else chooser.randrange(40)}
        for name, make in makers.items():
            row[name] = None if chooser.random() < nulls else make()
        rows.append(row)
    return rows


def _micros(chooser: random.Random) -> dt.timedelta:
    return dt.timedelta(microseconds=chooser.randint(-(1 << 50), 1 << 50))


# --------------------------------------------------------------------------------- expected


def rank(value: Any) -> tuple[int, Any]:
    """What sorts values: null first, NaN last, texts by their bytes."""
    if value is None or value != value:
        return (0 if value is None else 2), 0
    return 1, value.encode() if isinstance(value, str) else value


def known(rows: list[Row], *names: str) -> list[Row]:
    return [row for row in rows if all(row[name] is not None for name in names)]


def values(rows: list[Row], name: str) -> list[Any]:
    return [row[name] for row in known(rows, name)]


def ordered(rows: list[Row], *names: str) -> list[Row]:
    return sorted(rows, key=lambda row: [rank(row[name]) for name in names])


def or_null(result: Any) -> Any:
    """Null instead of an empty list or map."""
    return result or None


def at(rows: list[Row], name: str, place: int) -> Any:
    """The value of the first or the last row."""
    return rows[place][name] if rows else None


def total(numbers: list[Any]) -> Any:
    if not numbers:
        return None
    return math.fsum(numbers) if isinstance(numbers[0], float) else sum(numbers)


def mean(numbers: list[Any]) -> float | None:
    return total([float(each) for each in numbers]) / len(numbers) if numbers else None


def products(pairs: list[tuple[Any, Any]]) -> Any:
    """The sum of products of the distances from the means."""
    if not all(math.isfinite(each) for pair in pairs for each in pair):
        return math.nan
    exact = [[Fraction(float(each)) for each in column] for column in zip(*pairs, strict=True)]
    one, other = ([each - sum(column) / len(column) for each in column] for column in exact)
    return float(sum(first * second for first, second in zip(one, other, strict=True)))


def variance(numbers: list[Any]) -> float | None:
    count = len(numbers)
    return products([(each, each) for each in numbers]) / (count - 1) if count > 1 else None


def covariance(rows: list[Row], x: str, y: str) -> float | None:
    pairs = [(row[x], row[y]) for row in known(rows, x, y)]
    return products(pairs) / (len(pairs) - 1) if len(pairs) > 1 else None


def correlation(rows: list[Row], x: str, y: str) -> float | None:
    both = known(rows, x, y)
    squares = [products([(row[name], row[name]) for row in both]) if both else 0 for name in (x, y)]
    if len(both) < 2 or 0 in squares:
        return None
    return products([(row[x], row[y]) for row in both]) / math.sqrt(math.prod(squares))


def distinct(rows: list[Row], name: str) -> list[Any]:
    by_rank = {rank(each): each for each in values(rows, name)}
    return [by_rank[each] for each in sorted(by_rank)]


def largest_first(rows: list[Row], name: str) -> list[Any]:
    return sorted(values(rows, name), key=rank, reverse=True)


def micros(time: Any) -> int:
    if isinstance(time, int):
        return time * 1000  # milliseconds
    return (time.replace(tzinfo=None) - EPOCH) // dt.timedelta(microseconds=1)


def decayed(rows: list[Row], name: str, time: str, half_life_ms: float) -> float | None:
    times = [micros(row[time]) for row in known(rows, name, time)]
    return total(
        [
            float(row[name]) * 0.5 ** ((max(times) - own) / 1000 / half_life_ms)
            for row, own in zip(known(rows, name, time), times, strict=True)
        ]
    )


def buckets(rows: list[Row], name: str, bounds: list[float]) -> list[int] | None:
    counts = [0] * (len(bounds) + 1)
    for value in values(rows, name):
        counts[len(bounds) if value != value else sum(value >= bound for bound in bounds)] += 1
    return counts if any(counts) else None


def median(rows: list[Row], name: str) -> list[float] | None:
    numbers = sorted(float(each) for each in values(rows, name) if each == each)
    return [numbers[(len(numbers) - 1) // 2]] if numbers else None


def of_any_type(x: str) -> Iterator[tuple[str, Aggregate, Expected]]:
    one = aggregates
    yield "count", one.count(x), lambda rows: len(known(rows, x))
    yield "nulls", one.count_null(x), lambda rows: len(rows) - len(known(rows, x))
    yield "min", one.min(x), lambda rows: min(values(rows, x), key=rank, default=None)
    yield "max", one.max(x), lambda rows: max(values(rows, x), key=rank, default=None)
    yield "first", one.first(x, "o"), lambda rows: at(ordered(known(rows, x, "o"), "o", x), x, 0)
    yield "last", one.last(x, "o"), lambda rows: at(ordered(known(rows, x, "o"), "o", x), x, -1)
    yield "min_by", one.min_by(x, "o"), lambda rows: at(ordered(known(rows, "o"), "o", x), x, 0)
    yield "max_by", one.max_by(x, "o"), lambda rows: at(ordered(known(rows, "o"), "o", x), x, -1)
    yield (
        "list",
        one.collect_list(x, 3, "o"),
        lambda rows: or_null([row[x] for row in ordered(known(rows, x, "o"), "o", x)[:3]]),
    )
    yield (
        "last_values",
        one.last_values(x, 2, "o"),
        lambda rows: or_null([row[x] for row in ordered(known(rows, x, "o"), "o", x)[:-3:-1]]),
    )
    yield "set", one.collect_set(x, 3), lambda rows: or_null(distinct(rows, x)[:3])
    yield "top", one.top(x, 3), lambda rows: or_null(largest_first(rows, x)[:3])
    yield (
        "different",
        one.approx_count_distinct(x),
        lambda rows: len([value for value in distinct(rows, x) if value not in ("", b"")]),
    )


def of_numbers(x: str) -> Iterator[tuple[str, Aggregate, Expected]]:
    one = aggregates
    yield "sum", one.sum(x), lambda rows: total(values(rows, x))
    yield "avg", one.avg(x), lambda rows: mean(values(rows, x))
    yield "var", one.variance(x), lambda rows: variance(values(rows, x))
    yield (
        "dev",
        one.stddev(x),
        lambda rows: None if (var := variance(values(rows, x))) is None else math.sqrt(var),
    )
    yield "corr", one.corr(x, "o"), lambda rows: correlation(rows, x, "o")
    yield "covar", one.covar_samp("o", x), lambda rows: covariance(rows, "o", x)
    yield "sizes", one.histogram(x, [-2.25, 100]), lambda rows: buckets(rows, x, [-2.25, 100])
    yield "half", one.quantiles(x, [0.5]), lambda rows: median(rows, x)
    for time, half_life in (("l", 1e14), ("ts", 1e11), ("tn", 1e11)):
        yield (
            f"decayed_{time}",
            one.decayed_sum(x, half_life, time),
            lambda rows, time=time, half_life=half_life: decayed(rows, x, time, half_life),
        )


def of_columns(columns: Sequence[str]) -> Iterator[tuple[str, Aggregate, Expected]]:
    """Aggregates of some columns by name, and what they are of the rows of a key."""
    yield "rows", aggregates.count(), len
    for x in columns:
        for name, aggregate, expected in of_any_type(x):
            yield f"{name}_{x}", aggregate, expected
        if x in NUMBERS:
            for name, aggregate, expected in of_numbers(x):
                yield f"{name}_{x}", aggregate, expected
        elif x == "t":
            yield (
                "and_t",
                aggregates.bool_and("t"),
                lambda rows: min(values(rows, "t"), default=None),
            )
            yield "or_t", aggregates.bool_or("t"), lambda rows: max(values(rows, "t"), default=None)
        if x not in {"f", "d", "c", "b"}:
            yield (
                f"often_{x}",
                aggregates.value_counts(x, 1000),
                lambda rows, x=x: or_null(dict(Counter(values(rows, x)))),
            )
    fields = columns[:2]
    for name, aggregate, place in (
        ("first_row", aggregates.first_row, 0),
        ("last_row", aggregates.last_row, -1),
    ):
        yield (
            name,
            aggregate(fields, "o"),
            lambda rows, place=place: (
                {field: row[field] for field in fields}
                if (row := at_row(ordered(known(rows, "o"), "o", *fields), place))
                else None
            ),
        )


def at_row(rows: list[Row], place: int) -> Row | None:
    return rows[place] if rows else None


def same(actual: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        actual = dict(actual or ())
        return actual.keys() == expected.keys() and all(
            same(actual[key], value) for key, value in expected.items()
        )
    if isinstance(expected, list) and actual is not None:
        return len(actual) == len(expected) and all(map(same, actual, expected))
    if isinstance(expected, float) and actual is not None:
        return math.isclose(actual, expected, rel_tol=1e-9, abs_tol=1e-6) or (
            math.isnan(actual) and math.isnan(expected)
        )
    return bool(actual == expected)


# ------------------------------------------------------------------------------------- test


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("key", "columns"),
    [
        (pa.int64(), ("n", "l", "f", "d", "c", "t")),
        (pa.string(), ("s", "b", "day", "ts", "tn", "l")),
    ],
    ids=["numbers", "texts and times"],
)
def test_an_aggregate_is_that_of_all_rows(tmp_path: Path, key, columns, seed: int) -> None:
    rows = random_rows(seed, KEYS[key])
    wanted = {name: (aggregate, expected) for name, aggregate, expected in of_columns(columns)}
    schema = pa.schema({"k": key, **TYPES})
    by_key: dict[Any, list[Row]] = {}
    for row in rows:
        by_key.setdefault(row["k"], []).append(row)
    right = {
        key: {name: expected(own) for name, (_, expected) in wanted.items()}
        for key, own in by_key.items()
    }
    for epochs in (1, 3):
        chooser = random.Random(epochs)
        cuts = [chooser.randrange(epochs) for _ in rows]
        operator = AggregateOperator(
            "u", "k", {name: each for name, (each, _) in wanted.items()}, schema=schema, output=True
        )
        job = StatefulJob(
            LocalEngine(), "job", str(tmp_path / str(epochs)), operator, parallelism=2
        )
        output: dict[Any, Row] = {}
        for epoch in range(epochs):
            some = [row for row, cut in zip(rows, cuts, strict=True) if cut == epoch]
            done = job.run(pa.Table.from_pylist(some, schema), epoch)
            output |= {row["k"]: row for row in done.output.to_arrow().to_pylist()}
        assert wrong_of(output, right) == {}
        states = Snapshot.load(job.latest_path())["u"].keyed()
        kept = {row["state_key"]: row for part in states.read() for row in part.to_pylist()}
        plain = {
            key: {name: value for name, value in own.items() if name in kept[key]}
            for key, own in right.items()
        }
        for own in plain.values():  # the states of these are sketches
            for name in [name for name in own if name.startswith(("different", "half"))]:
                del own[name]
        assert wrong_of(kept, plain) == {}


def wrong_of(actual: dict[Any, Row], right: dict[Any, Row]) -> dict[tuple[Any, str], Any]:
    """The values that are wrong, with the right ones."""
    assert actual.keys() == right.keys()
    return {
        (key, name): (actual[key][name], value)
        for key, own in right.items()
        for name, value in own.items()
        if not same(actual[key][name], value)
    }
