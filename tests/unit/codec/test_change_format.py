"""Segments: the golden vector and files by real Flink's writer, group order by real Java."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dstl_core.codec.change_format import (
    java_hash_map_order,
    read_change_set,
    segment_body,
    write_change_set,
)
from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.snappy_frames import compress_frames
from dstl_core.errors import FormatError
from dstl_core.model.change import StateChange
from tests.golden_files import GOLDEN
from tests.unit.codec.java_bytes import i32


def change_set(*changes: tuple[int, bytes]) -> list[StateChange]:
    return [StateChange(key_group, change) for key_group, change in changes]


def write_segment(
    change_sets: list[list[StateChange]], *, compressed: bool
) -> tuple[bytes, list[int]]:
    body = DataOutput()
    offsets = []
    for changes in change_sets:
        offsets.append(body.position)
        write_change_set(body, changes)
    raw = body.to_bytes()
    return (b"\1" + compress_frames(raw) if compressed else b"\0" + raw), offsets


VECTOR_SETS = [
    change_set((17, b"x"), (1, b"yy"), (-1, b"M"), (1, b"zz")),
    change_set((5, b"b")),
    change_set((2, b"w2")),
]
VECTOR = bytes.fromhex(
    "00"
    "00000003 00000001 ffffffff 00000001 4d 00000002 00000001 00000002 7979 00000002 7a7a"
    "00000001 00000011 00000001 78"
    "00000001 00000001 00000005 00000001 62"
    "00000001 00000001 00000002 00000002 7732"
)
VECTOR_COMPRESSED = bytes.fromhex(
    "01ff060000734e61507059 00490000 87bf1c86"
    "552c0000000300000001ffffffff0108104d00000002010901080479790106047a7a0d100011010800"
    "7801050d040005010800620105340000000100000002000000027732"
)


@pytest.mark.parametrize(
    ("compressed", "segment"), [(False, VECTOR), (True, VECTOR_COMPRESSED)], ids=["plain", "snappy"]
)
def test_the_golden_vector(compressed: bool, segment: bytes) -> None:
    raw, offsets = write_segment(VECTOR_SETS, compressed=compressed)
    assert offsets == [0, 50, 67]
    assert raw == segment
    body = segment_body(segment)
    assert len(body) == 85
    assert [list(read_change_set(body, offset)) for offset in offsets] == [
        [
            StateChange(-1, b"M"),
            StateChange(1, b"yy"),
            StateChange(1, b"zz"),
            StateChange(17, b"x"),
        ],
        [StateChange(5, b"b")],
        [StateChange(2, b"w2")],
    ]


@pytest.mark.parametrize("folder", ["changelog-segment", "changelog-segment-compressed"])
def test_a_segment_of_real_flink_both_ways(folder: str) -> None:
    sample = json.loads((GOLDEN / folder / "sample.json").read_bytes())
    pattern = bytes.fromhex(sample["pattern"])
    changes = [(i & 127, i.to_bytes(4, "little") + pattern[4:]) for i in range(sample["n"])]
    [handle] = sample["handles"]
    segment = Path(GOLDEN / folder / handle["file"]).read_bytes()

    ours, offsets = write_segment([change_set(*changes)], compressed=sample["compressed"])
    assert ours == segment
    assert offsets == [handle["offset"]]
    body = segment_body(segment)
    assert len(body) == handle["stateSize"]
    read = [(each.key_group, each.change) for each in read_change_set(body, 0)]
    # The order inside a key group is kept, the one between them is not.
    assert sorted(read, key=lambda pair: pair[0]) == sorted(changes, key=lambda pair: pair[0])


# Printed by java.util.HashMap: computeIfAbsent of the keys in this order, then keySet().
JAVA_ORDERS: list[tuple[list[int], bool, list[int]]] = [
    ([17, 1], True, [1, 17]),
    ([1, 17], True, [17, 1]),
    (
        [57, 50, 42, 66, 96, 79, 11, 35, 38, 90, 10, 0, 105],
        True,
        [0, 96, 66, 50, 35, 38, 105, 57, 10, 90, 42, 11, 79],
    ),
    (
        [57, 50, 42, 66, 96, 79, 11, 35, 38, 90, 10, 0, 105],
        False,
        [0, 96, 66, 35, 38, 105, 10, 42, 11, 79, 50, 57, 90],
    ),
    ([0, 16, 32, 48, 64, 80, 96], True, [96, 80, 64, 48, 32, 16, 0]),
    ([0, 16, 32, 48, 64, 80, 96, 112], True, [96, 64, 32, 0, 112, 80, 48, 16]),
    (
        [*range(0, 192, 16)],
        True,
        [160, 128, 96, 64, 32, 0, 176, 144, 112, 80, 48, 16],
    ),
    ([-1, 17, 1], True, [-1, 1, 17]),
]


@pytest.mark.parametrize(("key_groups", "last_is_new", "order"), JAVA_ORDERS)
def test_groups_stand_in_the_order_of_javas_hash_map(
    key_groups: list[int], last_is_new: bool, order: list[int]
) -> None:
    assert java_hash_map_order(key_groups, last_is_new=last_is_new) == order


def test_a_change_of_a_known_group_at_the_end_lets_the_map_grow() -> None:
    key_groups, _, grown = JAVA_ORDERS[3]

    def written_order(*more: int) -> list[int]:
        changes = [(each, b"") for each in (*key_groups, *more)]
        segment, _ = write_segment([change_set(*changes)], compressed=False)
        order = [each.key_group for each in read_change_set(segment[1:], 0)]
        return list(dict.fromkeys(order))

    assert written_order() == JAVA_ORDERS[2][2]
    assert written_order(57) == grown


def test_other_flags_are_read_as_plain_as_in_flink() -> None:
    assert segment_body(b"\2" + VECTOR[1:]) == VECTOR[1:]


def test_an_empty_segment_is_a_format_error() -> None:
    with pytest.raises(FormatError, match="segment is empty"):
        segment_body(b"")


@pytest.mark.parametrize("offset", [-1, 85, 86, 2**40])
def test_an_offset_outside_is_a_format_error(offset: int) -> None:
    with pytest.raises(FormatError, match="outside its segment"):
        list(read_change_set(VECTOR[1:], offset))


@pytest.mark.parametrize("segment", [VECTOR, VECTOR_COMPRESSED], ids=["plain", "snappy"])
def test_cutting_a_segment_anywhere_is_a_format_error(segment: bytes) -> None:
    for size in range(len(segment)):
        with pytest.raises(FormatError):
            list(read_change_set(segment_body(segment[:size]), 67))


def test_empty_groups_do_not_desynchronise() -> None:
    body = i32(3) + i32(0, 9) + i32(1, 4, 2) + b"ab" + i32(0, 7)
    assert list(read_change_set(body, 0)) == [StateChange(4, b"ab")]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (i32(-1), "groups"),
        (i32(2**31 - 1), "groups"),
        (i32(1, -1, 3), "changes"),
        (i32(1, 2**31 - 1, 3), "changes"),
        (i32(1, 1, -2, 0), "key group is negative"),
        (i32(1, 1, 3, -1), "change length"),
        (i32(1, 1, 3, 2**31 - 1), "change length"),
    ],
)
def test_damaged_change_sets(body: bytes, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        list(read_change_set(body, 0))


def test_a_bad_count_is_named_with_its_place() -> None:
    with pytest.raises(FormatError) as caught:
        list(read_change_set(i32(1, 2**31 - 1, 3), 0))
    assert (caught.value.context["offset"], caught.value.context["field"]) == (4, "changes")
