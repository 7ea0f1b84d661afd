"""Converts sections of canonical keyed state whose values hold Kryo 2.24, from bytes to bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.columnar.kernels.kryo import codes as k
from dstl_core.codec.columnar.kernels.kryo import convert as ops
from dstl_core.codec.columnar.kernels.kryo import convert_sections as sections
from dstl_core.codec.columnar.kryo.scala_nodes import ScalaNodes
from dstl_core.codec.columnar.kryo.type_nodes import TypeNodes, Types
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.keyed_canonical import END_OF_KEY_GROUP_MARK, FIRST_BIT_MASK

_OUTPUT_BYTES = 1 << 20
_TAPE_BYTES = 1 << 16
_MOST_TAPE_BYTES = 64 << 20
_LONGEST_STREAK = 256
"""Records that are left to single objects before kernels try again."""
_STOPS_IN_A_ROW = 8
_LENGTH = struct.Struct(">i")
_END = END_OF_KEY_GROUP_MARK.to_bytes(2, "big")

ConvertOne = Callable[[int, bytes, bytes], tuple[bytes, bytes]]
"""Converts a record: gets the number of the state in the old header, the stored key and value."""


class Framing(IntEnum):
    """What a stored value is."""

    VALUE = ops.VALUE
    MAP_VALUE = ops.MAP_VALUE
    """A flag before the value says whether it is null."""
    ELEMENTS = ops.ELEMENTS
    """Elements with a byte between them."""


@dataclass(frozen=True)
class StoredKeyRule:
    """How stored keys change: behind the key group stand parts, each of a type before and after.

    ``classes`` are those of the new job, for types of Scala's API.
    """

    prefix_bytes: int
    parts: tuple[Types, ...]
    classes: JobClasses | None = None


@dataclass(frozen=True)
class SectionRule:
    """What happens to the records of a state.

    Args:
        number: Of the state in the new header; None leaves the state out.
        types: The types of values before and after; None copies the values.
        framing: What a stored value is.
        key: How stored keys change; None copies the keys.
        is_single: Whether each record is left to the conversion of single objects.
        classes: Those of the new job, for types of Scala's API.
    """

    number: int | None
    types: Types | None = None
    framing: Framing = Framing.VALUE
    key: StoredKeyRule | None = None
    is_single: bool = False
    classes: JobClasses | None = None


class SectionConverter:
    """Converts sections of one stream. Not thread-safe.

    A record that the kernels do not know goes to ``convert_one``, which also says what is wrong
    with a damaged one. Memory is bounded by the section before and after, and 64 MiB.

    Args:
        rules: One per state of the old header.
        convert_one: Converts a single record.
    """

    def __init__(self, rules: Sequence[SectionRule], convert_one: ConvertOne) -> None:
        self._convert_one = convert_one
        self._types = TypeNodes()
        self._states = np.zeros((len(rules), sections.STATE_BYTES // 8), np.int64)
        for state, rule in zip(self._states, rules, strict=True):
            if rule.number is None:
                continue
            state[:2] = sections.COPIED, rule.number
            if rule.is_single or rule.types is not None or rule.key is not None:
                state[0] = sections.CONVERTED
                state[sections.STATE_FRAMING // 8] = int(rule.framing)
                value, key = self._nodes(rule)
                state[sections.STATE_NODE // 8] = value
                state[sections.STATE_KEY // 8] = key
        self._block = np.zeros(k.CONTEXT_WORDS, np.int64)
        self._section = np.zeros(sections.SECTION_WORDS, np.int64)
        self._tables = {
            k.NAMES: np.zeros(k.MAX_NAMES, np.int64),
            k.OBJECTS: np.zeros(k.MAX_OBJECTS, np.int64),
            k.OUT_NAMES: np.zeros(k.MAX_CLASSES, np.int64),
            k.STACKS: np.zeros(k.WALKS * k.STACK_BYTES // 8, np.int64),
            k.MARKS: np.zeros((k.DEEPEST + 2) * (k.MAX_PARTS + 1), np.int64),
            k.CLASSES: self._types.classes.words,
        }
        for word, table in self._tables.items():
            self._set(word, address_of(table))
        self._grow_tape(_TAPE_BYTES)
        self._grow_output(_OUTPUT_BYTES)

    def _nodes(self, rule: SectionRule) -> tuple[int, int]:
        """The addresses of the nodes of values and keys; 0 for what is copied."""
        if rule.is_single:
            return address_of(self._types.unknown()), 0
        value = key = 0
        if rule.types is not None:
            value = address_of(self._node(rule.types, rule.classes))
        if rule.key is not None:
            parts = [self._node(each, rule.key.classes) for each in rule.key.parts]
            key = address_of(self._types.stored_key(rule.key.prefix_bytes, parts))
        return value, key

    def _node(self, types: Types, classes: JobClasses | None) -> Int64s:
        if classes is None:
            return self._types.converted(*types)
        return ScalaNodes(self._types, classes).of(*types)

    def converted(self, raw: bytes) -> tuple[bytes, dict[int, int]] | None:
        """The new section, and how many records of each state were converted.

        Returns:
            None if the section is damaged, or not as Flink writes it.
        """
        data = np.frombuffer(raw or b"\0", np.uint8)
        start = address_of(data)
        self._section[:] = start, start + len(raw), -1, 0, 0, -1
        self._states[:, sections.STATE_COUNT // 8] = 0
        parts: list[bytes] = []
        stops = 0
        status = k.NEED_OUTPUT
        while status != k.DONE:
            self._set(k.OUT, address_of(self._output))
            self._set(k.CLASS_COUNT, len(self._types.classes.names))
            status = sections.convert_section(
                address_of(self._block),
                address_of(self._section),
                address_of(self._states),
                len(self._states),
            )
            written = int(self._block[k.OUT // 8]) - address_of(self._output)
            if written:
                parts.append(self._output[:written].tobytes())
            if status == sections.DAMAGED:
                return None
            if status != k.DONE and not self._answered(data, status, written > 0):
                # What kernels do not know often comes in rows, and a kernel that stops costs time.
                stops = 0 if written else stops + 1
                most = 1 << max(0, stops - _STOPS_IN_A_ROW)
                self._leave(raw, start, min(most, _LONGEST_STREAK), parts)
        counts = self._states[:, sections.STATE_COUNT // 8].tolist()
        if parts:
            parts.append(_END)
        return b"".join(parts), {at: count for at, count in enumerate(counts) if count}

    def _leave(self, raw: bytes, origin: int, most: int, parts: list[bytes]) -> None:
        """Leaves records of a run from where the kernel stopped, and adds their bytes."""
        at, _, state, value, end, _ = (word - origin for word in self._section.tolist())
        state += origin
        mark = left = 0
        while not mark and left < most and end > 0:
            marked = raw[at + 4 : value - 4]
            mark = marked[0] & FIRST_BIT_MASK
            stored = bytes((marked[0] ^ mark,)) + marked[1:]
            key, new = self._convert_one(state, stored, raw[value:end])
            if mark:
                key = bytes((key[0] | mark,)) + key[1:]
            parts.append(_LENGTH.pack(len(key)) + key + _LENGTH.pack(len(new)) + new)
            left += 1
            at = end
            value, end = _next_record(raw, at)
        self._states[state, sections.STATE_COUNT // 8] += left
        self._section[0] = at + origin
        if mark:
            self._section[sections.SECTION_STATE // 8] = -1

    def _answered(self, data: npt.NDArray[np.uint8], status: int, has_progress: bool) -> bool:
        """Gives the kernel what it lacks; False if the value is to be converted on its own."""
        first, second = self._block[[k.FIRST_OPERAND // 8, k.SECOND_OPERAND // 8]].tolist()
        match status:
            case k.NEED_BODY:
                self._types.tables[second].add(first)
            case k.NEED_CLASS:
                start = first - address_of(data)
                return self._types.add_class(data[start : start + second].tobytes())
            case k.NEED_SUBCLASS:
                return self._types.add_subclass(first, second)
            case k.NEED_OUTPUT:
                if not has_progress:
                    self._grow_output(2 * len(self._output) + first)
            case k.NEED_TAPE:
                size = self._tape.nbytes
                if size >= _MOST_TAPE_BYTES:
                    return False
                self._grow_tape(min(_MOST_TAPE_BYTES, 2 * (size + first)))
            case _:
                return False
        return True

    def _grow_tape(self, size: int) -> None:
        self._tape = np.empty(size // 8, np.int64)
        self._set(k.TAPE, address_of(self._tape))
        self._set(k.TAPE_END, address_of(self._tape) + self._tape.nbytes)

    def _grow_output(self, size: int) -> None:
        self._output = np.empty(size, np.uint8)
        self._set(k.OUT_END, address_of(self._output) + size)

    def _set(self, word: int, value: int) -> None:
        self._block[word // 8] = value


def _next_record(raw: bytes, at: int) -> tuple[int, int]:
    """Where the value of the record at a place begins and ends; 0 if that is for kernels to say."""
    try:
        (key_size,) = _LENGTH.unpack_from(raw, at)
        value = at + 8 + key_size
        (size,) = _LENGTH.unpack_from(raw, value - 4)
    except struct.error:
        return 0, 0
    is_whole = key_size > 0 and size >= 0 and value + size <= len(raw)
    return (value, value + size) if is_whole else (0, 0)
