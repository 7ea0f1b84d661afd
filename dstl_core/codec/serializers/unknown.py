"""Finds the end of the snapshot of an unknown class, so that the bytes after it can be read.

A snapshot has no length. But the format around it is strict: class names, versions, counts, magic
numbers, and the end of the whole section. So this module tries each plausible end, and takes the
one with which the rest of the section parses to its last byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers.base import SnapshotContext
from dstl_core.errors import FormatError, UnknownSerializerError

MAX_WORK_BYTES = 4 << 20
"""Bytes that all attempts together may parse; about an eighth of a second."""
MAX_STATE_NAME_BYTES = 1024

R = TypeVar("R")
Parse = Callable[[DataInput, SnapshotContext], R]

# Possible bytes after a snapshot: the name of the next serializer of a state, the class name of the
# next snapshot, the kind of the next state, a Java object (TTL), or one of the last bytes.
_SERIALIZER_NAME = re.compile(rb"\0[\x0e-\x14](?:KEY|VALUE|NAMESPACE|USER_KEY)_SERIALIZER")
_CLASS_NAME = re.compile(rb"[\w.$]*Snapshot(?=\0\0\0)")
_STATE_KIND = re.compile(
    rb"\0\0\0[\0-\x04]\0\0\0\x01\0(?:\x10KEYED_STATE_TYPE|\x20OPERATOR_STATE_DISTRIBUTION_MODE)"
    rb"|\0\0\0\x03\0\0\0\0\0\0\0\x01\0\x10VALUE_SERIALIZER"
)
_JAVA_OBJECT = re.compile(rb"\x01\xac\xed\0\x05")
_LAST_BYTES = 16


def read_with_unknown(
    data: DataInput, context: SnapshotContext, parse: Parse[R], *, exact: bool = True
) -> R:
    """Parses the rest of ``data``; keeps the bytes of snapshots of unknown classes.

    Args:
        data: Ends where the section ends.
        context: Finds the readers of known classes.
        parse: Reads the section.
        exact: False if bytes may follow the section. With an unknown class nothing may follow,
            since only the end of the section identifies the end of the snapshot.

    Raises:
        UnknownSerializerError: No end of an unknown snapshot lets the rest parse.
        FormatError: The bytes are damaged.
    """
    start = data.position
    work = 0

    def attempt(unknown: dict[int, int]) -> R:
        nonlocal work
        data.rewind(start)
        known = context.with_unknown(unknown)
        try:
            result = parse(data, known)
            if exact or unknown:
                data.expect_end("a section with serializer snapshots")
            return result
        except UnknownSerializerError as error:
            work += data.position - start
            payload = error.context.get("payload_offset")
            if not isinstance(payload, int) or payload in unknown:
                raise
            for end in _plausible_ends(data, payload):
                if work >= MAX_WORK_BYTES:
                    break
                try:
                    return attempt(unknown | {payload: end - payload})
                except FormatError:
                    work += data.position - start
            raise error

    return attempt(dict(context.unknown))


def _plausible_ends(data: DataInput, start: int) -> Iterator[int]:
    """Possible ends of an unknown payload that starts at ``start``, nearest first."""
    raw = data.peek(start)
    ends = {0, len(raw)}
    ends.update(match.start() for match in _SERIALIZER_NAME.finditer(raw))
    ends.update(match.start() for match in _JAVA_OBJECT.finditer(raw))
    ends.update(range(max(0, len(raw) - _LAST_BYTES), len(raw)))
    for match in _CLASS_NAME.finditer(raw):
        ends.update(_text_starts(raw, match.start(), match.end()))
    for match in _STATE_KIND.finditer(raw):
        for begin in _text_starts(raw, match.start() - MAX_STATE_NAME_BYTES, match.start()):
            ends.update((begin, max(0, begin - 2)))
    return (start + end for end in sorted(ends))


def _text_starts(raw: bytes, lowest: int, end: int) -> list[int]:
    """Positions where a ``utf`` text that ends at ``end`` may start, by its length field."""
    return [
        at
        for at in range(max(0, lowest - 2), end - 1)
        if int.from_bytes(raw[at : at + 2], "big") == end - at - 2
    ]
