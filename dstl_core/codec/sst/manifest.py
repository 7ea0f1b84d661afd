"""RocksDB's MANIFEST: which column families a database has, and which table files belong to each.

    file   := block*, each of 32 KiB; the last one may be shorter
    block  := record*, zeros where less than a header is left
    record := u32 masked CRC-32C of type and payload, u16 length, u8 type, payload   (little-endian)
    type   := 1 whole, or 2 first, 3 middle, 4 last part of an edit
    edit   := (varint tag, fields)*

Edits apply in order. An edit belongs to one column family, the default one if it names none. A
checksum covers each record. Source: ``db/log_format.h``, ``db/version_edit.h`` and
``db/version_edit.cc`` of RocksDB 8.10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType

from dstl_core.codec.checksums import masked_crc32c
from dstl_core.codec.sst.block import read_varint, varint
from dstl_core.errors import FormatError

BLOCK_BYTES = 32 << 10
HEADER_BYTES = 7
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_COMPARATOR = b"leveldb.BytewiseComparator"
_TERMINATE, _UNIQUE_ID, _PATH_ID, _MUST_BE_KNOWN = 1, 12, 65, 1 << 6
_OF_CONTENT = {7, 8, 10, 11, _UNIQUE_ID, 14, 15}
"""Fields of a file that follow from its content: checksum and its function, times of entries, id,
size of range deletions, size of its tail.
"""
_NO_UNIQUE_ID = bytes(16)
_DEFAULT = "default"
_MAY_BE_IGNORED = 1 << 13
_PUT_TRAILER = (1).to_bytes(8, "little")
NEW_MANIFEST_NUMBER = 4
"""The number of a new MANIFEST; its table files have larger ones."""
_U32, _U64 = (1 << 32) - 1, (1 << 64) - 1


class _Tag(IntEnum):
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
    _Tag.LOG_NUMBER,
    _Tag.NEXT_FILE_NUMBER,
    _Tag.LAST_SEQUENCE,
    _Tag.PREV_LOG_NUMBER,
    _Tag.MIN_LOG_NUMBER,
    _Tag.TOP_FAMILY,
    _Tag.ATOMIC_GROUP,
}
_TRAILER_BYTES = 8
"""The sequence number and the kind of an entry, at the end of its key."""
_NEW_FILES = {_Tag.NEW_FILE, _Tag.NEW_FILE_2, _Tag.NEW_FILE_3, _Tag.NEW_FILE_4}


KeyRange = tuple[bytes, bytes | None]
"""The first key, and the first one behind the last; None: there is no key behind."""


def starting_with(prefix: bytes) -> KeyRange:
    """The keys that start with some bytes."""
    behind = prefix.rstrip(b"\xff")
    return prefix, behind[:-1] + bytes([behind[-1] + 1]) if behind else None


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A table file: its number, level, size in bytes, and its smallest and largest key.

    ``unique_id`` identifies its content: see ``SstFile.unique_id``. Older RocksDB stores none.
    """

    number: int
    level: int
    size: int
    smallest: bytes
    largest: bytes
    unique_id: bytes | None = None

    def may_hold(self, keys: KeyRange) -> bool:
        """Whether keys of the range can be in the file."""
        start, stop = keys
        return self.largest >= start and (stop is None or self.smallest < stop)


@dataclass
class ColumnFamily:
    """A column family, with its live table files by number."""

    id: int
    name: str
    files: dict[int, ManifestFile] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """The column families of a database, by id."""

    families: Mapping[int, ColumnFamily]

    @property
    def family_of_file(self) -> dict[int, ColumnFamily]:
        """The family of each live table file, by number.

        Raises:
            FormatError: Two families have the same file.
        """
        families: dict[int, ColumnFamily] = {}
        for family in self.families.values():
            for number in family.files:
                if number in families:
                    raise FormatError(
                        "Two column families of a MANIFEST have the same table file",
                        expected=f"{families[number].name!r} or {family.name!r}",
                        got=f"file {number}",
                    )
                families[number] = family
        return families


