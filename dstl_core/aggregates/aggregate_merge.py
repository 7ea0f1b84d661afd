"""Merges the aggregates of a batch into their states, by columns, without Python per row or key.

A task reduces a batch to a row per key. In it, each aggregate has some columns, its *parts*, and it
has some states. A ``Merge`` class makes the parts from rows, and the new states from the parts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.aggregates.column_checks import FLOATING, check_order, check_value
from dstl_core.aggregates.folds import folded
from dstl_core.aggregates.rows_of_keys import Numbers, RowsOfKeys, one_zero
from dstl_core.codec.columnar.types.java_decimals import (
    DIGITS,
    decimals_of,
    largest_scale,
    with_scale,
)
from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.errors import ConfigError
from dstl_core.state.tables.descriptor import ValueStateDescriptor

ORDER_SUFFIX = "_order"
"""Ends the name of the state with the order of a kept value."""
Columns = list[pa.Array]


class Merge(ABC):
    """Merges one aggregate into its states.

    Args:
        uid: The uid of the operator, for errors.
        name: The name of the aggregate.
        states: Suffixes of the names of its states, with their types.
    """

    parts: ClassVar[tuple[str, ...]]
    """Suffixes of the names of its columns in a reduced batch."""
    kinds: Sequence[AnySerializer]
    """The types as which it keeps values of columns, that of the value first."""

    def __init__(self, uid: str, name: str, states: Mapping[str, AnySerializer]) -> None:
        self.uid = uid
        self.name = name
        self.states = tuple(
            ValueStateDescriptor(f"{name}{ending}", kind) for ending, kind in states.items()
        )
        self.types = [layout_of(each.serializer).arrow_type for each in self.states]
        self.kinds = tuple(states.values())

    def check(self, fields: Sequence[pa.Field]) -> None:
        """Raises ConfigError if it cannot take columns of a batch.

        Args:
            fields: The columns that the aggregate reads, the value first.
        """
        for field in fields[1:]:
            check_order(self.where, field)
        for field, kind in zip(fields, self.kinds, strict=False):
            check_value(self.where, field, kind)

    @property
    def always(self) -> Sequence[int]:
        """Which states a key has if it has the first one."""
        return range(1, len(self.states))

    @property
    def where(self) -> str:
        """The aggregate and its operator, for errors."""
        return f"The aggregate {self.name!r} of operator {self.uid!r}"

    def reduced(self, rows: RowsOfKeys) -> Columns:
        """The parts of rows, with an element for each key.

        A whole number is a double if the state has doubles, and -0.0 is 0.0.
        """
        if rows.values is None:
            return self._reduced(rows)
        values = rows.values
        if pa.types.is_integer(values.type) and self.states[0].serializer in FLOATING:
            values = values.cast(pa.float64(), safe=False)
        orders = [one_zero(order) for order in rows.orders]
        return self._reduced(RowsOfKeys(rows.numbers, rows.keys, one_zero(values), orders))

    @abstractmethod
    def _reduced(self, rows: RowsOfKeys) -> Columns:
        """As ``reduced``."""

    @abstractmethod
    def merge(self, held: Columns, parts: Columns) -> Columns:
        """The new states of the keys; ``held`` is null for a key without state."""

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        """The parts of keys, from parts of which several may be of one key."""
        empty = [pa.nulls(len(numbers), kind) for kind in self.types]
        names = [state.name for state in self.states]
        states = pa.RecordBatch.from_arrays(self.merge(empty, parts), names=names)

        def combined(one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
            columns = self.combined(one.columns, other.columns)
            return pa.RecordBatch.from_arrays(columns, names=names)

        of_keys = folded(combined, states, numbers).columns
        scale = max(map(largest_scale, of_keys))
        return self.parts_of([with_scale(column, scale) for column in of_keys])

    def combined(self, one: Columns, other: Columns) -> Columns:
        """The states of keys, from two states of each. ``other`` is the newer one."""
        scale = max(map(largest_scale, (*one, *other)))
        return self.merge(one, self.parts_of([with_scale(each, scale) for each in other]))

    def parts_of(self, held: Columns) -> Columns:
        """States as the parts of a batch; Java's decimals are decimals of one scale."""
        return held

    @property
    def final_type(self) -> pa.DataType:
        return self.types[0]

    def final(self, held: Columns) -> pa.Array:
        """The values of the aggregate, computed from its states."""
        return held[0]

    def _comparable(self, held: pa.Array, part: pa.Array) -> tuple[pa.Array, pa.Array]:
        """State and part, cast to one type that has an order."""
        try:
            if pa.types.is_struct(held.type):
                scale = max(part.type.scale, largest_scale(held))
                return decimals_of(held, scale), part.cast(pa.decimal128(DIGITS, scale))
            cast = part.cast(held.type)
        except pa.ArrowInvalid:
            raise self._does_not_fit("A value", "") from None
        if became_infinite(part, cast):
            raise self._does_not_fit("A value", ", for example 'double'")
        return held, cast

    def _overflow(self, wider: str = "decimal(38, 0)") -> ConfigError:
        is_widest = self.states[0].serializer == Types.DOUBLE
        return self._does_not_fit("The sum", "" if is_widest else f", for example {wider!r}")

    def _does_not_fit(self, what: str, example: str) -> ConfigError:
        return ConfigError(
            f"{what} of state {self.name!r} of operator {self.uid!r} does not fit its type, "
            f"{self.states[0].serializer.type_name}, and nothing is committed; give the aggregate "
            f"a wider type{example}, or correct the rows."
        )


def summed(parts: Columns, numbers: Numbers, keys: int) -> Columns:
    """The parts of keys, from sums or counts of which several may be of one key."""
    return [RowsOfKeys(numbers, keys, part).sums() for part in parts]


def floats_of(column: pa.Array) -> npt.NDArray[np.float64]:
    """Doubles, with 0 instead of null."""
    floats: npt.NDArray[np.float64] = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False)
    return floats


def int64s_of(column: pa.Array) -> npt.NDArray[np.int64]:
    """Whole numbers, with 0 instead of null."""
    numbers: npt.NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(
        zero_copy_only=False
    )
    return numbers


def beyond(one: pa.Array, other: pa.Array, *, largest: bool) -> pa.Array:
    """Whether ``one`` is larger, or smaller, than ``other``; false if one of them is null."""
    if not largest:
        one, other = other, one
    larger = pc.greater(one, other)
    if pa.types.is_floating(one.type):
        larger = pc.or_(larger, pc.and_not(pc.is_nan(one), pc.is_nan(other)))
    return pc.fill_null(larger, False)


def became_infinite(numbers: pa.Array, narrow: pa.Array) -> bool:
    """Whether a cast to floats of less range made a number infinite."""
    if numbers.type == narrow.type or not pa.types.is_floating(numbers.type):
        return False
    lost = pc.and_(pc.is_finite(numbers), pc.invert(pc.is_finite(narrow)))
    return bool(pc.any(lost).as_py())
