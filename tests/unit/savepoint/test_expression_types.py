"""Types in expressions of a migration have parentheses and commas of their own."""

from __future__ import annotations

import pytest

from dstl_core.errors import ConfigError
from dstl_core.savepoint.expressions.expression import (
    Cast,
    Coalesce,
    Column,
    Expression,
    Literal,
    Recode,
    parse_expression,
)

F0 = Column(("f0",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cast(f0, BIGINT)", Cast(F0, "BIGINT")),
        ("cast(f0, VARCHAR(6))", Cast(F0, "VARCHAR(6)")),
        ("cast_or_null(f0, DECIMAL(12, 2))", Cast(F0, "DECIMAL(12, 2)", or_null=True)),
        ("coalesce(cast(f0, CHAR(2)), 'x')", Coalesce(Cast(F0, "CHAR(2)"), Literal("x"))),
        ("recode(f0, LONG, LIST[LONG])", Recode(F0, "LONG", "LIST[LONG]")),
        ("recode(f0, MAP(A, B), C(D))", Recode(F0, "MAP(A, B)", "C(D)")),
    ],
)
def test_a_type_ends_with_its_call(text: str, expected: Expression) -> None:
    assert parse_expression(text, "place") == expected


@pytest.mark.parametrize(
    "text", ["cast(f0, CHAR(2)", "cast(f0, )", "cast(f0, CHAR(2)))", "recode(f0, A)"]
)
def test_a_type_without_an_end_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="place is not an expression"):
        parse_expression(text, "place")
