"""The values of one state as Python objects while the rows of a batch are applied.

The first access in a batch reads the values of all its keys at once. Later accesses use a list. At
the end of the batch the changed values are encoded, stored and logged, once per key.
"""

from __future__ import annotations

import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

from dstl_core.codec.serializers import (
    AnySerializer,
    Types,
    deserialize_exactly,
    serialize_to_bytes,
)
from dstl_core.errors import InvariantViolation
from dstl_core.state.held.change_logger import StateChangeLogger
from dstl_core.state.tables.state_table import ValueTable

if TYPE_CHECKING:
    from dstl_core.state.held.key_batch import KeyBatch


MOST_BYTES = 64 << 20
"""Limit in bytes of the held values of one state; beyond it, accesses use the table."""


class HeldForm(ABC):
    """The form in which values of a state are held, and its conversion from and to bytes."""

    exact: type | None = None
    """A value of exactly this class, from ``low`` to ``high``, is held unchanged."""
    low: Any = None
    high: Any = None

    @abstractmethod
    def decode(self, raw: Sequence[bytes]) -> list[Any]:
        """The values of some bytes. Raises FormatError: a value is damaged."""

    @abstractmethod
    def encode(self, values: Sequence[Any]) -> Sequence[bytes]:
        """The bytes of each value."""

    @abstractmethod
    def normal(self, value: Any) -> Any:
        """A value as a later read returns it; None is no value. Raises FormatError: no fit."""


class Scalars(HeldForm):
    """Numbers of one type, as numbers of Python.

    Args:
        serializer: Their type, one that is packed.
        low: The smallest one.
        high: The largest one.
    """

    def __init__(self, serializer: AnySerializer, low: float, high: float) -> None:
        if serializer.packed is None:
            raise InvariantViolation(f"values of type {serializer.type_name} are not packed")
        self.serializer = serializer
        self._packed = serializer.packed
        self.exact, self.low, self.high = serializer.packed_class, low, high

    def decode(self, raw: Sequence[bytes]) -> list[Any]:
        if set(map(len, raw)) - {self._packed.size}:
            return [deserialize_exactly(self.serializer, each) for each in raw]
        code = self._packed.format[-1]
        return list(struct.unpack(f">{len(raw)}{code}", b"".join(raw)))

    def encode(self, values: Sequence[Any]) -> Sequence[bytes]:
        return list(map(self._packed.pack, values))

    def normal(self, value: Any) -> Any:
        if value is None or (type(value) is self.exact and self.low <= value <= self.high):
            return value
        return deserialize_exactly(self.serializer, serialize_to_bytes(self.serializer, value))


class Stored(HeldForm):
    """The stored bytes, for values that Python can change in place, or with a time stamp."""

    def decode(self, raw: Sequence[bytes]) -> list[Any]:
        return list(raw)

    def encode(self, values: Sequence[Any]) -> Sequence[bytes]:
        return values

    def normal(self, value: Any) -> Any:
        return value


def _integers(serializer: AnySerializer) -> Scalars:
    high = (1 << 8 * serializer.length - 1) - 1
    return Scalars(serializer, -high - 1, high)


_SCALARS = (
    *map(_integers, (Types.LONG, Types.INT, Types.SHORT, Types.BYTE)),
    Scalars(Types.DOUBLE, -math.inf, math.inf),
)
_STORED = Stored()


def form_of(serializer: AnySerializer) -> HeldForm:
    """The form in which values of a type are held."""
    return next((each for each in _SCALARS if each.serializer == serializer), _STORED)


class HeldValues:
    """The values of one state for the keys of the present batch.

    Invariants: ``slots`` and ``changed`` are as long as the batch while the values are held, else
    empty; they stay the same objects. A held value that is not marked as changed is in the table.

    Args:
        table: The table of the state.
        form: The form of its values.
    """

    def __init__(self, table: ValueTable, form: HeldForm) -> None:
        self.table = table
        self.form = form
        self.slots: list[Any] = []
        """The value of each key of the batch; None for a key without a value."""
        self.changed = bytearray()
        """Nonzero for keys whose value was set or cleared."""
        self._room = MOST_BYTES

    def load(self, batch: KeyBatch) -> bool:
        """Reads the values of all keys; returns False if they are too large.

        Raises:
            FormatError: A stored value is damaged.
        """
        if self._room < 0:
            return False
        places = batch.places
        raw = self.table.get_many(places.key_groups, places.scopes)
        set_values = [each for each in raw if each is not None]
        self._room -= sum(map(len, set_values))
        if self._room < 0:
            return False
        values = self.form.decode(set_values)
        if len(set_values) < len(raw):
            decoded = iter(values)
            values = [None if each is None else next(decoded) for each in raw]
        self.slots[:] = values
        self.changed[:] = bytes(len(values))
        return True

    def grows(self, size: int) -> bool:
        """Counts ``size`` more bytes; returns False if they pass the limit."""
        self._room -= size
        return self._room >= 0

    def write_back(self, batch: KeyBatch, logger: StateChangeLogger | None) -> None:
        """Stores and logs the changed values."""
        if not any(self.changed):
            return
        places, values = batch.places, self.slots
        if not all(self.changed):
            chosen = list(map(bool, self.changed))
            places, values = places.where(chosen), list(compress(values, chosen))
        set_values = [each for each in values if each is not None]
        raw: Sequence[bytes | None] = self.form.encode(set_values)
        if len(set_values) < len(values):
            present = iter(raw)
            raw = [None if each is None else next(present) for each in values]
        self.table.put_many(places.key_groups, places.scopes, raw)
        if logger is not None:
            logger.values_written(self.table, places.key_groups, places.scopes, raw)

    def drop(self) -> None:
        """Drops the values; from here on, accesses use the table."""
        self.slots.clear()
        self.changed.clear()

    def release(self) -> None:
        """Drops the values at the end of the batch."""
        self.drop()
        self._room = MOST_BYTES
