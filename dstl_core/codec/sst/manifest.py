"""RocksDB's MANIFEST: which column families a database has, and which table files belong to each.

A MANIFEST is a list of edits (``manifest_edits``), which apply in order. An edit belongs to one
column family, the default one if it names none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType

from dstl_core.codec.sst.block import varint
from dstl_core.codec.sst.manifest_edits import (
    NEW_FILES,
    NO_UNIQUE_ID,
    TERMINATE,
    TRAILER_BYTES,
    UNIQUE_ID,
    EditField,
    EditReader,
    EditTag,
    edits_of,
    framed,
    sized_text,
)
from dstl_core.errors import FormatError

_COMPARATOR = b"leveldb.BytewiseComparator"
_DEFAULT = "default"
_PUT_TRAILER = (1).to_bytes(8, "little")
NEW_MANIFEST_NUMBER = 4
"""The number of a new MANIFEST; its table files have larger ones."""


KeyRange = tuple[bytes, bytes | None]
"""The first key, and the first one behind the last; None: there is no key behind."""


def starting_with(prefix: bytes) -> KeyRange:
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
    for edit, offset in edits_of(raw):
        last_left = _apply(families, edit, offset)
    if last_left:
        raise FormatError(
            "A MANIFEST ends within a group of edits", expected=f"{last_left} more", got="its end"
        )
    return Manifest(families)


def _apply(families: dict[int, ColumnFamily], edit: bytes, offset: int) -> int:
    """Applies an edit; returns how many edits of its group follow."""
    fields = list(EditReader(edit, offset).fields())
    left = 0
    family_id = _family_of(fields)
    for tagged in fields:
        match tagged.tag:
            case EditTag.COMPARATOR if tagged.text != _COMPARATOR:
                raise FormatError(
                    "A column family is not sorted by bytes",
                    offset=offset,
                    expected=_COMPARATOR.decode(),
                    got=tagged.text[:80],
                )
            case EditTag.FAMILY_ADD:
                if family_id in families:
                    raise _wrong_family("is added twice", family_id, offset)
                families[family_id] = ColumnFamily(family_id, _name(tagged.text, offset))
            case EditTag.FAMILY_DROP:
                if families.pop(family_id, None) is None:
                    raise _wrong_family("is dropped and not there", family_id, offset)
            case EditTag.ATOMIC_GROUP:
                [left] = tagged.numbers
    if family_id in families:
        _apply_files(families[family_id], fields, offset)
    elif any(each.tag in NEW_FILES for each in fields):
        raise _wrong_family("gets a file and is not there", family_id, offset)
    return left


def _family_of(fields: list[EditField]) -> int:
    """The family of an edit: the default one if it names none."""
    named = [each.numbers[0] for each in fields if each.tag == EditTag.FAMILY]
    return named[-1] if named else 0


def _apply_files(family: ColumnFamily, fields: list[EditField], offset: int) -> None:
    # Deletions come first, wherever they are: a file may move to another level within an edit.
    for tagged in fields:
        if tagged.tag == EditTag.DELETED_FILE:
            level, number = tagged.numbers
            deleted = family.files.pop(number, None)
            if deleted is None or deleted.level != level:
                raise FormatError(
                    "A MANIFEST deletes a table file that is not there",
                    offset=offset,
                    got=f"file {number} of level {level}",
                )
    for tagged in fields:
        if tagged.tag in NEW_FILES:
            level, number, size = tagged.numbers
            if number in family.files:
                raise FormatError(
                    "A MANIFEST adds a table file twice", offset=offset, got=f"file {number}"
                )
            smallest, largest = tagged.keys
            unique_id = None if tagged.text == NO_UNIQUE_ID else tagged.text
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


def new_manifest(families: Mapping[str, Sequence[ManifestFile]]) -> bytes:
    """The MANIFEST of a database whose every entry has sequence number 0.

    Args:
        families: Column families with their table files, which are of level 1 or more; the ids of
            families count from 1.
    """
    edits = [varint(EditTag.COMPARATOR) + sized_text(_COMPARATOR)]
    last = 0
    for family_id, (name, files) in enumerate(families.items(), 1):
        family = varint(EditTag.FAMILY) + varint(family_id)
        added = varint(EditTag.FAMILY_ADD) + sized_text(name.encode())
        edits.append(varint(EditTag.COMPARATOR) + sized_text(_COMPARATOR) + family + added)
        new_files = b"".join(map(_new_file, files))
        edits.append(varint(EditTag.LOG_NUMBER) + varint(0) + new_files + family)
        last = max([last, *(file.number for file in files)])
    numbers = {
        EditTag.LOG_NUMBER: 0,
        EditTag.PREV_LOG_NUMBER: 0,
        EditTag.NEXT_FILE_NUMBER: max(last, NEW_MANIFEST_NUMBER) + 1,
        EditTag.LAST_SEQUENCE: 0,
        EditTag.TOP_FAMILY: len(families),
    }
    edits.append(b"".join(varint(tag) + varint(number) for tag, number in numbers.items()))
    return framed(iter(edits))


def _new_file(file: ManifestFile) -> bytes:
    """A table file of which every entry is a put with sequence number 0."""
    numbers = b"".join(map(varint, (EditTag.NEW_FILE_4, file.level, file.number, file.size)))
    keys = b"".join(sized_text(key + _PUT_TRAILER) for key in (file.smallest, file.largest))
    sequences = varint(0) + varint(0)
    unique_id = b"" if file.unique_id is None else varint(UNIQUE_ID) + sized_text(file.unique_id)
    return numbers + keys + sequences + unique_id + varint(TERMINATE)


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
        for edit, offset in edits_of(raw):
            fields = list(EditReader(edit, offset).fields())
            family_id = _family_of(fields)
            for tagged in reversed(fields):
                if tagged.tag == EditTag.FAMILY_ADD and family_id in ids:
                    name = ids[family_id].encode()
                    new = varint(EditTag.FAMILY_ADD) + varint(len(name)) + name
                    edit = edit[: tagged.start] + new + edit[tagged.end :]
            yield edit
        for key in gone:
            yield varint(EditTag.FAMILY) + varint(key) + varint(EditTag.FAMILY_DROP)

    return framed(edits())


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
    comparator = varint(EditTag.COMPARATOR) + sized_text(_COMPARATOR)
    edits = [comparator]
    for key, family in sorted(families.items()):
        named = varint(EditTag.FAMILY) + varint(key)
        if key:
            edits.append(
                comparator + named + varint(EditTag.FAMILY_ADD) + sized_text(family.name.encode())
            )
        files = []
        for number in family.files:
            if number not in changed:
                files.append(stored[key, number])
            elif (new := changed[number]) is not None:
                files.append(
                    EditReader(stored[key, number], 0).changed_file(
                        new.size, new.smallest, new.largest, new.unique_id
                    )
                )
        for file in added.get(family.name, ()):
            files.append(_new_file(file))
            tops[EditTag.NEXT_FILE_NUMBER] = max(tops[EditTag.NEXT_FILE_NUMBER], file.number + 1)
        edits.append(varint(EditTag.LOG_NUMBER) + varint(0) + b"".join(files) + named)
    numbers = {EditTag.LOG_NUMBER: 0, EditTag.PREV_LOG_NUMBER: 0, **tops}
    edits.append(b"".join(varint(tag) + varint(number) for tag, number in numbers.items()))
    return framed(iter(edits))


_Stored = dict[tuple[int, int], bytes]
"""Files as a MANIFEST has them, by family and number."""


def _present(raw: bytes) -> tuple[Mapping[int, ColumnFamily], _Stored, dict[EditTag, int]]:
    """The families of a MANIFEST, what it says of their files, and its largest numbers."""
    tops = dict.fromkeys((EditTag.NEXT_FILE_NUMBER, EditTag.LAST_SEQUENCE, EditTag.TOP_FAMILY), 0)
    stored: _Stored = {}
    for edit, offset in edits_of(raw):
        fields = list(EditReader(edit, offset).fields())
        family_id = _family_of(fields)
        for tagged in fields:
            if tagged.tag in tops:
                tops[EditTag(tagged.tag)] = max(tops[EditTag(tagged.tag)], tagged.numbers[0])
            elif tagged.tag in NEW_FILES:
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
    comparator = varint(EditTag.COMPARATOR) + sized_text(_COMPARATOR)
    tops = dict.fromkeys((EditTag.NEXT_FILE_NUMBER, EditTag.LAST_SEQUENCE, EditTag.TOP_FAMILY), 0)
    members: dict[int, tuple[str, bytes]] = {0: (_DEFAULT, b"")}
    for raw, numbers in parts:
        families, stored, own_tops = _present(raw)
        tops = {tag: max(number, own_tops[tag]) for tag, number in tops.items()}
        for key, family in families.items():
            if family.name in names:
                new = key if members.keys().isdisjoint({key}) else 1 + max(members)
                files = (
                    EditReader(stored[key, number], 0).renumbered(numbers[number])
                    for number in family.files
                )
                members[new] = family.name, b"".join(files)
        tops[EditTag.NEXT_FILE_NUMBER] = max(
            [tops[EditTag.NEXT_FILE_NUMBER], *(number + 1 for number in numbers.values())]
        )
    known = [name for name, _ in members.values()]
    if len({*known}) < len(known):
        raise FormatError("Two column families would have the same name", got=sorted(known))
    for name in names:
        if name not in known:
            members[1 + max(members)] = name, b""
    edits = [comparator]
    for key, (name, new_files) in sorted(members.items()):
        named = varint(EditTag.FAMILY) + varint(key)
        if key:
            edits.append(
                comparator + named + varint(EditTag.FAMILY_ADD) + sized_text(name.encode())
            )
        edits.append(varint(EditTag.LOG_NUMBER) + varint(0) + new_files + named)
    tops[EditTag.TOP_FAMILY] = max(tops[EditTag.TOP_FAMILY], *members)
    tops |= {EditTag.LOG_NUMBER: 0, EditTag.PREV_LOG_NUMBER: 0}
    edits.append(b"".join(varint(tag) + varint(number) for tag, number in tops.items()))
    return framed(iter(edits))


def named_keys(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """The keys that a MANIFEST names, each with the id of its column family: first and last keys of
    all files that the database ever had, and where compactions go on.

    Raises:
        FormatError: The file is damaged.
    """
    for edit, offset in edits_of(raw):
        fields = list(EditReader(edit, offset).fields())
        family_id = _family_of(fields)
        for tagged in fields:
            if tagged.tag == EditTag.COMPACT_CURSOR:
                yield family_id, tagged.text[:-TRAILER_BYTES]
            for key in tagged.keys:
                yield family_id, key
