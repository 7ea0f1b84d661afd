"""The values of one state as Python objects while a batch of rows applies.

The first access in a batch reads the values of all its keys at once. Accesses are then those of a
list; what changed is encoded, stored and logged at the end of the batch, once for each key.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Scalars:
    """Numbers of one type. A value of this very class and in these bounds fits."""

    serializer: AnySerializer
    code: str
    exact: type[int] | type[float]
    low: float
    high: float

    def decode(self, raw: Sequence[bytes]) -> list[Any]:
        """Raises FormatError: a value has another size."""
        if set(map(len, raw)) - {struct.calcsize(f">{self.code}")}:
            return [deserialize_exactly(self.serializer, each) for each in raw]
        return list(struct.unpack(f">{len(raw)}{self.code}", b"".join(raw)))

    def encode(self, values: Iterable[Any]) -> list[bytes]:
        """The bytes of each value."""
        return list(map(struct.Struct(f">{self.code}").pack, values))

    def normal(self, value: Any) -> Any:
        """A value as it reads back; None is no value. Raises FormatError: it does not fit."""
        is_plain: Any = type(value) is self.exact
        if value is None or (is_plain and self.low <= value <= self.high):
            return value
        return deserialize_exactly(self.serializer, serialize_to_bytes(self.serializer, value))


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


def scalars_of(serializer: AnySerializer) -> Scalars | None:
    """How values of a type are held; None if they are not."""
    return next((each for each in _SCALARS if each.serializer == serializer), None)


class HeldValues:
    """The values of one state of the keys of the batch that applies.

    Invariants: ``slots`` and ``changed`` are empty unless the values are held, and else as long as
    the batch; they stay the same objects. What is held and not marked as changed is in the table.

    Args:
        table: The state.
        scalars: How its values are held.
    """

    def __init__(self, table: ValueTable, scalars: Scalars) -> None:
        self.table = table
        self.scalars = scalars
        self.slots: list[Any] = []
        """The value of each key of the batch; None if it has none."""
        self.changed = bytearray()
        """Not 0 for the keys whose value was set or cleared."""

    def load(self, batch: KeyBatch) -> None:
        """Reads the values of all keys.

        Raises:
            FormatError: A stored value is damaged.
        """
        places = batch.places
        raw = self.table.get_many(places.key_groups, places.scopes)
        there = [each for each in raw if each is not None]
        values = self.scalars.decode(there)
        if len(there) < len(raw):
            found = iter(values)
            values = [None if each is None else next(found) for each in raw]
        self.slots[:] = values
        self.changed[:] = bytes(len(values))

    def write_back(self, batch: KeyBatch, logger: StateChangeLogger | None) -> None:
        """Stores and logs what changed."""
        if not any(self.changed):
            return
        places, values = batch.places, self.slots
        if not all(self.changed):
            chosen = list(map(bool, self.changed))
            places, values = places.where(chosen), list(compress(values, chosen))
        there = [each for each in values if each is not None]
        raw: list[Any] = self.scalars.encode(there)
        if len(there) < len(values):
            present = iter(raw)
            raw = [None if each is None else next(present) for each in values]
        self.table.put_many(places.key_groups, places.scopes, raw)
        if logger is not None:
            logger.values_written(self.table, places.key_groups, places.scopes, raw)

    def release(self) -> None:
        """The batch ends."""
        self.slots.clear()
        self.changed.clear()
