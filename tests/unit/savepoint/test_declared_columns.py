"""Columns with declared decimals in any place of a type: exact digits become decimals."""

from __future__ import annotations

from decimal import Decimal as D
from typing import Any

import pyarrow as pa
import pytest

from dstl_core.codec.columnar.types.java_decimals import BIG_DECIMAL
from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS, EXACT_OPTIONS
from dstl_core.model.checkpoint import KEY_DECIMALS, DeclaredDecimals
from dstl_core.savepoint.columns.declared_decimals import as_declared, declared_types


def exact(number: str | None) -> dict[str, Any] | None:
    """A number as it is stored, by Python's own decimals."""
    if number is None:
        return None
    sign, digits, exponent = D(number).as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    size = unscaled.bit_length() // 8 + 1
    return {"unscaled": unscaled.to_bytes(size, "big", signed=True), "scale": -int(exponent)}


TWO, ONE = pa.decimal128(18, 2), pa.decimal128(9, 1)
STRUCT = pa.struct([("f0", pa.string()), ("f1", BIG_DECIMAL)])
MAP = pa.map_(pa.string(), BIG_DECIMAL)
CASES: list[tuple[pa.DataType, DeclaredDecimals, Any, pa.DataType, Any]] = [
    (BIG_DECIMAL, (18, 2), exact("7"), TWO, D("7.00")),
    (pa.list_(BIG_DECIMAL), (18, 2), [exact("7"), None], pa.list_(TWO), [D("7.00"), None]),
    (
        pa.list_(STRUCT),
        {"f1": (18, 2)},
        [{"f0": "a", "f1": exact("7")}],
        pa.list_(pa.struct([("f0", pa.string()), ("f1", TWO)])),
        [{"f0": "a", "f1": D("7.00")}],
    ),
    (MAP, {"value": (18, 2)}, [("a", exact("7"))], pa.map_(pa.string(), TWO), [("a", D("7.00"))]),
    (
        pa.map_(BIG_DECIMAL, pa.list_(BIG_DECIMAL)),
        {"key": (9, 1), "value": (18, 2)},
        [(exact("7"), [exact("-0.05")]), (exact("8"), None)],
        pa.map_(ONE, pa.list_(TWO)),
        [(D("7.0"), [D("-0.05")]), (D("8.0"), None)],
    ),
    (
        pa.list_(pa.struct([("key", pa.string()), ("value", BIG_DECIMAL)])),
        {"value": (18, 2)},
        [{"key": "a", "value": exact("7")}],
        pa.list_(pa.struct([("key", pa.string()), ("value", TWO)])),
        [{"key": "a", "value": D("7.00")}],
    ),
]


@pytest.mark.parametrize(("stored", "declared", "value", "kind", "shown"), CASES)
def test_a_part_comes_back_as_it_was_declared(
    stored: pa.DataType, declared: DeclaredDecimals, value: Any, kind: pa.DataType, shown: Any
) -> None:
    types = declared_types({"s": declared}, "keyed", {"s": stored}, DEFAULT_OPTIONS)
    assert types["s"].equals(kind)
    assert declared_types({"s": declared}, "keyed", {"s": stored}, EXACT_OPTIONS) == {}
    column = pa.array([value, None, value, value], stored)
    for part, expected in (
        (column, [shown, None, shown, shown]),
        (column.slice(1, 2), [None, shown]),
        (column.slice(0, 0), []),
    ):
        result = as_declared(part, types["s"], "s")
        result.validate(full=True)
        assert result.type.equals(kind)
        assert result.to_pylist() == expected


def test_columns_of_keys_and_of_entries_of_maps_have_their_types() -> None:
    declared: dict[str, DeclaredDecimals] = {
        KEY_DECIMALS: (9, 1),
        "prices": {"key": (18, 2), "value": (9, 1)},
    }
    columns = {"state_key": BIG_DECIMAL, "map_key": BIG_DECIMAL, "map_value": BIG_DECIMAL}
    types = declared_types(declared, "prices", columns, DEFAULT_OPTIONS)
    assert types == {"state_key": ONE, "map_key": TWO, "map_value": ONE}
    assert declared_types(declared, "others", columns, DEFAULT_OPTIONS) == {"state_key": ONE}
