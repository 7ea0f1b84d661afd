"""Snapshots and values printed by real Flink's serializers: read, and written back the same.

Covers every section of the file whose snapshot class (and those nested in it) is registered, and
says which those have to be at least.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers import (
    BUILT_IN,
    AnySerializer,
    SnapshotContext,
    deserialize_exactly,
    serialize_to_bytes,
    write_snapshot,
)
from dstl_core.errors import FormatError, UnknownSerializerError
from tests.golden_files import GOLDEN

AT_LEAST = {
    *["Boolean", "Byte", "Short", "Int", "Long", "Float", "Double", "String", "VoidNamespace"],
    *["TimeWindow", "List<String>", "Map<String,Int>", "Tuple2", "Timer<String,VoidNamespace>"],
    "TtlSerializer<String>",
}


@dataclass
class Section:
    name: str
    length: int
    snapshot: bytes = b""
    values: list[bytes] = field(default_factory=list)

    def __str__(self) -> str:
        return self.name


def sections() -> list[Section]:
    path = GOLDEN / "serializer-vectors" / "serializer-vectors.txt"
    found: list[Section] = []
    for line in path.read_text("utf-8", "surrogateescape").split("\n"):
        if head := re.fullmatch(r"## (.*) \| \S+ len=(-?\d+)", line):
            found.append(Section(head[1], int(head[2])))
        elif line.startswith("  SNAP "):
            found[-1].snapshot = bytes.fromhex(line.removeprefix("  SNAP "))
        elif value := re.fullmatch(r"  VAL .* -> ([0-9a-f]*)", line):
            found[-1].values.append(bytes.fromhex(value[1]))
    return found


def read_snapshot(raw: bytes) -> AnySerializer:
    data = DataInput(raw)
    serializer = SnapshotContext(BUILT_IN).read_snapshot(data)
    data.expect_end("a snapshot")
    return serializer


def is_readable(section: Section) -> bool:
    try:
        read_snapshot(section.snapshot)
    except UnknownSerializerError:
        return False
    return True


READABLE = [section for section in sections() if section.snapshot and is_readable(section)]


def test_the_types_of_this_release_are_read() -> None:
    assert {section.name for section in READABLE} >= AT_LEAST
    assert len(sections()) > 60


@pytest.mark.parametrize("section", READABLE, ids=str)
def test_a_snapshot_is_written_back_byte_for_byte(section: Section) -> None:
    out = DataOutput()
    write_snapshot(out, read_snapshot(section.snapshot))
    assert out.to_bytes() == section.snapshot


@pytest.mark.parametrize("section", READABLE, ids=str)
def test_values_are_written_back_byte_for_byte(section: Section) -> None:
    serializer = read_snapshot(section.snapshot)
    for raw in section.values:
        assert serialize_to_bytes(serializer, deserialize_exactly(serializer, raw)) == raw


@pytest.mark.parametrize("section", READABLE, ids=str)
def test_the_declared_length_decides_composite_keys(section: Section) -> None:
    assert read_snapshot(section.snapshot).length == section.length


@pytest.mark.parametrize("section", READABLE, ids=str)
def test_cutting_a_snapshot_anywhere_is_a_format_error(section: Section) -> None:
    for size in range(len(section.snapshot)):
        with pytest.raises(FormatError):
            read_snapshot(section.snapshot[:size])


@pytest.mark.parametrize("section", READABLE, ids=str)
def test_cutting_a_value_anywhere_is_a_format_error(section: Section) -> None:
    serializer = read_snapshot(section.snapshot)
    for raw in section.values:
        for size in range(len(raw)):
            with pytest.raises(FormatError):
                deserialize_exactly(serializer, raw[:size])
