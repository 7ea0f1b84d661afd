"""The values of one state as Python objects while a batch of rows applies.

The first access in a batch reads the values of all its keys at once. Accesses are then those of a
list; what changed is encoded, stored and logged at the end of the batch, once for each key.
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
from dstl_core.state.held.change_logger import StateChangeLogger
from dstl_core.state.tables.state_table import ValueTable

if TYPE_CHECKING:
    from dstl_core.state.held.key_batch import KeyBatch


MOST_BYTES = 64 << 20
"""Bytes of the values of one state that are held; more are read and written in their table."""


class Form(ABC):
    """How the values of a state are held, and their way from and to bytes."""

    exact: type | None = None
    """A value of this very class and from ``low`` to ``high`` is held as it is."""
    low: Any = None
    high: Any = None

    @abstractmethod
    def decode(self, raw: Sequence[bytes]) -> list[Any]:
        """Raises FormatError: a value is damaged."""

    @abstractmethod
    def encode(self, values: Sequence[Any]) -> Sequence[bytes]:
        """The bytes of each value."""

    @abstractmethod
    def normal(self, value: Any) -> Any:
        """A value as it reads back; None is no value. Raises FormatError: it does not fit."""


class Scalars(Form):
    """Numbers of one size, as Python has them."""

    def __init__(
        self, serializer: AnySerializer, code: str, exact: type, low: float, high: float
    ) -> None:
        self.serializer = serializer
        self._code = code
        self.exact, self.low, self.high = exact, low, high

    def decode(self, raw: Sequence[bytes]) -> list[Any]:
        if set(map(len, raw)) - {struct.calcsize(f">{self._code}")}:
            return [deserialize_exactly(self.serializer, each) for each in raw]
        return list(struct.unpack(f">{len(raw)}{self._code}", b"".join(raw)))

    def encode(self, values: Sequence[Any]) -> Sequence[bytes]:
        return list(map(struct.Struct(f">{self._code}").pack, values))

    def normal(self, value: Any) -> Any:
        if value is None or (type(value) is self.exact and self.low <= value <= self.high):
            return value
        return deserialize_exactly(self.serializer, serialize_to_bytes(self.serializer, value))


class Stored(Form):
    """Bytes, as they are stored: of values that Python can change in place, or with a time."""

    def decode(self, raw: Sequence[bytes]) -> list[Any]:
        return list(raw)

    def encode(self, values: Sequence[Any]) -> Sequence[bytes]:
        return values

    def normal(self, value: Any) -> Any:
        return value


def _integers(serializer: AnySerializer, code: str) -> Scalars:
    high = (1 << 8 * struct.calcsize(f">{code}") - 1) - 1
    return Scalars(serializer, code, int, -high - 1, high)


_SCALARS = (
    _integers(Types.LONG, "q"),
    _integers(Types.INT, "i"),
    _integers(Types.SHORT, "h"),
    _integers(Types.BYTE, "b"),
    Scalars(Types.DOUBLE, "d", float, -math.inf, math.inf),
)


_STORED = Stored()


def form_of(serializer: AnySerializer) -> Form:
    """How values of a type are held."""
    return next((each for each in _SCALARS if each.serializer == serializer), _STORED)


class HeldValues:
    """The values of one state of the keys of the batch that applies.

    Invariants: ``slots`` and ``changed`` are empty unless the values are held, and else as long as
    the batch; they stay the same objects. What is held and not marked as changed is in the table.

    Args:
        table: The state.
        form: How its values are held.
    """

    def __init__(self, table: ValueTable, form: Form) -> None:
        self.table = table
        self.form = form
        self.slots: list[Any] = []
        """The value of each key of the batch; None if it has none."""
        self.changed = bytearray()
        """Not 0 for the keys whose value was set or cleared."""
        self._room = MOST_BYTES

    def load(self, batch: KeyBatch) -> bool:
        """Reads the values of all keys; False if they are too large for that.

        Raises:
            FormatError: A stored value is damaged.
        """
        if self._room < 0:
            return False
        places = batch.places
        raw = self.table.get_many(places.key_groups, places.scopes)
        there = [each for each in raw if each is not None]
        self._room -= sum(map(len, there))
        if self._room < 0:
            return False
        values = self.form.decode(there)
        if len(there) < len(raw):
            found = iter(values)
            values = [None if each is None else next(found) for each in raw]
        self.slots[:] = values
        self.changed[:] = bytes(len(values))
        return True

    def grows(self, size: int) -> bool:
        """Whether there is room for so many bytes more, which are then counted."""
        self._room -= size
        return self._room >= 0

    def write_back(self, batch: KeyBatch, logger: StateChangeLogger | None) -> None:
        """Stores and logs what changed."""
        if not any(self.changed):
            return
        places, values = batch.places, self.slots
        if not all(self.changed):
            chosen = list(map(bool, self.changed))
            places, values = places.where(chosen), list(compress(values, chosen))
        there = [each for each in values if each is not None]
        raw: Sequence[bytes | None] = self.form.encode(there)
        if len(there) < len(values):
            present = iter(raw)
            raw = [None if each is None else next(present) for each in values]
        self.table.put_many(places.key_groups, places.scopes, raw)
        if logger is not None:
            logger.values_written(self.table, places.key_groups, places.scopes, raw)

    def drop(self) -> None:
        """Forgets the values; those of this batch are in their table from here on."""
        self.slots.clear()
        self.changed.clear()

    def release(self) -> None:
        """The batch ends."""
        self.drop()
        self._room = MOST_BYTES
