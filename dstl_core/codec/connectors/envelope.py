"""The frames that Flink puts around a connector's bytes.

    versioned       := i32 version, i32 length, bytes
    versioned list  := i32 version, i32 count, count x (i32 length, bytes)
    coordinator     := i32 1, i32 version of the enumerator, i32 length, bytes

Source: ``SimpleVersionedSerialization`` and ``SourceCoordinatorSerdeUtils`` of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.errors import UnsupportedVersionError

COORDINATOR_VERSION = 1


@dataclass(frozen=True, slots=True)
class Versioned:
    """A payload, and the version of the serializer that wrote it."""

    version: int
    data: bytes


def read_versioned(data: DataInput) -> Versioned:
    version = data.read_i32("version")
    return Versioned(version, data.read_bytes(data.read_length("length of a payload")))


def parse_versioned(raw: bytes) -> Versioned:
    """The payload in an element of a list state.

    Raises:
        FormatError: The bytes are no such frame, or more.
    """
    data = DataInput(raw)
    payload = read_versioned(data)
    data.expect_end("a versioned payload")
    return payload


def write_versioned(payload: Versioned) -> bytes:
    out = DataOutput()
    out.write_i32(payload.version)
    out.write_sized(payload.data)
    return out.to_bytes()


def read_versioned_list(data: DataInput) -> list[Versioned]:
    version = data.read_i32("version")
    count = data.read_count("payloads", 4)
    return [
        Versioned(version, data.read_bytes(data.read_length("length of a payload")))
        for _ in range(count)
    ]


def parse_coordinator(raw: bytes) -> Versioned:
    """The enumerator's checkpoint in the coordinator state of a source.

    Raises:
        UnsupportedVersionError: Flink before 1.13 wrote it.
        FormatError: The bytes are no such state, or more.
    """
    data = DataInput(raw)
    version = data.read_i32("version of the coordinator state")
    if version != COORDINATOR_VERSION:
        raise UnsupportedVersionError(
            "Coordinator state of this version cannot be read",
            offset=0,
            expected=COORDINATOR_VERSION,
            got=version,
        )
    payload = read_versioned(data)
    data.expect_end("coordinator state")
    return payload


def write_coordinator(enumerator: Versioned) -> bytes:
    out = DataOutput()
    out.write_i32(COORDINATOR_VERSION)
    out.write_bytes(write_versioned(enumerator))
    return out.to_bytes()
