"""Stored keys: key-group prefix, key, namespace and, for map state, the user key.

    key group (1 or 2 bytes)  K [len(K)]  N [len(N)]  [user key]

The two lengths are present only if both key and namespace have a variable length ("ambiguous").
They are little-endian base-256 numbers of at least one digit. Source:
``CompositeKeySerializationUtils`` of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers.base import AnySerializer
from dstl_core.errors import FormatError


@dataclass(frozen=True)
class CompositeKeyCodec:
    """Builds and splits the stored keys of one state.

    A *scope* is the bytes of the key followed by the bytes of the namespace, without prefix and
    lengths, as in change records.
    """

    prefix_bytes: int
    key_serializer: AnySerializer
    namespace_serializer: AnySerializer

    @property
    def is_ambiguous(self) -> bool:
        return self.key_serializer.length < 0 and self.namespace_serializer.length < 0

    def encode(self, key_group: int, key: bytes, namespace: bytes, user_key: bytes = b"") -> bytes:
        """The stored key of serialized parts."""
        prefix = key_group.to_bytes(self.prefix_bytes, "big")
        if self.is_ambiguous:
            return b"".join(
                (
                    prefix,
                    key,
                    length_digits(len(key)),
                    namespace,
                    length_digits(len(namespace)),
                    user_key,
                )
            )
        return b"".join((prefix, key, namespace, user_key))

    def split(self, stored: bytes) -> tuple[int, bytes, bytes, bytes]:
        """Splits a stored key into ``(key group, key, namespace, user key)``, the last three as
        bytes.
        """
        data = DataInput(stored)
        key_group = int.from_bytes(data.read_bytes(self.prefix_bytes, "key group"), "big")
        key = self._skip(data, self.key_serializer, "key")
        namespace = self._skip(data, self.namespace_serializer, "namespace")
        return key_group, key, namespace, stored[data.position :]

    def _skip(self, data: DataInput, serializer: AnySerializer, field: str) -> bytes:
        start = data.position
        serializer.deserialize(data)
        size = data.position - start
        data.seek(start)
        part = data.read_bytes(size, field)
        if self.is_ambiguous:
            expect_length(data, size, field)
        return part

    def decode_scope(self, scope: bytes) -> tuple[Any, Any]:
        """Decodes a scope into ``(key, namespace)``."""
        data = DataInput(scope)
        key = self.key_serializer.deserialize(data)
        namespace = self.namespace_serializer.deserialize(data)
        data.expect_end("a key and its namespace")
        return key, namespace

    def read_scope(self, data: DataInput) -> tuple[bytes, bytes]:
        """Reads ``(key, namespace)`` as bytes from the scope at the front of a change record."""
        start = data.position
        self.key_serializer.deserialize(data)
        middle = data.position
        self.namespace_serializer.deserialize(data)
        end = data.position
        data.seek(start)
        return data.read_bytes(middle - start, "key"), data.read_bytes(end - middle, "namespace")


def length_digits(size: int) -> bytes:
    """The length of a key or namespace, in the form of an ambiguous key."""
    return size.to_bytes(max(1, (size.bit_length() + 7) // 8), "little")


def expect_length(data: DataInput, size: int, field: str) -> None:
    """Reads the length after a key or namespace of an ambiguous key."""
    at = data.position
    digits = length_digits(size)
    got = data.read_bytes(len(digits), f"length of the {field}")
    if got != digits:
        raise FormatError(
            f"The length after the {field} is wrong",
            offset=at,
            expected=digits.hex(),
            got=got.hex(),
        )
