"""Snapshots and values printed by real Flink's serializers: read, and written back the same.

Every section of the file is covered. Values that only their Java class can read (Kryo, and a POJO
subclass that its snapshot does not have) are kept as bytes; ``OPAQUE`` lists them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

import pytest

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers import (
    BUILT_IN,
    AnySerializer,
    OpaqueValue,
    SnapshotContext,
    deserialize_bounded,
    deserialize_exactly,
    serialize_to_bytes,
    value_text,
    write_snapshot,
)
from dstl_core.errors import FormatError
from tests.golden_files import GOLDEN

OPAQUE = {
    ("Kryo NotPojo", "57010a"),
    ("Kryo Object", "03016162e3"),
    (
        "Pojo Base, no registered subclass",
        "0400075365722453756202000000000201000000000000000009",
    ),
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
    read_sections: list[Section] = []
    for line in path.read_text("utf-8", "surrogateescape").split("\n"):
        if head := re.fullmatch(r"## (.*) \| \S+ len=(-?\d+)", line):
            read_sections.append(Section(head[1], int(head[2])))
        elif line.startswith("  SNAP "):
            read_sections[-1].snapshot = bytes.fromhex(line.removeprefix("  SNAP "))
        elif value := re.fullmatch(r"  VAL .* -> ([0-9a-f]*)", line):
            read_sections[-1].values.append(bytes.fromhex(value[1]))
    return read_sections


def read_snapshot(raw: bytes) -> AnySerializer:
    data = DataInput(raw)
    serializer = SnapshotContext(BUILT_IN).read_snapshot(data)
    data.expect_end("a snapshot")
    return serializer


SECTIONS = sections()


def test_all_sections_are_read() -> None:
    assert len(SECTIONS) == 94
    assert all(section.snapshot for section in SECTIONS)
    assert sum(len(section.values) for section in SECTIONS) == 110


@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_a_snapshot_is_written_back_byte_for_byte(section: Section) -> None:
    out = DataOutput()
    write_snapshot(out, read_snapshot(section.snapshot))
    assert out.to_bytes() == section.snapshot


@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_values_are_written_back_byte_for_byte(section: Section) -> None:
    serializer = read_snapshot(section.snapshot)
    for raw in section.values:
        value = deserialize_bounded(serializer, raw)
        assert isinstance(value, OpaqueValue) == ((section.name, raw.hex()) in OPAQUE)
        assert serialize_to_bytes(serializer, value) == raw
        json.dumps(value_text(serializer, value))


@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_the_declared_length_decides_composite_keys(section: Section) -> None:
    assert read_snapshot(section.snapshot).length == section.length


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_cutting_a_snapshot_anywhere_is_a_format_error(section: Section) -> None:
    for size in range(len(section.snapshot)):
        with pytest.raises(FormatError):
            read_snapshot(section.snapshot[:size])


@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_cutting_a_value_anywhere_is_a_format_error(section: Section) -> None:
    serializer = read_snapshot(section.snapshot)
    for raw in section.values:
        if (section.name, raw.hex()) in OPAQUE:
            continue
        for size in range(len(raw)):
            with pytest.raises(FormatError):
                deserialize_exactly(serializer, raw[:size])
