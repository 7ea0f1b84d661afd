"""The edits of a MANIFEST: records in blocks, and the fields of an edit.

    file   := block*, each of 32 KiB; the last one may be shorter
    block  := record*, zeros where less than a header is left
    record := u32 masked CRC-32C of type and payload, u16 length, u8 type, payload   (little-endian)
    type   := 1 whole, or 2 first, 3 middle, 4 last part of an edit
    edit   := (varint tag, fields)*

A checksum covers each record. Source: ``db/log_format.h``, ``db/version_edit.h`` and
``db/version_edit.cc`` of RocksDB 8.10.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from dstl_core.codec.checksums import masked_crc32c
from dstl_core.codec.sst.block import read_varint, varint
from dstl_core.errors import FormatError

BLOCK_BYTES = 32 << 10
HEADER_BYTES = 7
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
TERMINATE, UNIQUE_ID, _PATH_ID, _MUST_BE_KNOWN = 1, 12, 65, 1 << 6
_OF_CONTENT = {7, 8, 10, 11, UNIQUE_ID, 14, 15}
"""Fields of a file that follow from its content: checksum and its function, times of entries, id,
size of range deletions, size of its tail.
"""
NO_UNIQUE_ID = bytes(16)
_MAY_BE_IGNORED = 1 << 13
_U32, _U64 = (1 << 32) - 1, (1 << 64) - 1


class EditTag(IntEnum):
    """What a field of an edit says."""

    COMPARATOR = 1
    LOG_NUMBER = 2
    NEXT_FILE_NUMBER = 3
    LAST_SEQUENCE = 4
    COMPACT_CURSOR = 5
    DELETED_FILE = 6
    NEW_FILE = 7
    PREV_LOG_NUMBER = 9
    MIN_LOG_NUMBER = 10
    NEW_FILE_2 = 100
    NEW_FILE_3 = 102
    NEW_FILE_4 = 103
    FAMILY = 200
    FAMILY_ADD = 201
    FAMILY_DROP = 202
    TOP_FAMILY = 203
    ATOMIC_GROUP = 300


_NUMBERS = {
    EditTag.LOG_NUMBER,
    EditTag.NEXT_FILE_NUMBER,
    EditTag.LAST_SEQUENCE,
    EditTag.PREV_LOG_NUMBER,
    EditTag.MIN_LOG_NUMBER,
    EditTag.TOP_FAMILY,
    EditTag.ATOMIC_GROUP,
}
TRAILER_BYTES = 8
"""The sequence number and the kind of an entry, at the end of its key."""
NEW_FILES = {
    EditTag.NEW_FILE,
    EditTag.NEW_FILE_2,
    EditTag.NEW_FILE_3,
    EditTag.NEW_FILE_4,
}


def edits_of(raw: bytes) -> Iterator[tuple[bytes, int]]:
    """Yields each edit, with the offset of its first record."""
    parts: list[bytes] = []
    start = 0
    for kind, payload, offset in _records(raw):
        if (kind in (_WHOLE, _FIRST)) != (not parts):
            raise FormatError(
                "The parts of an edit of a MANIFEST are not in order", offset=offset, got=kind
            )
        if not parts:
            start = offset
        parts.append(payload)
        if kind in (_WHOLE, _LAST):
            yield b"".join(parts), start
            parts = []
    if parts:
        raise FormatError("A MANIFEST ends within an edit", offset=start)


def _records(raw: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Yields type, payload and offset of each record, in which every checksum is right."""
    at = 0
    while at < len(raw):
        left = BLOCK_BYTES - at % BLOCK_BYTES
        if left < HEADER_BYTES:
            if raw[at : at + left].strip(b"\0"):
                raise FormatError("The end of a block of a MANIFEST is not empty", offset=at)
            at += left
            continue
        length = int.from_bytes(raw[at + 4 : at + 6], "little")
        end = at + HEADER_BYTES + length
        if end > len(raw) or HEADER_BYTES + length > left:
            raise FormatError(
                "A record of a MANIFEST is longer than its block",
                offset=at,
                expected=f"<= {min(left, len(raw) - at)} bytes",
                got=HEADER_BYTES + length,
            )
        kind = raw[at + 6]
        stored = int.from_bytes(raw[at : at + 4], "little")
        computed = masked_crc32c(raw[at + 6 : end])
        if computed != stored:
            raise FormatError(
                "The checksum of a record of a MANIFEST is wrong; the file is damaged",
                offset=at,
                expected=f"{stored:08x}",
                got=f"{computed:08x}",
            )
        if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST):
            raise FormatError(
                "A record of a MANIFEST has an unknown type", offset=at, expected="1..4", got=kind
            )
        yield kind, raw[at + HEADER_BYTES : end], at
        at = end


def framed(edits: Iterator[bytes]) -> bytes:
    """Edits as records in blocks."""
    out = bytearray()
    for edit in edits:
        at = 0
        while at < len(edit) or at == 0:
            left = BLOCK_BYTES - len(out) % BLOCK_BYTES
            if left < HEADER_BYTES:
                out += bytes(left)
                continue
            part = edit[at : at + left - HEADER_BYTES]
            is_last = at + len(part) == len(edit)
            if not part and not is_last:
                # A record without payload at the end of a block, as RocksDB writes it.
                out += _record(_FIRST if at == 0 else _MIDDLE, b"")
                continue
            kind = (_WHOLE if is_last else _FIRST) if at == 0 else (_LAST if is_last else _MIDDLE)
            out += _record(kind, part)
            at += len(part)
            if is_last:
                break
    return bytes(out)


