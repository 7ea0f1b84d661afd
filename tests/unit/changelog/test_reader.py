from __future__ import annotations

import pytest

from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.errors import FormatError
from dstl_core.model.change import StateChange
from dstl_core.model.handle import (
    ChangelogStateHandleStream,
    FileStateHandle,
    InMemoryChangelogStateHandle,
    StreamStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from tests.unit.codec.java_bytes import i32

# Two sets: metadata and key groups 1 and 9, then key group 1 again.
FIRST = i32(3) + i32(1, -1, 1) + b"M" + i32(1, 1, 1) + b"a" + i32(1, 9, 1) + b"z"
SECOND = i32(1, 1, 1, 1) + b"b"
FILES = {"file:/s1": b"\0" + FIRST + SECOND, "file:/s2": b"\0" + SECOND}


class Segments:
    """Files by name; remembers which were read."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def __call__(self, stream: StreamStateHandle) -> bytes:
        assert isinstance(stream, FileStateHandle)
        self.read.append(stream.path)
        return FILES[stream.path]


ALL = KeyGroupRange(0, 9)


def stream_handle(
    *places: tuple[str, int], key_groups: KeyGroupRange = ALL
) -> ChangelogStateHandleStream:
    pairs = tuple((FileStateHandle(path, len(FILES[path]) - 1), offset) for path, offset in places)
    return ChangelogStateHandleStream(pairs, key_groups, 0, 0, "id")


def test_sets_come_in_the_order_of_the_handle() -> None:
    handle = stream_handle(("file:/s1", 0), ("file:/s1", len(FIRST)), ("file:/s2", 0))
    segments = Segments()
    changes = list(StateChangelogHandleReader(segments).get_changes(handle))
    assert changes == [
        StateChange(-1, b"M"),
        StateChange(1, b"a"),
        StateChange(9, b"z"),
        StateChange(1, b"b"),
        StateChange(1, b"b"),
    ]
    assert segments.read == ["file:/s1", "file:/s2"]


def test_only_key_groups_of_the_handle_and_all_metadata() -> None:
    handle = stream_handle(("file:/s1", 0), key_groups=KeyGroupRange(2, 9))
    assert list(StateChangelogHandleReader(Segments()).get_changes(handle)) == [
        StateChange(-1, b"M"),
        StateChange(9, b"z"),
    ]


def test_changes_inside_the_metadata() -> None:
    handle = InMemoryChangelogStateHandle(
        ((-1, b"M"), (0, b"out"), (3, b"in")), KeyGroupRange(3, 3), 0, 1, "id"
    )
    assert list(StateChangelogHandleReader(Segments()).get_changes(handle)) == [
        StateChange(-1, b"M"),
        StateChange(3, b"in"),
    ]


def test_nothing_is_read_before_it_is_asked_for() -> None:
    segments = Segments()
    changes = StateChangelogHandleReader(segments).get_changes(stream_handle(("file:/s1", 0)))
    assert segments.read == []
    next(changes)
    assert segments.read == ["file:/s1"]


def test_damage_names_the_segment() -> None:
    with pytest.raises(FormatError) as caught:
        list(StateChangelogHandleReader(Segments()).get_changes(stream_handle(("file:/s2", 999))))
    assert caught.value.context["location"] == "file:/s2"
