"""Values without key groups as columns, and back to their bytes."""

import pyarrow as pa
import pytest

from dstl_core.codec.columnar.types.type_layouts import ColumnOptions
from dstl_core.codec.serializers import Types, serialize_to_bytes
from dstl_core.errors import ColumnValueError, ConfigError, FormatError
from dstl_core.state.columns.arrow_values import column_of_elements, column_of_values
from dstl_core.state.columns.column_fit import elements_of_column

PAIR = Types.TUPLE(Types.STRING, Types.LONG)
VALUES = [("a", 1), ("Zürich", -2), ("", 2**62)]


def raw(serializer, values):
    return [serialize_to_bytes(serializer, each) for each in values]


def test_elements_come_and_go():
    column = column_of_elements(PAIR, raw(PAIR, VALUES))
    assert [tuple(each.values()) for each in column.to_pylist()] == VALUES
    assert elements_of_column(PAIR, column, "state") == raw(PAIR, VALUES)


def test_lists_of_any_length():
    numbers = Types.LIST(Types.INT)
    values = [[], [1], [2, 3, 4]]
    column = column_of_elements(numbers, raw(numbers, values))
    assert column.to_pylist() == values
    assert elements_of_column(numbers, column, "state") == raw(numbers, values)


def test_nulls_between_values():
    assert column_of_values(Types.LONG, [None, 5, None]).to_pylist() == [None, 5, None]


def test_a_narrower_column_is_widened():
    column = pa.array([1, 2], pa.int16())
    assert elements_of_column(Types.LONG, column, "state") == raw(Types.LONG, [1, 2])


def test_damage_is_named_as_the_record_wise_code_names_it():
    with pytest.raises(FormatError, match="ends too early"):
        column_of_elements(Types.LONG, [b"\0" * 8, b"\0"])


def test_bytes_that_are_left():
    with pytest.raises(FormatError):
        column_of_elements(Types.LONG, [b"\0" * 9])


def test_a_lone_surrogate_names_the_option():
    lone = raw(Types.STRING, ["\ud800"])
    with pytest.raises(ColumnValueError, match="strings=utf16"):
        column_of_elements(Types.STRING, lone)
    utf16 = column_of_elements(Types.STRING, lone, ColumnOptions(strings="utf16"))
    assert utf16.to_pylist() == [b"\xd8\x00"]


def test_a_null_is_no_element():
    with pytest.raises(ConfigError, match="null element"):
        elements_of_column(Types.LONG, pa.array([1, None]), "State 's'")
