"""Operators take types and columns in every form, and say at once what is wrong with one."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import types as T

from dstl_core.aggregates import count
from dstl_core.codec.python_values import AsPython
from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError
from dstl_core.functions import RichMapFunction
from dstl_core.job.spec.input_checks import needed_columns
from dstl_core.job.spec.operators import (
    AggregateOperator,
    KeyedOperator,
    ProcessOperator,
    as_shipped,
    check_operators,
    late_schema_of,
)
from dstl_core.spark.engine.schema import type_of_column
from dstl_core.state.windows.windowing import TumblingEventTimeWindows


class Same(RichMapFunction):
    def map(self, value: Any) -> Any:
        return value


@dataclass
class Output:
    o: str


COLUMNS = pa.schema([("o", pa.string())])
FORMS = [
    "o string",
    T.StructType([T.StructField("o", T.StringType())]),
    {"o": str},
    Output,
    COLUMNS,
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_an_output_in_every_form(form: Any) -> None:
    assert KeyedOperator("u", "k", str, Same(), form).output_schema == COLUMNS
    assert ProcessOperator("u", Same(), form).output_schema == COLUMNS


@pytest.mark.parametrize("lag", [5000, "5 s", dt.timedelta(seconds=5)], ids=str)
def test_out_of_orderness_in_every_form(lag: Any) -> None:
    keyed = KeyedOperator("u", "k", str, Same(), event_time="t", out_of_orderness_ms=lag)
    plain = ProcessOperator("u", Same(), event_time="t", out_of_orderness_ms=lag)
    for operator in (keyed, plain, as_shipped(keyed)):
        assert operator.out_of_orderness_ms == operator.lag_ms == 5000
    for wrong in (-1, "5 x", 0.5):
        with pytest.raises(ConfigError, match=r"^The out-of-orderness of operator 'u' is wrong"):
            replace(plain, out_of_orderness_ms=wrong)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_late_rows_of_declared_windows_in_every_form(form: Any) -> None:
    def declared(late: Any, schema: Any = None) -> AggregateOperator:
        return AggregateOperator(
            "u",
            "k",
            {"n": count()},
            "string",
            schema,
            window=TumblingEventTimeWindows.of(10),
            event_time="t",
            side_output_late_data=late,
        )

    operator = declared(form)
    assert late_schema_of(operator) == late_schema_of(declared(True, form)) == COLUMNS
    assert late_schema_of(cloudpickle.loads(cloudpickle.dumps(as_shipped(operator)))) == COLUMNS
    assert operator.columns == ["k", "t"] and needed_columns(operator, ()) == {"k", "t", "o"}
    for nothing in (None, False):
        assert late_schema_of(declared(nothing, form)) is None
    with pytest.raises(ConfigError, match=r"The name 'u.late' is used twice"):
        check_operators([operator, replace(operator, uid="u.late")])


@pytest.mark.parametrize(
    "form", ["string", str, T.StringType(), pa.string(), Types.STRING], ids=str
)
def test_a_key_in_every_form(form: Any) -> None:
    operator = KeyedOperator("u", "k", form, Same())
    assert operator.key_type == operator.function_key_type == Types.STRING


def test_a_key_is_stored_as_flinks_and_seen_as_pythons_in_tasks_too() -> None:
    operator = KeyedOperator("u", "k", dt.date, Same())
    shipped = cloudpickle.loads(cloudpickle.dumps(as_shipped(replace(operator, order_by=["k"]))))
    assert shipped.key_type == Types.LOCAL_DATE
    assert isinstance(shipped.function_key_type, AsPython)
    exact = KeyedOperator("u", "k", Types.LOCAL_DATE, Same())
    assert exact.function_key_type == Types.LOCAL_DATE


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("u", "k", "strng", Same()), r"The key of operator 'u' has a wrong type: .*'strng'"),
        (("u", "k", Same(), str), r"The key of operator 'u' has a wrong type: expected SQL text"),
        (
            ("u", "k", "string", Same(), "string"),
            r"The output_schema of operator 'u' is wrong: expected columns",
        ),
        (
            ("u", "k", "string", Same(), pa.schema([("o", pa.float16())])),
            r"The output of 'u' has a column 'o' that cannot be read back",
        ),
        (
            ("u", "k", "string", Same(), "o string, O int"),
            "The output of operator 'u' has the columns 'o' and 'O', which Spark cannot tell apart",
        ),
        (("u", "k", "string", Same(), pa.schema([])), "The output of operator 'u' has no column"),
        (
            ("u", "k", "string", Same(), pa.schema([("o", pa.int8()), ("o", pa.int8())])),
            "The output_schema of operator 'u' is wrong: two columns are called 'o'",
        ),
        ((None, "k", "string", Same()), "The uid of an operator is wrong: expected a name, got No"),
        (("a\udcff", "k", "string", Same()), r"The uid of an operator is wrong: .* got 'a\\udcff'"),
        (
            ("u", "\ud800", "string", Same()),
            r"The key_by of .*: expected the name .* got '\\ud800'",
        ),
        (("u", ["a", "b"], "string", Same()), "The key_by of .* name of one column, got .*'a', 'b"),
        (
            ("u", "k", "map<string, int>", Same()),
            "The key of operator 'u' is a Map<String, Integer",
        ),
        (
            ("u", "k", "string", Same),
            "The function of operator 'u' is the class Same; make an obje",
        ),
        (("u", "k", "string", "Same"), "The function of operator 'u' is wrong: .* got 'Same'"),
        (("u", "k", "string", Same(), None, 5), "The source of .*: expected the uid .* got 5"),
        (
            ("u", "k", "string", Same(), None, "input", ["ts", 5]),
            r"The order_by of .*: expected a list of names of columns, got \['ts', 5\]",
        ),
        (("u", "k", "string", Same(), None, "input", None, 5), "The event_time of .*, got 5"),
        (
            ("u", "k", "string", Same(), None, "input", None, "ts", "5 x"),
            "The out-of-orderness of operator 'u' is wrong: expected a duration .*got '5 x'",
        ),
    ],
)
def test_a_wrong_operator_is_one_sentence_at_once(arguments: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{said}"):
        KeyedOperator(*arguments)


def test_an_operator_without_a_key_needs_a_function_for_rows() -> None:
    with pytest.raises(ConfigError, match=r"^The function of operator 'u' is the class Same"):
        ProcessOperator("u", Same)  # type: ignore[arg-type]


def test_a_column_takes_a_type_in_every_form() -> None:
    schema = T.StructType([T.StructField("n", T.LongType())])
    assert type_of_column(schema, "n") == Types.LONG
    for form in ("int", T.IntegerType(), pa.int32(), Types.INT):
        assert type_of_column(schema, "n", form) == Types.INT
    with pytest.raises(ConfigError, match=r"^Column 'n' has a wrong type: .*'strng'"):
        type_of_column(schema, "n", "strng")
    with pytest.raises(ConfigError, match=r"^There is no column 'm'; the DataFrame has: n"):
        type_of_column(schema, "m")
