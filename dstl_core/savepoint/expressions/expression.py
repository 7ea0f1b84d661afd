"""The expressions of a migration: a value of the new state, from columns of the old row.

    NAME, fN, a.b             a column of the old row; a field of a column
    key, key.NAME             the old key, a column of it
    value, map_key            the whole old value (of a map: of an entry), the user key of a map
    1, 1.5, 'text', true, null
    cast(x, TYPE)             a value that does not fit is an error
    cast_or_null(x, TYPE)     a value that does not fit is null
    coalesce(x, literal)
    nullif(x, literal)        null instead of a constant
    recode(x, TYPE, TYPE)     bytes of PyFlink, or a message of Protocol Buffers, as another type
    empty()                   the RAW column of an aggregate whose own state holds no value yet
    size(x), count(x)         of a list state: how many elements
    sum(x), min(x), max(x), first(x), last(x)      of a list state: over its elements

A type is one of SQL: INT, BIGINT, DECIMAL(12, 2), VARCHAR(10), DATE, ...; nothing is evaluated by
Python.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union

from dstl_core.errors import ConfigError
from dstl_core.flink_text import whole_number

UNDECIDED = "???"
AGGREGATES = ("size", "count", "sum", "min", "max", "first", "last")
MERGES = ("sum", "min", "max", "first", "last", "count", "error")

Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class Column:
    """A column of the old row; ``path`` leads to it: ``("f0",)``, ``("key", "f1")``."""

    path: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True)
class Literal:
    """A constant."""

    value: Scalar

    def __str__(self) -> str:
        match self.value:
            case None:
                return "null"
            case bool():
                return str(self.value).lower()
            case str():
                return "'" + self.value.replace("'", "''") + "'"
            case _:
                return str(self.value)


@dataclass(frozen=True)
class OfOneValue:
    """A function of one value. What walks through expressions needs no more of it."""

    of: Expression


@dataclass(frozen=True)
class Cast(OfOneValue):
    """A value in another type; ``or_null`` makes null of values that do not fit."""

    type: str
    or_null: bool = False

    def __str__(self) -> str:
        return f"cast{'_or_null' * self.or_null}({self.of}, {self.type})"


@dataclass(frozen=True)
class Coalesce(OfOneValue):
    """A value, or a constant instead of null."""

    default: Literal

    def __str__(self) -> str:
        return f"coalesce({self.of}, {self.default})"


@dataclass(frozen=True)
class NullIf(OfOneValue):
    """A value, or null instead of a constant."""

    unset: Literal

    def __str__(self) -> str:
        return f"nullif({self.of}, {self.unset})"


@dataclass(frozen=True)
class Recode(OfOneValue):
    """Bytes of PyFlink in another one of its types, or a message in another version of its type."""

    old: str
    new: str

    def __str__(self) -> str:
        return f"recode({self.of}, {self.old}, {self.new})"


@dataclass(frozen=True)
class ListAggregate(OfOneValue):
    """One value of all elements of a list."""

    function: str

    def __str__(self) -> str:
        return f"{self.function}({self.of})"


@dataclass(frozen=True)
class Empty:
    """The RAW column of an accumulator whose values are in a state of their own.

    The distinct values of ``COUNT(DISTINCT x)`` are stored like this.
    """

    def __str__(self) -> str:
        return "empty()"


@dataclass(frozen=True)
class Undecided:
    """A decision that a person has to make."""

    def __str__(self) -> str:
        return UNDECIDED


Expression = Union[  # noqa: UP007
    Column, Literal, Cast, Coalesce, NullIf, Recode, ListAggregate, Empty, Undecided
]

_WITH_CONSTANT: dict[str, type[Coalesce | NullIf]] = {"coalesce": Coalesce, "nullif": NullIf}

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_$][\w$-]*|`[^`]+`)|(?P<sign>[(),.])|(?P<order><=|>=|<>|!=|[<>=]))"
)
_MOST_DEPTH = 32
_MOST_DIGITS = 38
"""Of a whole number: the digits of the longest decimal."""


def parse_expression(text: object, where: str) -> Expression:
    """Reads an expression, or a constant of YAML.

    Args:
        text: The text, a number, true, false or null.
        where: Where it stands, for messages.

    Raises:
        ConfigError: It is not an expression.
    """
    if text is None or isinstance(text, bool | int | float):
        return Literal(_checked(text, where))
    if not isinstance(text, str):
        raise ConfigError(f"{where} is wrong: expected an expression, got {text!r}.")
    if text.strip() == UNDECIDED:
        return Undecided()
    return ExpressionParser(text, where).whole()


def columns_of(expression: Expression) -> Iterator[Column]:
    match expression:
        case Column():
            yield expression
        case OfOneValue():
            yield from columns_of(expression.of)


def is_constant(expression: Expression) -> bool:
    """Whether the value is the same for all rows."""
    return isinstance(expression, Literal | Empty)


def is_undecided(expression: Expression) -> bool:
    return isinstance(expression, Undecided)


def _checked(number: Scalar, where: str) -> Scalar:
    is_fitting = abs(number) < 10**_MOST_DIGITS if isinstance(number, int) else True
    if not is_fitting or (isinstance(number, float) and not math.isfinite(number)):
        raise ConfigError(
            f"{where} is wrong: expected a finite number, a whole one of up to {_MOST_DIGITS} "
            f"digits."
        )
    return number


def _unicode(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes of a command line that are not UTF-8
        raise ConfigError(
            f"{where} is wrong: the constant {text[:40]!r} has bytes that are not UTF-8."
        ) from None
    return text


class ExpressionParser:
    """A recursive descent over the tokens of one expression."""

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._at = 0
        self._depth = 0

    def whole(self) -> Expression:
        expression = self._value()
        self._end()
        return expression

    def _end(self) -> None:
        if self._text[self._at :].strip():
            raise self._error("an end of the expression")

    def _error(self, expected: str, at: int | None = None) -> ConfigError:
        rest = self._text[self._at if at is None else at :].strip() or "its end"
        return ConfigError(
            f"{self._where} is not an expression: expected {expected}, got {rest[:40]!r} "
            f"in {self._text[:80]!r}."
        )

    def _next(self, expected: str) -> tuple[str, str]:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self._error(expected)
        self._at = match.end()
        assert match.lastgroup is not None  # one of the alternatives has matched
        return match.lastgroup, match.group(match.lastgroup)

    def _peek(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        return "" if match is None or match.lastgroup != "sign" else match.group("sign")

    def _expect(self, sign: str) -> None:
        if self._peek() != sign:
            raise self._error(repr(sign))
        self._next(sign)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise ConfigError(f"{self._where} nests deeper than {_MOST_DEPTH} levels.")

    def _value(self) -> Expression:
        self._deeper()
        start = self._at
        kind, text = self._next("a column, a constant or a function")
        if kind == "text":
            return Literal(_unicode(text[1:-1].replace("''", "'"), self._where))
        if kind == "number":
            number = float(text) if re.search(r"[.eE]", text) else whole_number(text, _MOST_DIGITS)
            if number is None:
                raise self._error(f"a number of up to {_MOST_DIGITS} digits", start)
            return Literal(_checked(number, self._where))
        if kind in ("sign", "order"):
            self._at = start
            raise self._error("a column, a constant or a function")
        if self._peek() == "(":
            return self._call(text.lower(), start)
        if text.lower() in ("null", "true", "false"):
            return Literal({"null": None, "true": True, "false": False}[text.lower()])
        path = [text.strip("`")]
        while self._peek() == ".":
            self._next(".")
            kind, part = self._next("the name of a field")
            if kind not in ("name", "number"):
                raise self._error("the name of a field")
            path.append(part.strip("`"))
        return Column(tuple(path))

    def _call(self, function: str, start: int) -> Expression:
        self._expect("(")
        if function in AGGREGATES:
            of = Column(("value",)) if self._peek() == ")" else self._value()
            self._expect(")")
            return ListAggregate(of, function)
        if function in ("cast", "cast_or_null"):
            of = self._value()
            self._expect(",")
            return Cast(of, self._type(), function == "cast_or_null")
        if function in _WITH_CONSTANT:
            of = self._value()
            self._expect(",")
            constant = self._value()
            if not isinstance(constant, Literal):
                raise ConfigError(
                    f"{self._where} is wrong: {function} ends with a constant, got {constant}."
                )
            self._expect(")")
            return _WITH_CONSTANT[function](of, constant)
        if function == "recode":
            of = self._value()
            self._expect(",")
            return Recode(of, self._type(","), self._type())
        if function == "empty":
            self._expect(")")
            return Empty()
        self._at = start
        known = ("cast", "cast_or_null", *_WITH_CONSTANT, "recode", "empty", *AGGREGATES)
        raise self._error(f"one of the functions {', '.join(known)}")

    def _type(self, end: str = ")") -> str:
        """The text up to the closing parenthesis of the call, or up to a comma, which it reads,
        too.
        """
        depth, start = 0, self._at
        for at in range(start, len(self._text)):
            sign = self._text[at]
            depth += (sign in "([") - (sign in ")]")
            if depth < 0 or (depth == 0 and sign == end == ","):
                if sign != end:
                    break
                self._at = at + 1
                words = " ".join(self._text[start:at].split())
                if words:
                    return words
                break
        raise self._error(f"a type and {end!r}")