def _record(kind: int, payload: bytes) -> bytes:
    body = bytes((kind,)) + payload
    return masked_crc32c(body).to_bytes(4, "little") + len(payload).to_bytes(2, "little") + body


@dataclass(slots=True)
class EditField:
    """A field of an edit: its tag, and the numbers and texts that follow."""

    tag: int
    start: int
    end: int
    numbers: tuple[int, ...] = ()
    text: bytes = b""
    keys: tuple[bytes, ...] = ()


class EditReader:
    """Reads the fields of an edit. Every length is checked."""

    def __init__(self, edit: bytes, offset: int) -> None:
        self._edit = edit
        self._offset = offset
        self._at = 0

    def fields(self) -> Iterator[EditField]:
        while self._at < len(self._edit):
            start = self._at
            tagged = self._field(self._number(_U32))
            tagged.start, tagged.end = start, self._at
            yield tagged

    def _field(self, tag: int) -> EditField:
        if tag in _NUMBERS:
            return EditField(tag, 0, 0, (self._number(),))
        if tag in NEW_FILES:
            return self._new_file(tag)
        match tag:
            case EditTag.FAMILY:
                return EditField(tag, 0, 0, (self._number(_U32),))
            case EditTag.COMPARATOR | EditTag.FAMILY_ADD:
                return EditField(tag, 0, 0, (), self._text())
            case EditTag.COMPACT_CURSOR:
                return EditField(tag, 0, 0, (self._number(_U32),), self._text())
            case EditTag.DELETED_FILE:
                return EditField(tag, 0, 0, (self._number(_U32), self._number()))
            case EditTag.FAMILY_DROP:
                return EditField(tag, 0, 0)
        if not tag & _MAY_BE_IGNORED:
            raise FormatError(
                "An edit of a MANIFEST has an unknown field", offset=self._offset, got=f"tag {tag}"
            )
        return EditField(tag, 0, 0, (), self._text())

    def _new_file(self, tag: int) -> EditField:
        level, number = self._number(_U32), self._number()
        path_id = self._number(_U32) if tag == EditTag.NEW_FILE_3 else 0
        size = self._number()
        keys = self._text(), self._text()
        unique_id = NO_UNIQUE_ID
        if min(map(len, keys)) < TRAILER_BYTES:
            raise FormatError(
                "A key of a MANIFEST is too short", offset=self._offset, expected=">= 8 bytes"
            )
        if tag != EditTag.NEW_FILE:
            self._number(), self._number()
        while tag == EditTag.NEW_FILE_4 and (custom := self._number(_U32)) != TERMINATE:
            value = self._text()
            if custom == UNIQUE_ID:
                unique_id = value
            elif custom == _PATH_ID:
                path_id = int.from_bytes(value, "little")
            elif custom & _MUST_BE_KNOWN:
                raise FormatError(
                    "A table file of a MANIFEST has an unknown field",
                    offset=self._offset,
                    got=f"tag {custom}",
                )
        if path_id:
            raise FormatError(
                "A table file of a MANIFEST is in another folder",
                offset=self._offset,
                expected="path 0",
                got=path_id,
            )
        bounds = tuple(key[:-TRAILER_BYTES] for key in keys)
        return EditField(tag, 0, 0, (level, number, size), unique_id, bounds)

    def renumbered(self, number: int) -> bytes:
        """The only field of the edit, a new file, under another number."""
        tag, level = self._number(_U32), self._number(_U32)
        self._number()
        return b"".join(map(varint, (tag, level, number))) + self._edit[self._at :]

    def changed_file(self, size: int, smallest: bytes, largest: bytes, unique_id: bytes) -> bytes:
        """The only field of the edit, a new file, with another content."""
        tag = self._number(_U32)
        level, number = self._number(_U32), self._number()
        if tag == EditTag.NEW_FILE_3:
            self._number(_U32)
        self._number(), self._text(), self._text()
        sequences = [0, 0] if tag == EditTag.NEW_FILE else [self._number(), self._number()]
        out = b"".join(map(varint, (EditTag.NEW_FILE_4, level, number, size)))
        out += sized_text(smallest) + sized_text(largest) + b"".join(map(varint, sequences))
        while tag == EditTag.NEW_FILE_4 and (custom := self._number(_U32)) != TERMINATE:
            value = self._text()
            if custom not in _OF_CONTENT:
                out += varint(custom) + sized_text(value)
        return out + varint(UNIQUE_ID) + sized_text(unique_id) + varint(TERMINATE)

    def _number(self, limit: int = _U64) -> int:
        value, self._at = read_varint(self._edit, self._at, len(self._edit))
        if value > limit:
            raise FormatError(
                "A number of a MANIFEST is too large",
                offset=self._offset,
                expected=f"<= {limit}",
                got=value,
            )
        return value

    def _text(self) -> bytes:
        size = self._number(_U32)
        end = self._at + size
        if end > len(self._edit):
            raise FormatError(
                "A field of a MANIFEST is longer than its edit",
                offset=self._offset,
                expected=f"<= {len(self._edit) - self._at} bytes",
                got=size,
            )
        text = self._edit[self._at : end]
        self._at = end
        return text


def sized_text(text: bytes) -> bytes:
    return varint(len(text)) + text
