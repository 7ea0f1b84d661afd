"""Conditions over the columns of a state, for ``--where`` of a rewrite.

    condition  := and ("or" and)*
    and        := not ("and" not)*
    not        := "not" not | "(" condition ")" | comparison
    comparison := value ("=" | "<>" | "!=" | "<" | "<=" | ">" | ">=") value
                | value "is" ["not"] "null" | value

A value is an expression of a migration. Null is neither true nor false, as in SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Union

import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.logical_types import LogicalType
from dstl_core.errors import ConfigError
from dstl_core.savepoint.expressions.expression import Expression, ExpressionParser, Literal
from dstl_core.savepoint.expressions.typed_values import Values, arrow_of, name_of
from dstl_core.savepoint.expressions.value_conversion import Conversion
from dstl_core.state.tables.sql_widening import widens

_COMPARISONS: Mapping[str, Any] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


@dataclass(frozen=True)
class Comparison:
    """Two values in an order."""

    left: Expression
    sign: str
    right: Expression


@dataclass(frozen=True)
class IsNull:
    """Whether a value is null."""

    of: Expression


@dataclass(frozen=True)
class IsTrue:
    """A value that is a condition itself."""

    of: Expression


@dataclass(frozen=True)
class Not:
    """The opposite of a condition."""

    of: Condition


@dataclass(frozen=True)
class Joined:
    """Conditions, of which all or one of them has to be true."""

    parts: tuple[Condition, ...]
    is_and: bool


Condition = Union[Comparison, IsNull, IsTrue, Not, Joined]  # noqa: UP007


def parse_condition(text: object, where: str) -> Condition:
    """Reads a condition.

    Raises:
        ConfigError: It is none.
    """
    if not isinstance(text, str):
        raise ConfigError(f"{where} is wrong: expected a text such as 'amount > 0', got {text!r}.")
    return _ConditionParser(text, where).condition()


class _ConditionParser(ExpressionParser):
    """Reads conditions around the expressions of migrations."""

    def condition(self) -> Condition:
        condition = self._or()
        self._end()
        return condition

    def _or(self) -> Condition:
        parts = [self._and()]
        while self._takes("or"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else Joined(tuple(parts), is_and=False)

    def _and(self) -> Condition:
        parts = [self._not()]
        while self._takes("and"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else Joined(tuple(parts), is_and=True)

    def _not(self) -> Condition:
        depth = self._depth
        self._deeper()
        if self._takes("not"):
            condition: Condition = Not(self._not())
        elif self._peek() == "(":
            self._next("(")
            condition = self._or()
            self._expect(")")
        else:
            condition = self._comparison()
        self._depth = depth
        return condition

    def _comparison(self) -> Condition:
        left = self._value()
        if self._takes("is"):
            is_not = self._takes("not")
            if not self._takes("null"):
                raise self._error("null after is")
            return Not(IsNull(left)) if is_not else IsNull(left)
        at = self._at
        if self._text[at:].strip():
            kind, sign = self._next("a comparison")
            if kind == "order":
                return Comparison(left, sign, self._value())
            self._at = at
        return IsTrue(left)

    def _takes(self, word: str) -> bool:
        """Whether the next token is this word, which is read then."""
        at = self._at
        if self._text[at:].strip():
            kind, text = self._next("a condition")
            if kind == "name" and text.lower() == word:
                return True
        self._at = at
        return False


def mask_of(
    condition: Condition,
    conversion: Conversion,
    scope: Mapping[str, Values],
    rows: int,
) -> pa.BooleanArray:
    """Whether the condition is true of each row; null where it is neither true nor false.

    Args:
        condition: The condition.
        conversion: Reads expressions; ``where`` names their place.
        scope: The columns by name.
        rows: Number of rows.

    Raises:
        ConfigError: A name or a type is wrong.
    """
    match condition:
        case Not(of):
            return pc.invert(mask_of(of, conversion, scope, rows))
        case Joined(parts, is_and):
            masks = (mask_of(part, conversion, scope, rows) for part in parts)
            return reduce(pc.and_kleene if is_and else pc.or_kleene, masks)
        case IsNull(of):
            return conversion.value_of(of, scope, rows, conversion.where).column.is_null()
        case IsTrue(of):
            values = conversion.value_of(of, scope, rows, conversion.where)
            if not pa.types.is_boolean(values.column.type):
                raise ConfigError(
                    f"{conversion.where} is wrong: expected a condition, got a value of type "
                    f"{name_of(values.kind)}; compare it with another one."
                )
            return values.column
        case Comparison(left, sign, right):
            return _compared(
                conversion.value_of(left, scope, rows, conversion.where),
                sign,
                conversion.value_of(right, scope, rows, conversion.where),
                conversion,
                is_constant=isinstance(left, Literal),
            )


def _compared(
    left: Values, sign: str, right: Values, conversion: Conversion, *, is_constant: bool
) -> pa.BooleanArray:
    where = conversion.where
    if left.kind is None or right.kind is None:
        raise ConfigError(f"{where} is wrong: null is compared by 'is null' or 'is not null'.")
    if is_constant or _widens(left, right):
        one = conversion.assign(left, right.kind, arrow_of(right.kind), where)
        other = right.column
    else:
        one = left.column
        other = conversion.assign(right, left.kind, arrow_of(left.kind), where)
    try:
        compared: pa.BooleanArray = _COMPARISONS[sign](one, other)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise ConfigError(
            f"{where} is wrong: values of type {name_of(left.kind)} cannot be compared; compare a "
            f"field of them."
        ) from error
    return compared


def _widens(left: Values, right: Values) -> bool:
    """Whether values of the left type are values of the right one, and not the reverse."""
    one, other = left.kind, right.kind
    if right.constant is not None or not isinstance(one, LogicalType):
        return False
    return isinstance(other, LogicalType) and one.root != other.root and widens(one, other)
