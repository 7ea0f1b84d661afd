"""The columns of a batch that a job reads, which identify it; others may come, go and change."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from dstl_core.errors import ConfigError
from dstl_core.job.spec.input_checks import named_columns, needed_columns
from dstl_core.job.spec.operators import INPUT, Operator

_FAMILIES = (("tinyint", "smallint", "int", "bigint"), ("float", "double"))
_DECIMAL = re.compile(r"decimal\(\d+,\d+\)")


@dataclass(frozen=True)
class ReadColumns:
    """Chooses columns of a batch.

    Args:
        named: The columns that operators and orders name.
        takes_others: Whether some operator takes all columns.
        ignored: Patterns of names that such an operator does not get.
        declared: The columns that the job itself names.
    """

    named: frozenset[str] = frozenset()
    takes_others: bool = True
    ignored: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        operators: Iterable[Operator],
        order_by: Sequence[str] | None,
        columns: Sequence[str] | None,
        ignored: Sequence[str],
    ) -> ReadColumns:
        """The columns that the operators of a job read.

        Args:
            operators: The operators.
            order_by: The order of the rows of a key.
            columns: What an operator gets that would take all columns.
            ignored: Patterns of columns that it does not get.
        """
        named: set[str] = set()
        takes_others = False
        for operator in operators:
            if operator.broadcast == INPUT or callable(operator.broadcast):
                takes_others = True
            if callable(operator.source):
                takes_others = True  # only the function of the source knows what it reads
            if operator.source == INPUT:
                order = as_names(order_by if order_by is not None else operator.order_by) or ()
                needed = needed_columns(operator, order)
                takes_others |= needed is None
                named |= {*named_columns(operator, order), *(needed or ())}
        if takes_others and columns is not None:
            named, takes_others = named | set(columns), False
        return cls(frozenset(named), takes_others, tuple(ignored), tuple(columns or ()))

    def reads(self, name: str) -> bool:
        """Whether the job reads a column of this name."""
        if name in self.named:
            return True
        return self.takes_others and not any(fnmatchcase(name, each) for each in self.ignored)

    def of_batch(self, job: str, names: Collection[str]) -> list[str]:
        """The columns of a batch that the job reads; all of them if an operator misses one, which
        names it.

        Raises:
            ConfigError: A column is missing that the job itself names.
        """
        missing = [name for name in self.declared if name not in names]
        if missing:
            raise ConfigError(
                f"There is no column {missing[0]!r} in the batch, which the columns of the job "
                f"{job!r} name; it has: {', '.join(names)}."
            )
        if not self.named <= set(names):
            return list(names)
        return [name for name in names if self.reads(name)]


ALL_COLUMNS = ReadColumns()
"""Reads every column."""


def are_of_one_family(one: str, other: str) -> bool:
    """Whether values of one type can be values of the other: whole numbers, floats, decimals."""
    if _DECIMAL.fullmatch(one) and _DECIMAL.fullmatch(other):
        return True
    return any(one in family and other in family for family in _FAMILIES)


def as_names(names: Any) -> Any:
    """Names of columns; a single one may be given without a list."""
    return (names,) if isinstance(names, str) else names
