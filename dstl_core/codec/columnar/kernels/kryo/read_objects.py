"""Reads a value of Kryo 2.24 onto a tape: one entry per object, with the addresses of its parts.

An entry stands for an object, so objects that are referred to twice have one entry. A value
that the kernel does not know is unsupported. It never decides that bytes are wrong.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.hashing import equal_bytes
from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.kryo import codes as k
from dstl_core.codec.columnar.kernels.kryo.codes import (
    has,
    push,
    slot_of,
    stop,
    take8,
    unsupported,
)
from dstl_core.codec.columnar.kernels.memory import get64, load8, load16, load32, load64, put64
from dstl_core.codec.columnar.kernels.text import skip_if_ascii

NULL_CLASS = -2
KNOWN = 1
"""Beside the address of an entry: nothing of it is left to read here."""


@kernel
def take_varint(c: int) -> int:
    """A number of at most 32 bits, or -1."""
    number = 0
    for i in range(5):
        byte = take8(c)
        if byte < 0:
            return -1
        number |= (byte & 0x7F) << 7 * i
        if byte < k.MORE:
            return number & 0xFFFFFFFF
    return unsupported(c)


@kernel
def take_varlong(c: int) -> int:
    """Reads a varint of up to 64 bits; the ninth byte has 8. If bytes lack, it is unsupported."""
    number = 0
    for i in range(8):
        byte = take8(c)
        if byte < 0:
            return 0
        number |= (byte & 0x7F) << 7 * i
        if byte < k.MORE:
            return number
    byte = take8(c)
    if byte < 0:
        return 0
    return number | byte << 56


@kernel
def zigzag(c: int) -> int:
    number = take_varint(c)
    return 0 if number < 0 else (number >> 1) ^ -(number & 1)


@kernel
def zigzag_long(c: int) -> int:
    number = take_varlong(c)
    return ((number >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(number & 1)


@kernel
def read_class(c: int) -> int:
    """The number of a class; ``NULL_CLASS`` for null."""
    number = take_varint(c)
    if number < 0:
        return -1
    if number == 0:
        return NULL_CLASS
    if number > 1:
        registered = get64(c + k.REGISTERED)
        if number - 2 >= get64(registered):
            return unsupported(c)
        known = get64(registered + 8 * (number - 1))
        return unsupported(c) if known < 0 else known
    name = take_varint(c)
    count = get64(c + k.NAME_COUNT)
    names = get64(c + k.NAMES)
    if name < 0 or name > count or count == k.MAX_NAMES:
        return unsupported(c)
    if name < count:
        return get64(names + 8 * name)
    known = find_class(c)
    if known >= 0:
        put64(names + 8 * count, known)
        put64(c + k.NAME_COUNT, count + 1)
    return known


@kernel
def find_class(c: int) -> int:
    """Reads a class name of ASCII."""
    start = get64(c + k.AT)
    at = start
    end = get64(c + k.END)
    while at < end and load8(at) < k.MORE:
        at += 1
    if at >= end or at == start:
        return unsupported(c)
    size = at + 1 - start
    classes = get64(c + k.CLASSES)
    for number in range(get64(c + k.CLASS_COUNT)):
        known = classes + k.CLASS_BYTES * number
        if get64(known + 8) == size and equal_bytes(get64(known), start, size):
            put64(c + k.AT, at + 1)
            return number
    return stop(c, k.NEED_CLASS, start, size)


# ----------------------------------------------------------------------------------- scalars


@kernel
def read_text(c: int, entry: int) -> int:
    """Start, bytes, form and units of a text that is not null."""
    start = get64(c + k.AT)
    end = get64(c + k.END)
    if start >= end:
        return unsupported(c)
    if load8(start) < k.MORE:
        at = start + 1
        while at < end and load8(at) < k.MORE:
            at += 1
        if at >= end:
            return unsupported(c)
        size = at + 1 - start
        put64(c + k.AT, at + 1)
        put64(entry, start)
        put64(entry + 8, size)
        put64(entry + 16, k.MARKED)
        put64(entry + 24, size)
        return 0
    first = take8(c)
    count = first & 0x3F
    if first & 0x40:
        for i in range(4):
            byte = take8(c)
            if byte < 0 or (i == 3 and byte >= k.MORE):
                return unsupported(c)
            count |= (byte & 0x7F) << 7 * i + 6
            if byte < k.MORE:
                break
    if count == 0 or not has(c, count - 1):
        return unsupported(c)
    count -= 1
    start = get64(c + k.AT)
    put64(entry, start)
    put64(entry + 24, count)
    put64(entry + 16, k.ASCII)
    if not skip_if_ascii(start, count):
        put64(entry + 16, k.UNITS)
        at = skip_units(start, end, count)
        if at < 0:
            return unsupported(c)
        put64(entry + 8, at - start)
        put64(c + k.AT, at)
        return 0
    put64(entry + 8, count)
    put64(c + k.AT, start + count)
    return 0


@kernel
def skip_units(at: int, end: int, count: int) -> int:
    """The end of ``count`` UTF-16 units of 1 to 3 bytes in their shortest form, or -1."""
    for _ in range(count):
        if at >= end:
            return -1
        byte = load8(at)
        if byte < 0x80:
            at += 1
            continue
        more = 1 if byte >> 5 == 0b110 else 2
        if more == 2 and byte >> 4 != 0b1110:
            return -1
        if end - at <= more:
            return -1
        for i in range(1, more + 1):
            if load8(at + i) & 0xC0 != 0x80:
                return -1
        if (more == 1 and byte < 0xC2) or (byte == 0xE0 and load8(at + 1) < 0xA0):
            return -1
        at += more + 1
    return at


@kernel
def read_fixed(c: int, size: int) -> int:
    """A number of fixed width; for 8 bytes, its bits."""
    if not has(c, size):
        unsupported(c)
        return 0
    at = get64(c + k.AT)
    put64(c + k.AT, at + size)
    if size == 1:
        return load8(at)
    if size == 2:
        return load16(at)
    if size == 4:
        return load32(at)
    return load64(at)


@kernel
def read_small(c: int, kind: int) -> int:
    """A scalar of one word."""
    if kind == k.BOOLEAN:
        return 1 if read_fixed(c, 1) != 0 else 0
    if kind == k.BYTE:
        return read_fixed(c, 1)
    if kind == k.CHAR or kind == k.SHORT:
        return read_fixed(c, 2)
    if kind == k.INT:
        return zigzag(c)
    if kind == k.LONG:
        return zigzag_long(c)
    if kind == k.FLOAT:
        return read_fixed(c, 4)
    if kind == k.DOUBLE:
        return read_fixed(c, 8)
    return take_varlong(c)


@kernel
def read_big_integer(c: int, entry: int) -> int:
    """Start and size of the shortest bytes of a number."""
    size = take_varint(c) - 1
    if size <= 0 or not has(c, size):
        return unsupported(c)
    start = get64(c + k.AT)
    if size > 1:
        first = load8(start)
        second = load8(start + 1)
        if (first == 0 and second < 0x80) or (first == 0xFF and second >= 0x80):
            return unsupported(c)
    put64(entry, start)
    put64(entry + 8, size)
    put64(c + k.AT, start + size)
    return 0


@kernel
def read_date(c: int, entry: int) -> int:
    day = read_fixed(c, 2)
    month = read_fixed(c, 2)
    put64(entry, zigzag(c))
    put64(entry + 8, month)
    put64(entry + 16, day)
    if month < 1 or month > 12 or day < 1 or day > 31:
        return unsupported(c)
    return 0


@kernel
def read_time(c: int, entry: int) -> int:
    hour = read_fixed(c, 1)
    minute = read_fixed(c, 1)
    nano = zigzag(c)
    second = read_fixed(c, 1)
    put64(entry, hour)
    put64(entry + 8, minute)
    put64(entry + 16, second)
    put64(entry + 24, nano)
    if hour >= 24 or minute >= 60 or second >= 60 or nano < 0 or nano >= 1_000_000_000:
        return unsupported(c)
    return 0


@kernel
def number_kind(kind: int) -> int:
    """The kind of the number that an optional one holds."""
    if kind == k.MAYBE_INT:
        return k.INT
    return k.LONG if kind == k.MAYBE_LONG else k.DOUBLE


@kernel
def read_scalar(c: int, kind: int, entry: int) -> int:
    """Reads the contents of a scalar: up to four words."""
    if kind == k.TEXT:
        return read_text(c, entry)
    if kind <= k.DOUBLE or kind == k.MILLIS:
        put64(entry, read_small(c, kind))
    elif kind == k.BIG_INTEGER:
        return read_big_integer(c, entry)
    elif kind == k.BIG_DECIMAL:
        if read_big_integer(c, entry) < 0:
            return -1
        put64(entry + 16, zigzag(c))
    elif kind == k.UUID:
        put64(entry, zigzag_long(c))
        put64(entry + 8, zigzag_long(c))
    elif kind == k.DATE:
        return read_date(c, entry)
    elif kind == k.TIME:
        return read_time(c, entry)
    elif kind == k.INSTANT or kind == k.DURATION:
        put64(entry + 8, zigzag(c))
        put64(entry, zigzag_long(c))
    elif kind == k.PERIOD:
        put64(entry + 16, zigzag(c))
        put64(entry + 8, zigzag(c))
        put64(entry, zigzag(c))
    elif kind == k.YEAR or kind == k.OFFSET:
        put64(entry, zigzag(c))
    elif kind == k.YEAR_MONTH or kind == k.MONTH_DAY:
        put64(entry + 8, zigzag(c))
        put64(entry, zigzag(c))
    elif kind == k.TIMESTAMP:
        millis = take_varlong(c)
        put64(entry, millis - millis % 1000)
        put64(entry + 8, take_varint(c))
    elif kind == k.ATOMIC_FLAG:
        put64(entry, 1 if zigzag(c) != 0 else 0)
    elif k.MAYBE_INT <= kind <= k.MAYBE_DOUBLE:
        put64(entry, read_small(c, k.BOOLEAN))
        put64(entry + 8, read_small(c, number_kind(kind)))
    else:
        return unsupported(c)
    return 0 if get64(c + k.STATUS) == k.DONE else -1


# ----------------------------------------------------------------------------------- objects


@kernel
def count_parts(c: int, body: int) -> int:
    """How many parts an object has, whose bytes start here; -1 if it is unsupported."""
    kind = get64(body + k.KIND)
    comparator = get64(body + k.COMPARATOR)
    if comparator == k.FIXED_COUNT:
        return get64(body + k.NULLS)
    if kind != k.ITEMS and kind != k.PAIRS and kind != k.PRIMITIVES:
        return unsupported(c)
    parts = take_varint(c)
    if comparator == k.PLUS_ONE:
        parts -= 1
    size = parts * (2 if kind == k.PAIRS else 1)
    if parts < 0 or not has(c, size):
        return unsupported(c)
    if comparator == k.ELEMENT_CLASS and read_class(c) == -1:
        return -1
    return size


@kernel
def open_entry(c: int, cls: int, body: int, parts: int, words: int) -> int:
    """A new entry on the tape, not complete."""
    entry = get64(c + k.TAPE_AT)
    after = entry + k.ENTRY_BYTES + 8 * words
    if after > get64(c + k.TAPE_END):
        return stop(c, k.NEED_TAPE, after - entry, 0)
    put64(c + k.TAPE_AT, after)
    put64(entry, cls)
    put64(entry + k.ENTRY_NUMBER, -1)
    put64(entry + k.ENTRY_KIND, 0)
    put64(entry + k.ENTRY_COUNT, parts)
    put64(entry + k.ENTRY_BODY, body)
    return entry


@kernel
def known_object(c: int, number: int, cls: int) -> int:
    """The entry of an object that was read before, or is being read, plus ``KNOWN``."""
    count = get64(c + k.OBJECT_COUNT)
    references = get64(c + k.REFERENCES) + 1
    put64(c + k.REFERENCES, references)
    if number >= count or references * count > k.MAX_SHARED:
        return unsupported(c)
    entry = get64(get64(c + k.OBJECTS) + 8 * number)
    return unsupported(c) if entry == 0 or get64(entry) != cls else entry + KNOWN


@kernel
def reserve_object(c: int) -> int:
    """The place of the next object in the table of objects."""
    count = get64(c + k.OBJECT_COUNT)
    if count == k.MAX_OBJECTS:
        return unsupported(c)
    put64(c + k.OBJECT_COUNT, count + 1)
    place = get64(c + k.OBJECTS) + 8 * count
    put64(place, 0)  # until there is an entry
    return place


@kernel
def body_of(c: int, cls: int, arguments: int) -> int:
    """How a class is stored, or -1."""
    bodies = get64(c + k.BODIES)
    number = cls * k.MAX_ARGUMENTS + arguments
    body = get64(bodies + 8 * number)
    return stop(c, k.NEED_BODY, number, bodies) if body == 0 else body


@kernel
def read_comparator(c: int) -> int:
    """Reads an object without fields. Returns its entry, 0 for null, or -1."""
    cls = read_class(c)
    if cls == NULL_CLASS:
        return 0
    body = -1 if cls < 0 else body_of(c, cls, 0)
    if body < 0:
        return -1
    if get64(body) != k.FIELDS or get64(body + k.NULLS) != 0:
        return unsupported(c)
    reference = take_varint(c)
    if reference > 1:
        known = known_object(c, reference - 2, cls)
        return known if known < 0 else known - KNOWN
    place = reserve_object(c) if reference == 1 else unsupported(c)
    entry = -1 if place < 0 else open_entry(c, cls, body, 0, 0)
    if entry > 0:
        put64(entry + k.ENTRY_KIND, k.FIELDS)
        put64(place, entry)
    return entry


@kernel
def read_enum_set(c: int, cls: int, body: int) -> int:
    """The entry of a set of constants, or -1."""
    enum = read_class(c)
    constants = unsupported(c) if enum < 0 else body_of(c, enum, 0)
    if constants < 0:
        return -1
    count = take_varint(c)
    if get64(constants) != k.CONSTANT or count < 0 or not has(c, count):
        return unsupported(c)
    entry = open_entry(c, cls, body, count, count + 1)
    if entry < 0:
        return -1
    content = entry + k.ENTRY_BYTES
    put64(content, enum)
    for at in range(1, count + 1):
        ordinal = take_varint(c) - 1
        if ordinal < 0 or ordinal >= get64(constants + k.NULLS):
            return unsupported(c)
        put64(content + 8 * at, ordinal)
    put64(entry + k.ENTRY_KIND, k.ENUM_SET)
    return entry


@kernel
def begin_object(c: int, mode: int, cls: int, arguments: int) -> int:
    """Reads an object up to its parts. Returns its entry, 0 for null, or -1; ``KNOWN`` is added to
    the entry of an object that was read before.
    """
    if mode == k.DYNAMIC:
        cls = read_class(c)
        if cls == NULL_CLASS:
            return 0
        if cls < 0:
            return -1
    body = body_of(c, cls, arguments)
    if body < 0:
        return -1
    kind = get64(body)
    if kind == k.NONE:
        return unsupported(c)
    place = 0
    if get64(body + k.FLAGS) & k.PLAIN == 0:
        reference = take_varint(c)
        if reference <= 0:
            return reference
        if reference > 1:
            return known_object(c, reference - 2, cls)
        place = reserve_object(c)
        if place < 0:
            return -1
    elif mode == k.FINAL:
        flag = take8(c)
        if flag <= 0:
            return flag
    if kind == k.SCALAR or kind == k.CONSTANT:
        entry = open_entry(c, cls, body, 0, k.SCALAR_WORDS)
        if entry < 0 or read_leaf(c, body, entry) < 0:
            return -1
    elif kind == k.ENUM_SET:
        entry = read_enum_set(c, cls, body)
        if entry < 0:
            return -1
    else:
        is_compared = get64(body + k.COMPARATOR) == k.COMPARED
        comparator = read_comparator(c) if is_compared else 0
        parts = unsupported(c) if place == 0 or comparator < 0 else count_parts(c, body)
        words = parts + 1 if is_compared else parts
        entry = -1 if parts < 0 else open_entry(c, cls, body, parts, words)
        if entry < 0:
            return -1
        if is_compared:
            put64(entry + k.ENTRY_BYTES + 8 * parts, comparator)
    if place != 0:
        put64(place, entry)
    return entry


@kernel
def next_object(c: int, frame: int) -> int:
    """Reads primitive parts of the object of a frame; returns the slot of the next one, 0 at the
    end, or -1.
    """
    entry = get64(frame)
    body = get64(entry + k.ENTRY_BODY)
    parts = get64(entry + k.ENTRY_COUNT)
    part = get64(frame + 8)
    while part < parts:
        slot = slot_of(body, part)
        if get64(slot) != k.PRIMITIVE:
            put64(frame + 8, part)
            return slot
        put64(entry + k.ENTRY_BYTES + 8 * part, read_small(c, get64(slot + 8)))
        if get64(c + k.STATUS) != k.DONE:
            return -1
        part += 1
    put64(entry + k.ENTRY_KIND, get64(body))
    return 0


@kernel
def read_object(c: int) -> int:
    """Reads an object from its class on. Returns its entry, 0 for null, or -1."""
    depth = 0
    frame = 0
    entry = begin_object(c, k.DYNAMIC, 0, 0)
    while True:
        if entry < 0:
            return -1
        slot = 0
        closes = False  # whether the object of the frame is complete
        if entry > 0 and entry & KNOWN != 0:
            entry -= KNOWN
        elif entry > 0 and get64(entry + k.ENTRY_KIND) == 0:
            depth += 1
            frame = push(c, k.READING, depth, entry, 0, 0, 0)
            if frame < 0:
                return -1
            slot = next_object(c, frame)
            closes = True
        while slot == 0:  # the object is complete
            if closes:
                depth -= 1
                frame -= k.FRAME_BYTES
            if depth == 0:
                return entry
            part = get64(frame + 8)
            put64(get64(frame) + k.ENTRY_BYTES + 8 * part, entry)
            put64(frame + 8, part + 1)
            slot = next_object(c, frame)
            closes = True
            if slot == 0:
                entry = get64(frame)
        if slot < 0:
            return -1
        entry = begin_object(c, get64(slot), get64(slot + 8), get64(slot + 16))


@kernel
def read_leaf(c: int, body: int, entry: int) -> int:
    """Reads an object without parts."""
    kind = get64(body)
    content = entry + k.ENTRY_BYTES
    if kind == k.CONSTANT:
        ordinal = take_varint(c) - 1
        if ordinal < 0 or ordinal >= get64(body + k.NULLS):
            return unsupported(c)
        put64(content, ordinal)
    elif read_scalar(c, get64(body + k.COMPARATOR), content) < 0:
        return -1
    put64(entry + k.ENTRY_KIND, kind)
    return 0


@kernel
def read_value(c: int, registered: int, bodies: int) -> int:
    """Reads a value from its class on: names and references start afresh."""
    put64(c + k.REGISTERED, registered)
    put64(c + k.BODIES, bodies)
    put64(c + k.TAPE_AT, get64(c + k.TAPE))
    for word in (k.NAME_COUNT, k.OBJECT_COUNT, k.REFERENCES):
        put64(c + word, 0)
    return read_object(c)
