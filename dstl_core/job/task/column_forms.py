"""How functions by row hold the values of a state that is in columns.

A held value is what a table would return after it stored the value. Arrow converts columns to
lists of Python objects and back; the type of the state converts the values that Arrow cannot.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.types.java_decimals import BIG_DECIMAL, DIGITS, decimals_of
from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.python_values import AsPython, stored_type
from dstl_core.codec.serializers import (
    AnySerializer,
    Types,
    deserialize_exactly,
    serialize_to_bytes,
)
from dstl_core.errors import ColumnValueError
from dstl_core.job.task.python_rows import dates_of, values_of
from dstl_core.state.columns.column_fit import fit
from dstl_core.state.columns.element_columns import decode_elements, encode_elements
from dstl_core.state.held.held_values import HeldForm, form_of

_SCALES = 16
"""Java's decimals of more scales than this are converted one by one."""
_FAR = 1 << 30
"""A decimal of at least this exponent may have a scale that Java has not; its type looks at it."""
_PLAIN = r"^-?[0-9]{1,38}$"
"""The digits of a decimal that Arrow has."""


class _Unknown:
    """A class that no value has, so that ``normal`` sees each value."""


class ColumnForm(HeldForm):
    """Values of one type of which no function can change a part.

    Args:
        kind: The type of the state.
        exact: A value of exactly this class, from ``low`` to ``high``, is held unchanged.
        low: The smallest one.
        high: The largest one.
    """

    has_size = False
    """Whether there is no bound on the size of a value."""

    def __init__(
        self, kind: AnySerializer, exact: type = _Unknown, low: Any = None, high: Any = None
    ) -> None:
        self.kind = kind
        self._layout = layout_of(stored_type(kind))
        self.exact, self.low, self.high = exact, low, high

    def decode(self, raw: Sequence[bytes]) -> list[Any]:
        return [deserialize_exactly(self.kind, value) for value in raw]

    def encode(self, values: Sequence[Any]) -> Sequence[bytes]:
        return [serialize_to_bytes(self.kind, value) for value in values]

    def normal(self, value: Any) -> Any:
        if value is None:
            return None
        return deserialize_exactly(self.kind, serialize_to_bytes(self.kind, value))

    def from_column(self, column: pa.Array) -> list[Any]:
        """The values of a column of the state; null is None.

        Raises:
            ConfigError: Python has no such value.
        """
        elements = encode_elements(self._layout, column.drop_null())
        values = iter(self.decode([bytes(raw) for raw in elements]))
        return [next(values) if is_valid else None for is_valid in column.is_valid().to_pylist()]

    def to_column(self, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        """The column of some values.

        Args:
            values: The values; None is null.
            kind: The type of the column.

        Raises:
            ColumnValueError: A column cannot have a value.
        """
        present = self.encode([value for value in values if value is not None])
        column, failure = decode_elements(self._layout, present)
        if failure is not None:
            raise ColumnValueError(
                f"The function gives its state a value of type {self.kind.type_name} that a "
                f"column cannot have; give text without half a surrogate pair."
            )
        if len(present) == len(values):
            return column
        places = iter(range(len(present)))
        numbers = [None if value is None else next(places) for value in values]
        return column.take(pa.array(numbers, pa.int64()))


class _ByArrow(ColumnForm):
    """Values most of which Arrow converts, all at once."""

    def from_column(self, column: pa.Array) -> list[Any]:
        try:
            return self._values(column)
        except (OverflowError, ValueError):  # Arrow's errors are among these
            return super().from_column(column)

    def to_column(self, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        try:
            return self._column(values, kind)
        except (OverflowError, ValueError):
            return super().to_column(values, kind)

    def _values(self, column: pa.Array) -> list[Any]:
        return values_of(column)

    def _column(self, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind)


class _Sized(_ByArrow):
    """Texts, which have no bound on their size."""

    has_size = True


class _Times(_ByArrow):
    """Times without a zone, or in UTC."""

    def __init__(self, kind: AnySerializer, zone: dt.tzinfo | None) -> None:
        super().__init__(kind)
        self._zone = zone

    def normal(self, value: Any) -> Any:
        if type(value) is dt.datetime:
            if value.tzinfo is self._zone and not value.fold:
                return value
            if value.tzinfo is not None and self._zone is not None:
                with suppress(OverflowError):
                    return value.astimezone(self._zone)
        return super().normal(value)

    def _values(self, column: pa.Array) -> list[Any]:
        return dates_of(column, self._zone)


class _Decimals(_ByArrow):
    """Decimals, each with its own scale."""

    def normal(self, value: Any) -> Any:
        if type(value) is Decimal and value.is_finite() and -_FAR < value.adjusted() < _FAR:
            return value if value else value.copy_abs()  # Java has no negative zero
        return super().normal(value)

    def _values(self, column: pa.Array) -> list[Any]:
        row_scales = pc.struct_field(column, "scale")
        scales = row_scales.unique().drop_null().to_pylist()
        if len(scales) > _SCALES or not all(0 <= scale <= DIGITS for scale in scales):
            raise ValueError("by the type")
        if len(scales) == 1:
            return values_of(decimals_of(column, scales[0]))
        values: list[Any] = [None] * len(column)
        for scale in scales:
            places = pc.indices_nonzero(pc.equal(row_scales, scale))
            numbers = values_of(decimals_of(column.take(places), scale))
            for place, number in zip(places.to_pylist(), numbers, strict=True):
                values[place] = number
        return values

    def _column(self, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        texts = pa.array([None if value is None else str(value) for value in values], pa.string())
        whole = pc.replace_substring(texts, ".", "")
        lengths = pc.fill_null(pc.binary_length(whole), 0)
        if (pc.max(lengths).as_py() or 0) <= DIGITS and not _has_power(texts):
            return _java_decimals(texts, whole, kind)
        is_plain = pc.fill_null(pc.match_substring_regex(whole, _PLAIN), True)
        # A power of ten in the text, or more digits than Arrow has.
        is_other = np.asarray(pc.invert(is_plain))
        others = ColumnForm.to_column(self, list(compress(values, is_other)), kind)
        texts, whole = (pc.if_else(is_plain, text, None) for text in (texts, whole))
        plain = _java_decimals(texts, whole, kind)
        return with_values(plain, is_other, others)


def _has_power(texts: pa.Array) -> bool:
    """Whether the text of a decimal has a power of ten."""
    return bool(pc.any(pc.match_substring(texts, "E")).as_py())


def _java_decimals(texts: pa.Array, whole: pa.Array, kind: pa.DataType) -> pa.Array:
    """Java's decimals of texts, and of these without a point."""
    points = pc.find_substring(texts, ".")
    digits = pc.subtract(pc.subtract(pc.utf8_length(texts), points), 1)
    scales = pc.if_else(pc.less(points, 0), 0, digits).cast(pa.int32())
    unscaled = fit(whole.cast(pa.decimal128(DIGITS, 0)), BIG_DECIMAL, "A decimal")
    mask = texts.is_null() if texts.null_count else None
    return pa.StructArray.from_arrays(
        [unscaled.field("unscaled"), scales], fields=list(kind), mask=mask
    )


def with_values(column: pa.Array, chosen: npt.NDArray[np.bool_], values: pa.Array) -> pa.Array:
    """A column with other values in the chosen rows."""
    places = np.arange(len(column))
    places[chosen] = np.arange(len(column), len(column) + len(values))
    return pa.concat_arrays([column, values]).take(pa.array(places))


def column_form_of(kind: AnySerializer) -> ColumnForm | None:
    """How values of a type are held; None for types whose state is not in columns."""
    stored = stored_type(kind)
    if isinstance(kind, AsPython) is not (stored in _AS_PYTHON):
        return None
    numbers: Any = form_of(kind)
    if numbers.exact is not None:
        return _ByArrow(kind, numbers.exact, numbers.low, numbers.high)
    match stored:
        case Types.BOOLEAN:
            return _ByArrow(kind, bool, False, True)
        case Types.STRING:
            return _Sized(kind, str, "", "\U0010ffff")
        case Types.INSTANT:
            return _Times(kind, dt.UTC)
        case Types.LOCAL_DATE_TIME:
            return _Times(kind, None)
        case Types.LOCAL_DATE:
            return _ByArrow(kind, dt.date, dt.date.min, dt.date.max)
        case Types.BIG_DEC:
            return _Decimals(kind)
        case Types.FLOAT | Types.LOCAL_TIME:
            return ColumnForm(kind)
        case _:
            return None


_AS_PYTHON = (
    Types.INSTANT,
    Types.LOCAL_DATE_TIME,
    Types.LOCAL_DATE,
    Types.LOCAL_TIME,
    Types.BIG_DEC,
)
