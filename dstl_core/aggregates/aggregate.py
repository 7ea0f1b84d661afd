"""What an aggregate is: a class with its columns, the types that it keeps, its checks, its merge.

Null values are passed over, as in SQL. What an aggregate keeps is plain value state: one state of
the aggregate's name, or several (``<name>_sum``, ``<name>_count``), which can be merged with those
of the next batch. The state does not depend on how rows are split into batches, but for the last
digits of floating-point numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import pyarrow as pa

from dstl_core.aggregates.aggregate_merge import Merge
from dstl_core.aggregates.column_checks import ANY, ColumnRule
from dstl_core.codec.columnar.types.java_decimals import DIGITS
from dstl_core.codec.declared_type import TypeLike
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.errors import ConfigError

FLAT = (
    Types.BOOLEAN,
    Types.BYTE,
    Types.SHORT,
    Types.INT,
    Types.LONG,
    Types.FLOAT,
    Types.DOUBLE,
    Types.STRING,
    Types.BYTES,
    Types.BIG_DEC,
    Types.LOCAL_DATE,
    Types.LOCAL_TIME,
    Types.LOCAL_DATE_TIME,
    Types.INSTANT,
    Types.SQL_DATE,
    Types.SQL_TIMESTAMP,
)
"""The types that have an order and a single column."""
_TYPES = ("type", "types", "order_type", "time_type")
"""Fields with types, which the states themselves have."""


@dataclass(frozen=True)
class Kept:
    """A column that gives state its type.

    Args:
        column: The column.
        type: The declared type, in any form; None: that of the column.
        option: The option that declares it, for errors.
        of_order: Whether the column is an order, for errors.
        state: Ends the name of the state that has the type; None: the first one of the aggregate.
        widest: Whether whole numbers become long, other numbers double, and decimals those of all
            digits.
    """

    column: str
    type: TypeLike | None
    option: str = "type"
    of_order: bool = False
    state: str | None = None
    widest: bool = False

    def digits(self, precision: int) -> int:
        """The digits of decimals of the state, from those of the type."""
        return DIGITS if self.widest and self.type is None else precision


def _one_form(value: Any) -> Any:
    """A value that a user may declare in several forms: a list is a tuple, and one column is its
    name.
    """
    if not isinstance(value, list | tuple):
        return value
    return value[0] if len(value) == 1 and isinstance(value[0], str) else tuple(value)


class Aggregate(ABC):
    """One aggregate of the rows of a key.

    A subclass is a frozen dataclass. Its name is the name of the aggregate, and its fields are what
    a user declares, in Python and in YAML.
    """

    column: str | None
    """What is aggregated; None counts rows."""
    takes: ClassVar[ColumnRule] = ANY
    """Which columns it can be computed of."""
    example: ClassVar[Mapping[str, Any]]
    """Values of all its fields, as YAML has them."""
    states_of: ClassVar[str | None] = None
    """The aggregate that has the same states, which another epoch may continue as this one."""
    of_keys: ClassVar[str | None] = None
    """How the states of keys that become one merge, where each of them does so by itself."""
    may_change: ClassVar[Sequence[str]] = ()
    """Fields that another epoch may change, since the states go on."""

    def __post_init__(self) -> None:
        if self.column is None:
            raise ConfigError(f"The aggregate {self.how} needs a column.")
        self._check_name("column", self.column)

    @property
    def how(self) -> str:
        return self.__class__.__name__

    @property
    def definition(self) -> str:
        """What its states mean beyond their types. Another definition cannot continue them."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]  # it is a dataclass
        texts = [
            f"{name}={_one_form(value)!r}"
            for name, value in options.items()
            if value is not None and name not in (*_TYPES, *self.may_change)
        ]
        return f"{self.states_of or self.how}({', '.join(texts)})"

    @property
    def values(self) -> tuple[str, ...]:
        return () if self.column is None else (self.column,)

    @property
    def order(self) -> tuple[str, ...]:
        """The columns that put rows into an order."""
        return ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads: its values, then its order."""
        return (*self.values, *self.order)

    @property
    def kept(self) -> tuple[Kept, ...]:
        """The columns that give its states their types, unless these are fixed."""
        return ()

    @abstractmethod
    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        """What reduces rows, and merges them into state.

        Args:
            uid: The uid of the operator, for errors.
            name: The name of the aggregate.
            kinds: A type for each of ``kept``.

        Raises:
            ConfigError: These types cannot store the aggregate.
        """

    def check_declared(self, where: str, field: pa.Field, kinds: Sequence[AnySerializer]) -> None:
        """Raises ConfigError if it cannot be computed of a column of the schema.

        Args:
            where: The aggregate and its operator, for the error.
            field: A column of its values.
            kinds: A type for each of ``kept``.
        """
        if not self.takes.fits(field.type):
            raise ConfigError(
                f"{where}, {self.how}, takes {self.takes.text}, and the schema has {field.type} "
                f"for the column {field.name!r}; use another aggregate, or cast the column."
            )

    # ------------------------------------------------------------------ checks of what is declared

    def _check_name(self, argument: str, name: Any) -> None:
        if not isinstance(name, str):
            raise ConfigError(
                f"The {argument} of the aggregate {self.how} is wrong: expected the name of a "
                f"column, got {name!r}."
            )

    def _check_size(self, argument: str, least: int = 1, most: int = 100_000) -> None:
        size = getattr(self, argument)
        if isinstance(size, bool) or not isinstance(size, int):
            raise ConfigError(
                f"The {argument} of the aggregate {self.how} of {self.column!r} is a whole number, "
                f"got {size!r}."
            )
        if not least <= size <= most:
            raise ConfigError(
                f"The {argument} of the aggregate {self.how} of {self.column!r} is out of range: "
                f"expected {least} to {most}, got {size}."
            )

    def _number(self, argument: str) -> float:
        """The number of an argument, which then has it as a float."""
        number = getattr(self, argument)
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ConfigError(
                f"The {argument} of the aggregate {self.how} of {self.column!r} is a number, got "
                f"{number!r}."
            )
        object.__setattr__(self, argument, float(number))
        return float(number)

    def _numbers(self, argument: str) -> tuple[float, ...]:
        """The numbers of an argument, which then has them as floats."""
        values = getattr(self, argument)
        try:
            numbers = tuple(float(each) + 0.0 for each in values)  # no negative zero
        except (TypeError, ValueError):
            raise ConfigError(
                f"The {argument} of the aggregate {self.how} of {self.column!r} are numbers, got "
                f"{values!r}."
            ) from None
        object.__setattr__(self, argument, numbers)
        return numbers


class Typed(Aggregate):
    """An aggregate that keeps values of its column."""

    column: str
    type: TypeLike | None = None
    """Type of a value, in any form; None: by the schema of the operator."""

    @property
    def kept(self) -> tuple[Kept, ...]:
        return (Kept(self.column, self.type),)


def check_flat(name: str, kind: AnySerializer, what: str = "a value") -> None:
    """Raises ConfigError if values of a type have no order."""
    check_kind(FLAT, name, kind, what, "which has no order")


def check_kind(
    known: Sequence[AnySerializer], name: str, kind: AnySerializer, what: str, why: str
) -> None:
    """Raises ConfigError if an aggregate cannot keep values of a type.

    Args:
        known: The types that it can keep.
        name: The name of the aggregate.
        kind: The type.
        what: What has the type.
        why: Why other types are refused.
    """
    if kind not in known:
        names = ", ".join(each.type_name for each in known)
        raise ConfigError(
            f"The aggregate {name!r} cannot keep {what} of type {kind.type_name}, {why}; expected "
            f"one of: {names}."
        )
