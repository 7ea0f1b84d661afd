"""Declarations of every aggregate, right ones and wrong ones, made of the fields of its class."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from decimal import Decimal
from itertools import islice
from random import Random
from typing import Any, get_type_hints

import pyarrow as pa

from dstl_core import aggregates
from dstl_core.aggregates import AGGREGATES, Aggregate
from dstl_core.errors import ConfigError
from dstl_core.job.spec.input_checks import check_input
from dstl_core.job.spec.operators import AggregateOperator

SEED = 36
KEY = "k"
SCHEMA = pa.schema(
    {
        KEY: pa.string(),
        "o": pa.int64(),
        "b": pa.bool_(),
        "i": pa.int32(),
        "f": pa.float32(),
        "d": pa.float64(),
        "s": pa.string(),
        "y": pa.binary(),
        "c": pa.decimal128(9, 2),
        "day": pa.date32(),
        "ts": pa.timestamp("us", "UTC"),
        "n": pa.timestamp("us"),
        "a": pa.list_(pa.int32()),
    }
)
DDL = (
    "k string, o bigint, b boolean, i int, f float, d double, s string, y binary, c decimal(9, 2), "
    "day date, ts timestamp, n timestamp_ntz, a array<int>"
)
"""``SCHEMA`` as text."""
COLUMNS = SCHEMA.names[1:]
TYPES = ["bigint", "double", "decimal(38, 4)", "string", "timestamp", "map<string, int>", "nothing"]
DAY = dt.datetime(2026, 1, 1)


def declarations(how: str) -> Iterator[dict[str, Any]]:
    """Declarations of an aggregate without end, as YAML has them."""
    source = Random(f"{SEED} {how}")
    while True:
        yield {"how": how, **_options(source, AGGREGATES[how])}


def _options(source: Random, aggregate: type[Aggregate]) -> dict[str, Any]:
    hints = get_type_hints(aggregate)
    return {
        field.name: _value(source, aggregate, hints[field.name], field.name)
        for field in fields(aggregate)  # type: ignore[arg-type]  # each is a dataclass
        if field.default is MISSING or source.random() < 0.3
    }


def _value(source: Random, aggregate: type[Aggregate], hint: Any, name: str) -> Any:
    """A value of a field. Most columns are such that the aggregate takes them."""
    example = aggregate.example[name]
    if hint == str | Sequence[str]:
        several = source.sample(COLUMNS, 2)
        return several if source.random() < 0.3 else several[0]
    if hint in (str, str | None):
        fit = [each for each in COLUMNS if aggregate.takes.fits(SCHEMA.field(each).type)]
        return source.choice(fit if source.random() < 0.8 else COLUMNS)
    if hint == Sequence[str]:
        return source.sample(COLUMNS, 2) if source.random() < 0.9 else []
    if hint == Any | None:
        return source.choice([None, *TYPES])
    if hint == Sequence[Any] | None:
        return source.choice([None, None, source.sample(TYPES, 2), TYPES[:1]])
    if hint == Any | Sequence[Any] | None:
        return source.choice([None, *TYPES, source.sample(TYPES, 2)])
    if hint is bool:
        return source.random() < 0.5
    if hint is int:
        return source.choice([example, example, example + 1, -1, 10**9])
    if hint is float:
        return source.choice([example, 0.5, -1.0])
    return source.choice([example, example[:1], [], [-1.0]])


def refusal(operator: AggregateOperator) -> None:
    """Raises ConfigError if the operator refuses the rows."""
    check_input(SCHEMA, operator, None)


def accepted(count: int) -> dict[str, dict[str, Any]]:
    """``count`` declarations of each aggregate that an operator accepts, by the name of a state."""
    return {
        f"{how}_{number}": declared
        for how in AGGREGATES
        for number, declared in enumerate(islice(filter(_is_accepted, declarations(how)), count))
    }


def _is_accepted(declared: dict[str, Any]) -> bool:
    try:
        refusal(AggregateOperator("u", KEY, {"s": python_of(declared)}, schema=SCHEMA))
    except ConfigError:
        return False
    return True


def python_of(declared: dict[str, Any]) -> Aggregate:
    """The aggregate as a user writes it in Python."""
    options = {name: value for name, value in declared.items() if name != "how"}
    made: Aggregate = getattr(aggregates, declared["how"])(**options)
    return made


def typed_table(seed: int, rows: int = 60) -> pa.Table:
    """Rows of all types for six keys, with nulls."""
    source = Random(seed)
    keys = pa.array([f"k{source.randint(0, 5)}" for _ in range(rows)])
    columns = [
        pa.array([_cell(source, name) for _ in range(rows)], SCHEMA.field(name).type)
        for name in COLUMNS
    ]
    return pa.Table.from_arrays([keys, *columns], schema=SCHEMA)


def _cell(source: Random, name: str) -> Any:
    if source.random() < 0.2:
        return None
    number = source.randint(-50, 50)
    moment = DAY + dt.timedelta(minutes=number)
    return {
        "o": number,
        "b": number % 2 == 0,
        "i": number,
        "f": number / 4,
        "d": number / 8,
        "s": f"text {number % 9}",
        "y": bytes([number % 7]),
        "c": Decimal(number).scaleb(-2),
        "day": DAY.date() + dt.timedelta(number),
        "ts": moment.replace(tzinfo=dt.UTC),
        "n": moment,
        "a": [number],
    }[name]