def read_manifest(raw: bytes) -> Manifest:
    """The column families after all edits.

    Raises:
        FormatError: The file is damaged, or has what RocksDB 8.10 does not have.
    """
    families = {0: ColumnFamily(0, _DEFAULT)}
    last_left = 0
    for edit, offset in _edits(raw):
        last_left = _apply(families, edit, offset)
    if last_left:
        raise FormatError(
            "A MANIFEST ends within a group of edits", expected=f"{last_left} more", got="its end"
        )
    return Manifest(families)


# ----------------------------------------------------------------------------------------- records


def _edits(raw: bytes) -> Iterator[tuple[bytes, int]]:
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


def _framed(edits: Iterator[bytes]) -> bytes:
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


# ------------------------------------------------------------------------------------------- edits


@dataclass(slots=True)
class _Field:
    """A field of an edit: its tag, and the numbers and texts that follow."""

    tag: int
    start: int
    end: int
    numbers: tuple[int, ...] = ()
    text: bytes = b""
    keys: tuple[bytes, ...] = ()


class _Reader:
    """Reads the fields of an edit. Every length is checked."""

    def __init__(self, edit: bytes, offset: int) -> None:
        self._edit = edit
        self._offset = offset
        self._at = 0

    def fields(self) -> Iterator[_Field]:
        while self._at < len(self._edit):
            start = self._at
            tagged = self._field(self._number(_U32))
            tagged.start, tagged.end = start, self._at
            yield tagged

    def _field(self, tag: int) -> _Field:
        if tag in _NUMBERS:
            return _Field(tag, 0, 0, (self._number(),))
        if tag in _NEW_FILES:
            return self._new_file(tag)
        match tag:
            case _Tag.FAMILY:
                return _Field(tag, 0, 0, (self._number(_U32),))
            case _Tag.COMPARATOR | _Tag.FAMILY_ADD:
                return _Field(tag, 0, 0, (), self._text())
            case _Tag.COMPACT_CURSOR:
                return _Field(tag, 0, 0, (self._number(_U32),), self._text())
            case _Tag.DELETED_FILE:
                return _Field(tag, 0, 0, (self._number(_U32), self._number()))
            case _Tag.FAMILY_DROP:
                return _Field(tag, 0, 0)
        if not tag & _MAY_BE_IGNORED:
            raise FormatError(
                "An edit of a MANIFEST has an unknown field", offset=self._offset, got=f"tag {tag}"
            )
        return _Field(tag, 0, 0, (), self._text())

    def _new_file(self, tag: int) -> _Field:
        level, number = self._number(_U32), self._number()
        path_id = self._number(_U32) if tag == _Tag.NEW_FILE_3 else 0
        size = self._number()
        keys = self._text(), self._text()
        unique_id = _NO_UNIQUE_ID
        if min(map(len, keys)) < _TRAILER_BYTES:
            raise FormatError(
                "A key of a MANIFEST is too short", offset=self._offset, expected=">= 8 bytes"
            )
        if tag != _Tag.NEW_FILE:
            self._number(), self._number()
        while tag == _Tag.NEW_FILE_4 and (custom := self._number(_U32)) != _TERMINATE:
            value = self._text()
            if custom == _UNIQUE_ID:
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
        bounds = tuple(key[:-_TRAILER_BYTES] for key in keys)
        return _Field(tag, 0, 0, (level, number, size), unique_id, bounds)

    def renumbered(self, number: int) -> bytes:
        """The only field of the edit, a new file, under another number."""
        tag, level = self._number(_U32), self._number(_U32)
        self._number()
        return b"".join(map(varint, (tag, level, number))) + self._edit[self._at :]

    def changed_file(self, new: ChangedFile) -> bytes:
        """The only field of the edit, a new file, with another content."""
        tag = self._number(_U32)
        level, number = self._number(_U32), self._number()
        if tag == _Tag.NEW_FILE_3:
            self._number(_U32)
        self._number(), self._text(), self._text()
        sequences = [0, 0] if tag == _Tag.NEW_FILE else [self._number(), self._number()]
        out = b"".join(map(varint, (_Tag.NEW_FILE_4, level, number, new.size)))
        out += _text(new.smallest) + _text(new.largest) + b"".join(map(varint, sequences))
        while tag == _Tag.NEW_FILE_4 and (custom := self._number(_U32)) != _TERMINATE:
            value = self._text()
            if custom not in _OF_CONTENT:
                out += varint(custom) + _text(value)
        return out + varint(_UNIQUE_ID) + _text(new.unique_id) + varint(_TERMINATE)

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


