"""Batches of keys: computes their key groups and scopes by columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dstl_core.codec.columnar.keyed.byte_index import ByteIndex
from dstl_core.codec.columnar.keyed.decoder import KEY, NAMESPACE
from dstl_core.codec.columnar.keyed.encoder import EncodedRows, EncodeProgram
from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.columnar.types.input import Column, as_type, one_array
from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.serializers import (
    AnySerializer,
    VoidNamespaceSerializer,
    deserialize_exactly,
)
from dstl_core.errors import ConfigError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.tables.state_table import VOID_NAMESPACE


@dataclass(frozen=True)
class Places:
    """The key groups and scopes of some keys, ``[rows]`` each."""

    key_groups: list[int]
    scopes: list[bytes]

    def __len__(self) -> int:
        return len(self.scopes)

    def where(self, chosen: Sequence[bool]) -> Places:
        return Places(list(compress(self.key_groups, chosen)), list(compress(self.scopes, chosen)))


class KeyPlaces:
    """Computes the places of keys in one subtask.

    Args:
        key_serializer: The type of the keys.
        namespace: The type of the namespaces; the column is only needed if it is not void.
        own: The key groups of the subtask.
        number_of_key_groups: The maximum parallelism of the operator.

    Raises:
        NotInColumnsError: The type of the keys has no columnar form.
    """

    def __init__(
        self,
        key_serializer: AnySerializer,
        namespace: AnySerializer,
        key_groups: KeyGroupRange,
        number_of_key_groups: int,
    ) -> None:
        self._key_serializer = key_serializer
        self._own = key_groups
        self._number_of_key_groups = number_of_key_groups
        self._encode = EncodeProgram(
            [(KEY, layout_of(key_serializer)), (NAMESPACE, layout_of(namespace))]
        )
        self.key_type: pa.DataType = self._encode.layouts[KEY].arrow_type

    def find(self, keys: Column, namespaces: pa.Array | None = None) -> Places:
        """The places of some keys, each in its namespace.

        Raises:
            ConfigError: A key is null, or belongs to another subtask.
        """
        column = self.fitted(keys)
        scopes = bytes_list(self.scopes(column, namespaces))
        return Places(self.key_groups(column).tolist(), scopes)

    def fitted(self, keys: Column) -> pa.Array:
        """The keys as one array of their columnar type."""
        column = one_array(keys)
        return column if column.type.equals(self.key_type) else as_type(column, self.key_type)

    def scopes(self, column: pa.Array, namespaces: pa.Array | None = None) -> EncodedRows:
        columns = {KEY: column} if namespaces is None else {KEY: column, NAMESPACE: namespaces}
        return self._encode.encode(columns, len(column))

    def key_groups(self, column: pa.Array) -> Any:
        """Raises ConfigError: a key is null, or belongs to another subtask."""
        groups = key_groups_of(column, self._key_serializer, self._number_of_key_groups)
        of_subtask = self._own
        strange = (groups < of_subtask.start_key_group) | (groups > of_subtask.end_key_group)
        if strange.any():
            raise ConfigError(
                f"A key of key group {groups[strange][0]} came to the subtask of key groups "
                f"{of_subtask} (row {int(np.argmax(strange))} of {len(groups)}); nothing was "
                f"changed."
            )
        return groups


class KeyBatch:
    """The distinct keys of some rows, numbered from 0 in the order of their key groups.

    Entries of one key group are adjacent in memory and on disk.

    Args:
        places: Computes the places of the keys.
        key_serializer: The type of the keys.
        column: The key of each row.

    Raises:
        ConfigError: A key is null, or belongs to another subtask.
    """

    def __init__(self, places: KeyPlaces, key_serializer: AnySerializer, column: Column) -> None:
        rows = places.fitted(column)
        groups = places.key_groups(rows)
        encoded = places.scopes(rows)
        index = ByteIndex(encoded.ranges)
        order = np.argsort(groups[index.firsts], kind="stable")
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        firsts = index.firsts[order]
        distinct = rows.take(pa.array(firsts))
        self.numbers: npt.NDArray[np.int64] = ranks[index.numbers]
        """The number of the key of each row."""
        self.places = Places(groups[firsts].tolist(), bytes_list(places.scopes(distinct)))
        self.distinct = distinct
        """The keys, as a column."""
        self._key_serializer = key_serializer
        self._keys: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.places)

    @property
    def keys(self) -> list[Any]:
        if self._keys is None:
            kind = self.distinct.type
            if pa.types.is_signed_integer(kind) or pa.types.is_string(kind):
                self._keys = self.distinct.to_numpy(zero_copy_only=False).tolist()
            else:
                self._keys = [
                    deserialize_exactly(self._key_serializer, self.key_bytes(number))
                    for number in range(len(self))
                ]
        return self._keys

    def key_bytes(self, number: int) -> bytes:
        return self.places.scopes[number][: -len(VOID_NAMESPACE)]


def places_of_keys(
    key_serializer: AnySerializer, key_groups: KeyGroupRange, number_of_key_groups: int
) -> KeyPlaces:
    """The ``KeyPlaces`` of states without namespaces."""
    return KeyPlaces(key_serializer, VoidNamespaceSerializer(), key_groups, number_of_key_groups)


def bytes_list(rows: EncodedRows) -> list[bytes]:
    if not len(rows):
        return []
    base = rows.data.address
    ends = rows.ends - base
    size = int(ends[-1])
    width, rest = divmod(size, len(rows))
    if width and not rest and (np.diff(ends, prepend=0) == width).all():
        # NumPy slices values of equal size in half the time.
        cut: list[bytes] = np.frombuffer(rows.data, f"V{width}", len(rows)).tolist()
        return cut
    data = rows.data.slice(0, size).to_pybytes()
    starts = rows.starts - base
    return [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
