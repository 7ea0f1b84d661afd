"""Streams are built by hand from the grammar; the checkpoint properties are by real Flink."""

from __future__ import annotations

import struct

import pytest

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.java_stream import skip_java_object
from dstl_core.codec.metadata.metadata_format import read_metadata
from dstl_core.errors import FormatError
from tests.golden_files import SNAPSHOTS, Fixture
from tests.unit.codec.java_bytes import utf

MAGIC = b"\xac\xed\x00\x05"
NULL = b"\x70"
END = b"\x78"


def string(text: str) -> bytes:
    return b"\x74" + utf(text)


def class_description(
    name: str, *fields: bytes, flags: int = 2, parent: bytes = NULL, annotation: bytes = b""
) -> bytes:
    head = b"\x72" + utf(name) + struct.pack(">qBH", 1, flags, len(fields))
    return head + b"".join(fields) + annotation + END + parent


def field(code: str, name: str, kind: str = "") -> bytes:
    return code.encode() + utf(name) + (string(kind) if kind else b"")


def reference(number: int) -> bytes:
    return b"\x71" + struct.pack(">i", 0x7E0000 + number)


PLAIN = b"\x73" + class_description("A", field("I", "i"), field("Z", "z")) + b"\0\0\0\1\1"
WITH_OBJECTS = (
    b"\x73"
    + class_description("A", field("L", "s", "Ljava/lang/String;"), field("L", "t", "LT;"))
    + string("x")
    + NULL
)
HIERARCHY = (
    b"\x73"
    + class_description(
        "B", field("J", "j"), parent=class_description("A", field("B", "b"), flags=3)
    )
    + (b"\1" + b"\x77\x02hi" + string("more") + END)
    + b"\0" * 8
)
ENUM = b"\x7e" + class_description("E", flags=0x12, parent=NULL) + string("ONE")
INT_ARRAY = b"\x75" + class_description("[I") + struct.pack(">iii", 2, 7, 8)
OBJECT_ARRAY = b"\x75" + class_description("[LA;") + struct.pack(">i", 2) + NULL + string("x")
EXTERNALIZABLE = b"\x73" + class_description("X", flags=0x0C) + b"\x7a\0\0\0\3abc" + END
# The class is handle 0, the object 1; the second field is the object itself.
CYCLE = b"\x73" + class_description("A", field("L", "self", "LA;")) + reference(2)
LONG_STRING_FIELD = (
    b"\x73"
    + class_description("A", field("L", "s", "Ljava/lang/String;"))
    + b"\x7c"
    + struct.pack(">q", 3)
    + b"abc"
)
STREAMS = {
    "plain": (PLAIN, "A"),
    "objects": (WITH_OBJECTS, "A"),
    "hierarchy": (HIERARCHY, "B"),
    "enum": (ENUM, "E"),
    "int array": (INT_ARRAY, "[I"),
    "object array": (OBJECT_ARRAY, "[LA;"),
    "externalizable": (EXTERNALIZABLE, "X"),
    "cycle": (CYCLE, "A"),
    "long string": (LONG_STRING_FIELD, "A"),
}


@pytest.mark.parametrize("name", STREAMS)
def test_an_object_is_left_behind_exactly(name: str) -> None:
    content, class_name = STREAMS[name]
    data = DataInput(MAGIC + content + b"rest")
    assert skip_java_object(data) == class_name
    assert data.remaining == len(b"rest")


@pytest.mark.parametrize("name", STREAMS)
def test_cutting_an_object_anywhere_is_a_format_error(name: str) -> None:
    raw = MAGIC + STREAMS[name][0]
    for size in range(len(raw)):
        with pytest.raises(FormatError):
            skip_java_object(DataInput(raw[:size]))


def endless_classes(count: int) -> bytes:
    """A class whose description needs a parent whose description needs a parent .."""
    return b"".join(b"\x72" + utf("A") + struct.pack(">qBH", 1, 2, 0) + END for _ in range(count))


def hierarchy(count: int) -> bytes:
    """An array of ``count`` classes, each the parent of the next, and an object of the last."""
    # Handle 0 is the array's class, 1 the array; every class takes two handles.
    parents = [NULL, *(reference(2 * number) for number in range(1, count))]
    classes = [b"\x76" + class_description("A", parent=parent) for parent in parents]
    last = b"\x73" + reference(2 * count)
    array = b"\x75" + class_description("[LA;") + struct.pack(">i", count + 1)
    return MAGIC + array + b"".join(classes) + last


def test_a_class_has_a_few_parents_at_most() -> None:
    """Every object walks them: 450 kB of a stream without this limit were 18 seconds of work."""
    data = DataInput(hierarchy(17))
    assert skip_java_object(data) == "[LA;"
    assert data.remaining == 0
    with pytest.raises(FormatError, match="too many parents: expected <= 16"):
        skip_java_object(DataInput(hierarchy(18)))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "ends too early"),
        (NULL, "does not start with an object"),
        (string("x"), "does not start with an object"),
        (b"\x73" + NULL, "has no class"),
        (b"\x73\x74\0\0", "lacks a class description"),
        (b"\x73" + reference(0), "points nowhere"),
        (b"\x73" + reference(-1), "points nowhere"),
        (b"\x7b", "unknown content tag"),
        (b"\xff", "unknown content tag"),
        (b"\x73" + class_description("A", field("Q", "q")), "unknown type"),
        (b"\x73" + class_description("A", flags=0), "cannot be read"),
        (b"\x73" + class_description("A", flags=4), "cannot be read"),
        (b"\x75" + class_description("[I") + b"\x7f\xff\xff\xff", "does not fit"),
        (b"\x75" + class_description("[I") + b"\xff\xff\xff\xff", "does not fit"),
        (
            b"\x73" + class_description("A", field("L", "s", "T")) + b"\x7c" + b"\xff" * 8,
            "negative",
        ),
        (b"\x73" + endless_classes(5000), "nested too deeply"),
        (b"\x73" * 5000, "lacks a class description"),
    ],
)
def test_bad_streams_are_format_errors(content: bytes, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        skip_java_object(DataInput(MAGIC + content))


def test_deeply_nested_objects_are_a_format_error() -> None:
    link = class_description("A", field("L", "next", "LA;"))
    # Every object after the first names the class by reference 0.
    nested = b"\x73" + link + (b"\x73" + reference(0)) * 5000
    with pytest.raises(FormatError, match="nested too deeply"):
        skip_java_object(DataInput(MAGIC + nested))


def test_another_stream_version_is_refused() -> None:
    with pytest.raises(FormatError, match="expected aced0005, got aced0006"):
        skip_java_object(DataInput(b"\xac\xed\x00\x06" + PLAIN))


@pytest.mark.parametrize("fixture", SNAPSHOTS, ids=str)
def test_checkpoint_properties_of_real_flink(fixture: Fixture) -> None:
    for path in fixture.metadata_files:
        properties = read_metadata(path.read_bytes()).properties
        assert properties is not None
        data = DataInput(properties)
        name = skip_java_object(data)
        assert name == "org.apache.flink.runtime.checkpoint.CheckpointProperties"
        assert data.remaining == 0
        # Plain canonical savepoint, native savepoint, periodic and full checkpoint.
        assert len(properties) in (745, 742, 604, 600)
