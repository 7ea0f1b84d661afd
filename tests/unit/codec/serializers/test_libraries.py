"""Types of flink-scala-api, and Flink 2.3's bitmap and sorted long."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers import BUILT_IN, SnapshotContext, Types, write_snapshot
from dstl_core.codec.serializers.base import AnySerializer, deserialize_exactly, serialize_to_bytes
from dstl_core.codec.serializers.libraries.flink_scala_api import (
    CaseClassSerializer,
    CaseObjectSerializer,
    Chosen,
    CollectionSerializer,
    CoproductSerializer,
    FlinkScalaEitherSerializer,
    MappedSerializer,
    OptionSerializer,
    ScalaMapSerializer,
    UnitSerializer,
)
from dstl_core.codec.serializers.libraries.roaring_bitmap import (
    MAX_SHOWN_MEMBERS,
    BitmapSerializer,
)
from dstl_core.codec.serializers.operators.sequenced_multiset import SortedLongSerializer
from dstl_core.codec.serializers.scala import Option
from dstl_core.codec.serializers.structs import Either
from dstl_core.errors import FormatError, UnreadableValueError
from tests.command_line import run
from tests.golden_files import GOLDEN

__all__ = ["run"]

SCALA = GOLDEN / "flink-scala-api"
NEW = GOLDEN / "flink-2-3-types"


def without_classes(value: Any) -> Any:
    """The truth has no class of a value of a sealed trait."""
    if isinstance(value, dict):
        return {name: without_classes(item) for name, item in value.items() if name != "@class"}
    return [without_classes(item) for item in value] if isinstance(value, list) else value


def dumped(run: Any, folder: Path, *options: str) -> list[dict[str, Any]]:
    [path] = folder.glob("savepoint-*")
    ran = run("dump", str(path), *options)
    assert (ran.code, ran.err) == (0, "")
    return [json.loads(line) for line in ran.out.splitlines()]


def in_order(entries: Any) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in entries)


def truth(folder: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((folder / "truth.json").read_bytes())["entries"]
    return entries


def test_a_dump_of_flink_scala_api_is_what_flink_holds(run: Any) -> None:
    entries = dumped(run, SCALA, "--jar", str(SCALA / "job.jar"))
    assert len(entries) == 30
    assert in_order(map(without_classes, entries)) == in_order(truth(SCALA))
    classes = {
        (frozenset(entry["value"]) - {"@class"}, entry["value"]["@class"])
        for entry in entries
        if entry["state"] == "shape" and isinstance(entry["value"], dict)
    }
    assert classes == {
        (frozenset("r"), "fsa.Circle"),
        (frozenset("wh"), "fsa.Rect"),
    }


def test_a_dump_of_new_types_is_what_flink_holds(run: Any) -> None:
    entries = dumped(run, NEW)
    assert len(entries) == 25
    assert in_order(entries) == in_order(truth(NEW))


def test_a_rewritten_copy_has_the_same_entries(run: Any, tmp_path: Path) -> None:
    for folder in (SCALA, NEW):
        [path] = folder.glob("savepoint-*")
        out = tmp_path / folder.name
        assert run("rewrite", str(path), str(out)).code == 0
        lines = [line for each in Snapshot.load(out).operators for line in each.dump()]
        before = [line for each in Snapshot.load(path).operators for line in each.dump()]
        assert in_order(lines) == in_order(before)


# ---------------------------------------------------------------------------------- by hand

POS = CaseClassSerializer("a.P", (Types.INT, Types.STRING))
FIXED = CaseClassSerializer("a.F", (Types.INT, Types.LONG))
NONE = CaseObjectSerializer("a.None$")
SHAPE = CoproductSerializer(("a.F", "a.None$"), (FIXED, NONE))
VALUES: list[tuple[AnySerializer, Any, str, Any]] = [
    (POS, (7, "ab"), "00000002" + "00000007" + "036162", {"_1": 7, "_2": "ab"}),
    (POS, (7,), "00000001" + "00000007", {"_1": 7}),
    (POS, None, "80000000", None),
    (FIXED, None, "80000000" + "00" * 12, None),
    (FIXED, (1, 2), "00000002" + "00000001" + "0000000000000002", {"_1": 1, "_2": 2}),
    (SHAPE, Chosen(0, (1, 2)), "00" + "00000002" + "00000001" + "0000000000000002",
     {"@class": "a.F", "_1": 1, "_2": 2}),
    (SHAPE, Chosen(1, None), "01", "a.None$"),
    (SHAPE, None, "80", None),
    (OptionSerializer(Types.INT), Option(True, 5), "0100000005", [5]),
    (FlinkScalaEitherSerializer(Types.INT, Types.STRING), Either(False, "a"), "000261",
     {"right": "a"}),
    (CollectionSerializer("x.ListSerializer", "a.P", POS), [(1, "a")],
     "00000001" + "00000002" + "00000001" + "0261", [{"_1": 1, "_2": "a"}]),
    (CollectionSerializer("x.SetSerializer", "java.lang.String", Types.STRING), ["b", "a"],
     "00000002" + "0262" + "0261", ["a", "b"]),
    (CollectionSerializer("x.ListSerializer", "a.None$", NONE), [None, None], "00000002",
     ["a.None$", "a.None$"]),
    (ScalaMapSerializer(Types.STRING, Types.INT), [("b", 1), ("a", 2)],
     "00000002" + "0262" + "00000001" + "0261" + "00000002", [["a", 2], ["b", 1]]),
    (MappedSerializer("m.UuidMapper", Types.BYTES), bytes(15) + b"\x07",
     "00000010" + "00" * 15 + "07", "00000000-0000-0000-0000-000000000007"),
    (UnitSerializer(), None, "", None),
    (SortedLongSerializer(), 0, "8000000000000000", 0),
    (SortedLongSerializer(), -1, "7fffffffffffffff", -1),
    (BitmapSerializer(), bytes.fromhex("3a30000000000000"), "000000083a30000000000000", []),
    (BitmapSerializer(), bytes.fromhex("3a3000000100000000000200100000000100" + "02000300"),
     "00000016" + "3a3000000100000000000200100000000100" + "02000300", [1, 2, 3]),
]  # fmt: skip


@pytest.mark.parametrize(("serializer", "value", "raw", "text"), VALUES)
def test_values_have_the_bytes_of_the_library(
    serializer: AnySerializer, value: Any, raw: str, text: Any
) -> None:
    check_value(serializer, value, raw, text)


def check_value(serializer: AnySerializer, value: Any, raw: str, text: Any) -> None:
    """A value has these bytes and this text, and no part of the bytes is a value."""
    read = deserialize_exactly(serializer, bytes.fromhex(raw))
    assert read == value
    assert serializer.to_text(read) == text
    assert serialize_to_bytes(serializer, value).hex() == raw
    whole = bytes.fromhex(raw)
    for size in range(len(whole)):
        with pytest.raises(FormatError):
            deserialize_exactly(serializer, whole[:size])


@pytest.mark.parametrize(
    "serializer",
    [*{id(each): each for each, *_ in VALUES}.values(),
     CaseClassSerializer("a.P", (Types.INT,), outer_version=2),
     CoproductSerializer(("a.F",), (FIXED,), 2)],
)  # fmt: skip
def test_a_snapshot_is_read_and_written_as_it_was(serializer: AnySerializer) -> None:
    check_snapshot(serializer)


def check_snapshot(serializer: AnySerializer) -> None:
    """The snapshot of a serializer is that serializer, and no part of it is a snapshot."""
    out = DataOutput()
    write_snapshot(out, serializer)
    raw = out.to_bytes()
    data = DataInput(raw)
    assert SnapshotContext(BUILT_IN).read_snapshot(data) == serializer
    assert data.remaining == 0
    for size in range(len(raw)):
        with pytest.raises(FormatError):
            SnapshotContext(BUILT_IN).read_snapshot(DataInput(raw[:size]))


@pytest.mark.parametrize(
    ("serializer", "raw"),
    [
        (POS, "00000003" + "00000007" + "036162"),
        (POS, "ffffffff"),
        (SHAPE, "02"),
        (CollectionSerializer("x.ListSerializer", "a.None$", NONE), "7fffffff"),
        (CollectionSerializer("x.ListSerializer", "a.P", POS), "7fffffff"),
        (ScalaMapSerializer(NONE, NONE), "7fffffff"),
    ],
)
def test_wrong_values_are_refused(serializer: AnySerializer, raw: str) -> None:
    with pytest.raises(FormatError):
        deserialize_exactly(serializer, bytes.fromhex(raw))


def bitmap(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def runs(containers: int) -> bytes:
    """Containers that hold all of their 65,536 members, in runs."""
    flags = b"\xff" * ((containers + 7) // 8)
    heads = b"".join(struct.pack("<HH", high, 0xFFFF) for high in range(containers))
    offsets = bytes(4 * containers) if containers >= 4 else b""
    one = struct.pack("<HHH", 1, 0, 0xFFFF)
    return struct.pack("<HH", 12347, containers - 1) + flags + heads + offsets + one * containers


def test_bitmaps_of_runs_and_bits() -> None:
    serializer = BitmapSerializer()
    bitmap_read = deserialize_exactly(serializer, bitmap(runs(1)))
    assert serializer.to_text(bitmap_read) == list(range(1 << 16))
    odd = bytes([0xAA]) * 8192
    body = struct.pack("<IIHHI", 12346, 1, 1, (1 << 15) - 1, 16) + odd
    bitmap_read = deserialize_exactly(serializer, bitmap(body))
    assert serializer.to_text(bitmap_read) == list(range((1 << 16) + 1, 1 << 17, 2))


def test_a_small_bitmap_of_many_members_is_not_listed() -> None:
    containers = MAX_SHOWN_MEMBERS // (1 << 16) + 1
    with pytest.raises(UnreadableValueError, match="members; expected at most"):
        deserialize_exactly(BitmapSerializer(), bitmap(runs(containers)))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x01\0\0\0",
        struct.pack("<II", 12346, 1 << 17),
        struct.pack("<IIHHIHH", 12346, 1, 0, 1, 16, 5, 5),
        struct.pack("<IIHHIHH", 12346, 1, 0, 1, 16, 6, 5),
        struct.pack("<IIHHHHIIHH", 12346, 2, 1, 0, 1, 0, 24, 26, 5, 5),
        struct.pack("<HHBHHHHH", 12347, 0, 1, 0, 9, 1, 0xFFFF, 9),
        struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, 5) + b"\0",
    ],
)
def test_wrong_bitmaps_are_refused(body: bytes) -> None:
    with pytest.raises(FormatError):
        deserialize_exactly(BitmapSerializer(), bitmap(body))