def _apply(families: dict[int, ColumnFamily], edit: bytes, offset: int) -> int:
    """Applies an edit; returns how many edits of its group follow."""
    fields = list(_Reader(edit, offset).fields())
    left = 0
    family_id = _family_of(fields)
    for tagged in fields:
        match tagged.tag:
            case _Tag.COMPARATOR if tagged.text != _COMPARATOR:
                raise FormatError(
                    "A column family is not sorted by bytes",
                    offset=offset,
                    expected=_COMPARATOR.decode(),
                    got=tagged.text[:80],
                )
            case _Tag.FAMILY_ADD:
                if family_id in families:
                    raise _wrong_family("is added twice", family_id, offset)
                families[family_id] = ColumnFamily(family_id, _name(tagged.text, offset))
            case _Tag.FAMILY_DROP:
                if families.pop(family_id, None) is None:
                    raise _wrong_family("is dropped and not there", family_id, offset)
            case _Tag.ATOMIC_GROUP:
                [left] = tagged.numbers
    if family_id in families:
        _apply_files(families[family_id], fields, offset)
    elif any(each.tag in _NEW_FILES for each in fields):
        raise _wrong_family("gets a file and is not there", family_id, offset)
    return left


def _family_of(fields: list[_Field]) -> int:
    """The family of an edit: the default one if it names none."""
    named = [each.numbers[0] for each in fields if each.tag == _Tag.FAMILY]
    return named[-1] if named else 0


def _apply_files(family: ColumnFamily, fields: list[_Field], offset: int) -> None:
    # Deletions come first, wherever they are: a file may move to another level within an edit.
    for tagged in fields:
        if tagged.tag == _Tag.DELETED_FILE:
            level, number = tagged.numbers
            deleted = family.files.pop(number, None)
            if deleted is None or deleted.level != level:
                raise FormatError(
                    "A MANIFEST deletes a table file that is not there",
                    offset=offset,
                    got=f"file {number} of level {level}",
                )
    for tagged in fields:
        if tagged.tag in _NEW_FILES:
            level, number, size = tagged.numbers
            if number in family.files:
                raise FormatError(
                    "A MANIFEST adds a table file twice", offset=offset, got=f"file {number}"
                )
            smallest, largest = tagged.keys
            unique_id = None if tagged.text == _NO_UNIQUE_ID else tagged.text
            file = ManifestFile(number, level, size, smallest, largest, unique_id)
            family.files[number] = file


def _wrong_family(problem: str, family: int, offset: int) -> FormatError:
    return FormatError(f"A column family of a MANIFEST {problem}", offset=offset, got=family)


def _name(raw: bytes, offset: int) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise FormatError(
            "The name of a column family is not UTF-8", offset=offset, got=raw[:40].hex()
        ) from None


# ----------------------------------------------------------------------------------------- changes


def new_manifest(families: Mapping[str, Sequence[ManifestFile]]) -> bytes:
    """The MANIFEST of a database whose every entry has sequence number 0.

    Args:
        families: Column families with their table files, which are of level 1 or more; the ids of
            families count from 1.
    """
    edits = [varint(_Tag.COMPARATOR) + _text(_COMPARATOR)]
    last = 0
    for family_id, (name, files) in enumerate(families.items(), 1):
        family = varint(_Tag.FAMILY) + varint(family_id)
        added = varint(_Tag.FAMILY_ADD) + _text(name.encode())
        edits.append(varint(_Tag.COMPARATOR) + _text(_COMPARATOR) + family + added)
        new_files = b"".join(map(_new_file, files))
        edits.append(varint(_Tag.LOG_NUMBER) + varint(0) + new_files + family)
        last = max([last, *(file.number for file in files)])
    numbers = {
        _Tag.LOG_NUMBER: 0,
        _Tag.PREV_LOG_NUMBER: 0,
        _Tag.NEXT_FILE_NUMBER: max(last, NEW_MANIFEST_NUMBER) + 1,
        _Tag.LAST_SEQUENCE: 0,
        _Tag.TOP_FAMILY: len(families),
    }
    edits.append(b"".join(varint(tag) + varint(number) for tag, number in numbers.items()))
    return _framed(iter(edits))


