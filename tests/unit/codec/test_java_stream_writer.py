"""Objects of Java's serialization are written as Java writes them."""

from __future__ import annotations

from contextlib import suppress

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.java_stream import JavaStream, read_java_object_bytes
from dstl_core.codec.kryo.java_stream_writer import JavaStreamWriter
from dstl_core.errors import FormatError
from tests.golden_files import GOLDEN

HEADER = bytes.fromhex("aced0005")


def streams() -> list[bytes]:
    """Every stream that Flink wrote into a golden file."""
    read = set()
    for path in GOLDEN.rglob("*"):
        raw = path.read_bytes() if path.is_file() and path.suffix not in (".jar", ".gz") else b""
        at = raw.find(HEADER)
        while at >= 0:
            with suppress(FormatError):  # the four bytes may stand in other data
                read.add(read_java_object_bytes(DataInput(raw, at))[1])
            at = raw.find(HEADER, at + 1)
    return sorted(read)


def test_each_stream_of_flink_is_written_byte_for_byte() -> None:
    every = streams()
    assert len(every) > 60
    for raw in every:
        value = JavaStream().read(DataInput(raw))
        assert JavaStreamWriter().value(value) == raw


def test_values_of_one_stream_go_on_where_the_last_one_ended() -> None:
    """The second value of the same class refers back to it, and has no header."""
    [text, *_] = [raw for raw in streams() if len(raw) > 100]
    first, second = (JavaStream().read(DataInput(text)) for _ in range(2))
    second.java_class = first.java_class
    writer = JavaStreamWriter()
    parts = [writer.value(value) for value in (first, second, first)]
    assert parts[0] == text
    assert not parts[1].startswith(HEADER)
    assert len(parts[1]) < len(text)
    reader = JavaStream()
    again = [reader.read(DataInput(part)) for part in parts]
    assert again[2] is again[0]
    assert again[1].java_class is again[0].java_class
    assert JavaStreamWriter().value(again[1]) == text