def _new_file(file: ManifestFile) -> bytes:
    """A table file of which every entry is a put with sequence number 0."""
    numbers = b"".join(map(varint, (_Tag.NEW_FILE_4, file.level, file.number, file.size)))
    keys = b"".join(_text(key + _PUT_TRAILER) for key in (file.smallest, file.largest))
    sequences = varint(0) + varint(0)
    unique_id = b"" if file.unique_id is None else varint(_UNIQUE_ID) + _text(file.unique_id)
    return numbers + keys + sequences + unique_id + varint(_TERMINATE)


def _text(text: bytes) -> bytes:
    return varint(len(text)) + text


def changed_manifest(raw: bytes, renamed: Mapping[str, str], dropped: Set[str]) -> bytes:
    """A MANIFEST in which column families have other names, or are gone. Table files stay.

    Args:
        raw: The MANIFEST.
        renamed: Name to new name. Names that it lacks are ignored.
        dropped: Names of families without their files.

    Raises:
        FormatError: The file is damaged, or two families would have the same name.
    """
    families = read_manifest(raw).families
    ids = {
        family.id: renamed[family.name] for family in families.values() if family.name in renamed
    }
    gone = sorted(family.id for family in families.values() if family.name in dropped)
    left = [ids.get(key, each.name) for key, each in families.items() if key not in gone]
    if len(set(left)) < len(left):
        raise FormatError("Two column families would have the same name", got=sorted(left))

    def edits() -> Iterator[bytes]:
        for edit, offset in _edits(raw):
            fields = list(_Reader(edit, offset).fields())
            family_id = _family_of(fields)
            for tagged in reversed(fields):
                if tagged.tag == _Tag.FAMILY_ADD and family_id in ids:
                    name = ids[family_id].encode()
                    new = varint(_Tag.FAMILY_ADD) + varint(len(name)) + name
                    edit = edit[: tagged.start] + new + edit[tagged.end :]
            yield edit
        for key in gone:
            yield varint(_Tag.FAMILY) + varint(key) + varint(_Tag.FAMILY_DROP)

    return _framed(edits())


@dataclass(frozen=True)
class ChangedFile:
    """What a table file becomes that keeps its number and its level.

    Args:
        size: Its bytes.
        smallest: Its first key, with sequence number and kind.
        largest: Its last one.
        unique_id: What identifies its content.
    """

    size: int
    smallest: bytes
    largest: bytes
    unique_id: bytes


def compacted_manifest(
    raw: bytes,
    changed: Mapping[int, ChangedFile | None],
    added: Mapping[str, Sequence[ManifestFile]] = MappingProxyType({}),
) -> bytes:
    """A MANIFEST with the present files only, some of them changed.

    A MANIFEST has the first and the last key of each file that its database ever had since it was
    begun. This one has those of files that are there.

    Args:
        raw: The MANIFEST.
        changed: Number of a file to what it becomes; None leaves it out.
        added: New files of column families, whose entries all have sequence number 0.

    Raises:
        FormatError: The MANIFEST is damaged.
    """
    families, stored, tops = _present(raw)
    comparator = varint(_Tag.COMPARATOR) + _text(_COMPARATOR)
    edits = [comparator]
    for key, family in sorted(families.items()):
        named = varint(_Tag.FAMILY) + varint(key)
        if key:
            edits.append(comparator + named + varint(_Tag.FAMILY_ADD) + _text(family.name.encode()))
        files = []
        for number in family.files:
            if number not in changed:
                files.append(stored[key, number])
            elif (new := changed[number]) is not None:
                files.append(_Reader(stored[key, number], 0).changed_file(new))
        for file in added.get(family.name, ()):
            files.append(_new_file(file))
            tops[_Tag.NEXT_FILE_NUMBER] = max(tops[_Tag.NEXT_FILE_NUMBER], file.number + 1)
        edits.append(varint(_Tag.LOG_NUMBER) + varint(0) + b"".join(files) + named)
    numbers = {_Tag.LOG_NUMBER: 0, _Tag.PREV_LOG_NUMBER: 0, **tops}
    edits.append(b"".join(varint(tag) + varint(number) for tag, number in numbers.items()))
    return _framed(iter(edits))


_Stored = dict[tuple[int, int], bytes]
"""Files as a MANIFEST has them, by family and number."""


def _present(raw: bytes) -> tuple[Mapping[int, ColumnFamily], _Stored, dict[_Tag, int]]:
    """The families of a MANIFEST, what it says of their files, and its largest numbers."""
    tops = dict.fromkeys((_Tag.NEXT_FILE_NUMBER, _Tag.LAST_SEQUENCE, _Tag.TOP_FAMILY), 0)
    stored: _Stored = {}
    for edit, offset in _edits(raw):
        fields = list(_Reader(edit, offset).fields())
        family_id = _family_of(fields)
        for tagged in fields:
            if tagged.tag in tops:
                tops[_Tag(tagged.tag)] = max(tops[_Tag(tagged.tag)], tagged.numbers[0])
            elif tagged.tag in _NEW_FILES:
                # The same file may move to another level: the last one counts.
                stored[family_id, tagged.numbers[1]] = edit[tagged.start : tagged.end]
    return read_manifest(raw).families, stored, tops


def joined_manifest(
    parts: Sequence[tuple[bytes, Mapping[int, int]]], names: Sequence[str]
) -> bytes:
    """The MANIFEST of a database with the column families of several ones.

    Args:
        parts: MANIFESTs, each with the new numbers of its table files.
        names: The families that the database has. Those of the first MANIFEST keep their ids, and
            one that no MANIFEST has is empty.

    Raises:
        FormatError: A MANIFEST is damaged, or two have a family of the same name.
    """
    comparator = varint(_Tag.COMPARATOR) + _text(_COMPARATOR)
    tops = dict.fromkeys((_Tag.NEXT_FILE_NUMBER, _Tag.LAST_SEQUENCE, _Tag.TOP_FAMILY), 0)
    members: dict[int, tuple[str, bytes]] = {0: (_DEFAULT, b"")}
    for raw, numbers in parts:
        families, stored, own_tops = _present(raw)
        tops = {tag: max(number, own_tops[tag]) for tag, number in tops.items()}
        for key, family in families.items():
            if family.name in names:
                new = key if members.keys().isdisjoint({key}) else 1 + max(members)
                files = (
                    _Reader(stored[key, number], 0).renumbered(numbers[number])
                    for number in family.files
                )
                members[new] = family.name, b"".join(files)
        tops[_Tag.NEXT_FILE_NUMBER] = max(
            [tops[_Tag.NEXT_FILE_NUMBER], *(number + 1 for number in numbers.values())]
        )
    known = [name for name, _ in members.values()]
    if len({*known}) < len(known):
        raise FormatError("Two column families would have the same name", got=sorted(known))
    for name in names:
        if name not in known:
            members[1 + max(members)] = name, b""
    edits = [comparator]
    for key, (name, new_files) in sorted(members.items()):
        named = varint(_Tag.FAMILY) + varint(key)
        if key:
            edits.append(comparator + named + varint(_Tag.FAMILY_ADD) + _text(name.encode()))
        edits.append(varint(_Tag.LOG_NUMBER) + varint(0) + new_files + named)
    tops[_Tag.TOP_FAMILY] = max(tops[_Tag.TOP_FAMILY], *members)
    tops |= {_Tag.LOG_NUMBER: 0, _Tag.PREV_LOG_NUMBER: 0}
    edits.append(b"".join(varint(tag) + varint(number) for tag, number in tops.items()))
    return _framed(iter(edits))


def named_keys(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """The keys that a MANIFEST names, each with the id of its column family: first and last keys of
    all files that the database ever had, and where compactions go on.

    Raises:
        FormatError: The file is damaged.
    """
    for edit, offset in _edits(raw):
        fields = list(_Reader(edit, offset).fields())
        family_id = _family_of(fields)
        for tagged in fields:
            if tagged.tag == _Tag.COMPACT_CURSOR:
                yield family_id, tagged.text[:-_TRAILER_BYTES]
            for key in tagged.keys:
                yield family_id, key
