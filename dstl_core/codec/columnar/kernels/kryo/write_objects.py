"""Writes entries of the tape as Kryo 5 does."""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.kryo import codes as k
from dstl_core.codec.columnar.kernels.kryo.codes import (
    give8,
    push,
    room,
    slot_of,
    stop,
    unsupported,
)
from dstl_core.codec.columnar.kernels.memory import (
    copy,
    get64,
    load8,
    put8,
    put16,
    put32,
    put64,
)

LONGEST_ASCII = 32
LARGEST_OFFSET = 18 * 3600
VARIED = 4
"""Each part stands as its slot says."""
NOTHING = 5
"""Nothing more is written."""


@kernel
def give_varint(c: int, value: int) -> int:
    if not room(c, 5):
        return -1
    out = get64(c + k.OUT)
    value &= 0xFFFFFFFF
    while value >= k.MORE:
        put8(out, value & 0x7F | k.MORE)
        out += 1
        value >>= 7
    put8(out, value)
    put64(c + k.OUT, out + 1)
    return 0


@kernel
def give_varlong(c: int, value: int) -> int:
    if not room(c, 9):
        return -1
    out = get64(c + k.OUT)
    for _ in range(8):
        if 0 <= value < k.MORE:
            break
        put8(out, value & 0x7F | k.MORE)
        out += 1
        value = (value >> 7) & 0x01FFFFFFFFFFFFFF
    put8(out, value)
    put64(c + k.OUT, out + 1)
    return 0


@kernel
def give_count(c: int, count: int, flag: int) -> int:
    """A count with a flag in the highest bit of its first byte."""
    if not room(c, 6):
        return -1
    out = get64(c + k.OUT)
    rest = count >> 6
    put8(out, count & 0x3F | (k.MORE if flag != 0 else 0) | (0x40 if rest != 0 else 0))
    out += 1
    while rest != 0:
        put8(out, rest & 0x7F | (k.MORE if rest >= k.MORE else 0))
        out += 1
        rest >>= 7
    put64(c + k.OUT, out)
    return 0


@kernel
def give_bytes(c: int, start: int, size: int) -> int:
    if not room(c, size):
        return -1
    out = get64(c + k.OUT)
    copy(out, start, size)
    put64(c + k.OUT, out + size)
    return 0


@kernel
def give_fixed(c: int, value: int, size: int) -> int:
    """A number of fixed width, its lowest byte first."""
    if not room(c, size):
        return -1
    out = get64(c + k.OUT)
    if size == 1:
        put8(out, value)
    elif size == 2:
        put16(out, value)
    elif size == 4:
        put32(out, value)
    else:
        put64(out, value)
    put64(c + k.OUT, out + size)
    return 0


@kernel
def give_text(c: int, content: int) -> int:
    start = get64(content)
    size = get64(content + 8)
    form = get64(content + 16)
    units = get64(content + 24)
    if form != k.UNITS and 1 < units <= LONGEST_ASCII:
        if give_bytes(c, start, size) < 0:
            return -1
        last = get64(c + k.OUT) - 1
        put8(last, load8(last) | k.MORE)
        return 0
    if give_count(c, units + 1, 1) < 0 or give_bytes(c, start, size) < 0:
        return -1
    if form == k.MARKED:
        last = get64(c + k.OUT) - 1
        put8(last, load8(last) & 0x7F)
    return 0


@kernel
def give_small(c: int, kind: int, value: int) -> int:
    """A scalar of one word."""
    if kind == k.BOOLEAN or kind == k.BYTE:
        return give_fixed(c, value, 1)
    if kind == k.CHAR or kind == k.SHORT:
        return give_fixed(c, value, 2)
    if kind == k.INT:
        return give_varint(c, value << 1 ^ value >> 63)
    if kind == k.LONG:
        return give_varlong(c, value << 1 ^ value >> 63)
    if kind == k.FLOAT:
        return give_fixed(c, value, 4)
    if kind == k.DOUBLE:
        return give_fixed(c, value, 8)
    return give_varlong(c, value)


@kernel
def give_date(c: int, content: int) -> int:
    give_varint(c, get64(content))
    give_fixed(c, get64(content + 8), 1)
    return give_fixed(c, get64(content + 16), 1)


@kernel
def give_time(c: int, content: int) -> int:
    """Hour, minute, second, nanoseconds; the last part that is not 0 is inverted."""
    nano = get64(content + 24)
    last = 3
    if nano == 0:
        last = 2
        while last > 0 and get64(content + 8 * last) == 0:
            last -= 1
    for part in range(min(last, 2) + 1):
        value = get64(content + 8 * part)
        if give_fixed(c, ~value if part == last else value, 1) < 0:
            return -1
    return give_varint(c, nano) if nano != 0 else 0


@kernel
def give_scalar(c: int, kind: int, content: int) -> int:
    first = get64(content)
    second = get64(content + 8)
    if kind == k.TEXT:
        return give_text(c, content)
    if kind <= k.DOUBLE or kind == k.MILLIS:
        return give_small(c, kind, first)
    if kind == k.BIG_INTEGER or kind == k.BIG_DECIMAL:
        if give_varint(c, second + 1) < 0 or give_bytes(c, first, second) < 0:
            return -1
        return 0 if kind == k.BIG_INTEGER else give_small(c, k.INT, get64(content + 16))
    if kind == k.UUID:
        give_fixed(c, first, 8)
        return give_fixed(c, second, 8)
    if kind == k.DATE:
        return give_date(c, content)
    if kind == k.TIME:
        return give_time(c, content)
    if kind == k.INSTANT:
        give_varlong(c, first)
        return give_varint(c, second)
    if kind == k.DURATION:
        give_fixed(c, first, 8)
        return give_varint(c, second)
    if kind == k.PERIOD:
        give_varint(c, first)
        give_varint(c, second)
        return give_varint(c, get64(content + 16))
    if kind == k.YEAR:
        return give_varint(c, first)
    if kind == k.TIMESTAMP:
        give_varlong(c, first)
        return give_varint(c, second)
    if kind == k.OFFSET:
        return give_offset(c, first)
    if kind == k.ATOMIC_FLAG:
        return give_fixed(c, first, 1)
    if k.MAYBE_INT <= kind <= k.MAYBE_DOUBLE:
        give_fixed(c, first, 1)
        return 0 if first == 0 else give_fixed(c, second, 4 if kind == k.MAYBE_INT else 8)
    return give_two_parts(c, kind, first, second)


@kernel
def give_offset(c: int, seconds: int) -> int:
    """Quarters of an hour, or seconds."""
    if seconds < -LARGEST_OFFSET or seconds > LARGEST_OFFSET:
        return unsupported(c)
    if seconds % 900 == 0:
        return give_fixed(c, seconds // 900, 1)
    give_fixed(c, 127, 1)
    return give_fixed(c, seconds, 4)


@kernel
def give_two_parts(c: int, kind: int, first: int, second: int) -> int:
    """A year and a month, or a month and a day."""
    if second < 0 or second > 31:
        return unsupported(c)
    if kind == k.YEAR_MONTH:
        give_varint(c, first)
    elif kind == k.MONTH_DAY and 0 <= first <= 12:
        give_fixed(c, first, 1)
    else:
        return unsupported(c)
    return give_fixed(c, second, 1)


@kernel
def give_class(c: int, cls: int) -> int:
    cls = get64(get64(c + k.CLASSES) + k.CLASS_BYTES * cls + 16)
    ids = get64(c + k.IDS)
    number = get64(ids + 8 * cls)
    if number >= 0:
        return give_varint(c, number + 2)
    give8(c, 1)
    names = get64(c + k.OUT_NAMES)
    epoch = get64(c + k.EPOCH)
    known = get64(names + 8 * cls)
    if known >> 32 == epoch:
        return give_varint(c, known & 0xFFFFFFFF)
    count = get64(c + k.OUT_NAME_COUNT)
    put64(c + k.OUT_NAME_COUNT, count + 1)
    put64(names + 8 * cls, epoch << 32 | count)
    if give_varint(c, count) < 0:
        return -1
    address = get64(c + k.CLASSES) + k.CLASS_BYTES * cls
    return give_bytes(c, get64(address), get64(address + 8))


@kernel
def element_classes(entry: int) -> int:
    """The class of all elements that are there, -1 if there is none, -2 if there are several; 4
    times that, plus 1 if an element is null.
    """
    cls = -1
    null = 0
    for part in range(get64(entry + k.ENTRY_COUNT)):
        item = get64(entry + k.ENTRY_BYTES + 8 * part)
        if item == 0:
            null = 1
        elif cls == -1:
            cls = get64(item)
        elif cls >= 0 and get64(item) != cls:
            cls = -2
    return 4 * cls + null


@kernel
def open_object(c: int, mode: int, entry: int, body: int) -> int:
    """Writes the header of the contents; returns 1 if nothing else follows."""
    if mode == k.DYNAMIC:
        give_class(c, get64(entry))
    if get64(body + k.FLAGS) != 0:
        return give8(c, 1) if mode == k.FINAL else 0
    known = get64(entry + k.ENTRY_NUMBER)
    epoch = get64(c + k.EPOCH)
    if known >> 32 == epoch:
        return -1 if give_varint(c, (known & 0xFFFFFFFF) + 2) < 0 else 1
    count = get64(c + k.OUT_OBJECT_COUNT)
    put64(c + k.OUT_OBJECT_COUNT, count + 1)
    put64(entry + k.ENTRY_NUMBER, epoch << 32 | count)
    return give8(c, 1)


@kernel
def begin_write(c: int, mode: int, arguments: int, entry: int) -> int:
    """Writes an object up to its parts; returns its body, 0 if it is complete, or -1."""
    if entry == 0:
        return unsupported(c) if mode == k.OBJECT else give8(c, 0)
    bodies = get64(c + k.OUT_BODIES)
    number = get64(entry) * k.MAX_ARGUMENTS + arguments
    body = get64(bodies + 8 * number)
    if body == 0:
        return stop(c, k.NEED_BODY, number, bodies)
    kind = get64(body)
    if kind != get64(entry + k.ENTRY_KIND):
        return unsupported(c)
    opened = open_object(c, mode, entry, body)
    if opened != 0:
        return min(opened, 0)
    content = entry + k.ENTRY_BYTES
    if kind == k.SCALAR:
        return give_scalar(c, get64(body + k.COMPARATOR), content)
    if kind == k.CONSTANT:
        return give_varint(c, get64(content) + 1)
    if kind == k.DATE_TIME:
        return give_date_time(c, entry)
    if kind == k.REGION:
        return give_region(c, entry)
    if kind == k.OFFSET_TIME:
        return give_offset_time(c, entry)
    if kind == k.ENUM_SET:
        return give_enum_set(c, content, get64(entry + k.ENTRY_COUNT))
    return give_zoned(c, entry) if kind == k.ZONED else body


@kernel
def give_comparator(c: int, entry: int) -> int:
    """The comparator of a sorted collection or map."""
    comparator = 0
    if get64(get64(entry + k.ENTRY_BODY) + k.COMPARATOR) == k.COMPARED:
        comparator = get64(entry + k.ENTRY_BYTES + 8 * get64(entry + k.ENTRY_COUNT))
    body = begin_write(c, k.DYNAMIC, 0, comparator)
    if body > 0 and (get64(body) != k.FIELDS or get64(body + k.NULLS) != 0):
        return unsupported(c)
    return min(body, 0)


@kernel
def open_items(c: int, body: int, entry: int) -> int:
    """Writes the header of a collection; returns the encoding of its elements."""
    count = get64(entry + k.ENTRY_COUNT)
    compared = get64(body + k.COMPARATOR)
    if compared == k.FIXED_COUNT:
        return k.DYNAMIC
    if compared == k.PLUS_ONE:  # an array
        return -1 if give_varint(c, count + 1) < 0 else get64(body + k.SLOTS)
    classes = element_classes(entry)
    null = classes & 1
    cls = classes >> 2
    final = get64(body + k.SLOTS) == k.FINAL
    nulls = get64(body + k.NULLS)
    if null != 0 and nulls == 0:
        return unsupported(c)
    flag = 0
    if count > 0 and (null != 0 if final else cls != -2):
        flag = 1
    if final and nulls == 0:
        give_varint(c, count + 1)
    else:
        give_count(c, count + 1, flag)
    if compared == k.COMPARED and give_comparator(c, entry) < 0:
        return -1
    if not final and flag == 0:
        return k.DYNAMIC
    if not final:
        if cls == -1:
            give8(c, 0)
            return NOTHING
        give_class(c, cls)
        if nulls != 0:
            give8(c, null)
    return k.FINAL if null != 0 else k.OBJECT


@kernel
def open_parts(c: int, body: int, entry: int) -> int:
    """Writes the header of a composite value. Returns the encoding that all parts share,
    ``VARIED`` if each slot has its own, or -1.
    """
    kind = get64(body)
    if kind == k.ITEMS:
        return open_items(c, body, entry)
    parts = get64(entry + k.ENTRY_COUNT)
    if kind == k.FIELDS and parts != get64(body + k.NULLS):
        return unsupported(c)
    if kind == k.PRIMITIVES:
        plus = 1 if get64(body + k.COMPARATOR) == k.PLUS_ONE else 0
        return -1 if give_varint(c, parts + plus) < 0 else k.PRIMITIVE
    if kind == k.PAIRS and get64(body + k.COMPARATOR) != k.FIXED_COUNT:
        give_varint(c, parts // 2 + 1)
        if get64(body + k.COMPARATOR) == k.COMPARED and give_comparator(c, entry) < 0:
            return -1
    return VARIED


@kernel
def next_write(c: int, frame: int) -> int:
    """Writes parts up to the next one that has parts itself; returns its body, 0 at the end, or
    -1. The frame: entry, body, next part, how parts stand.
    """
    entry = get64(frame)
    body = get64(frame + 8)
    part = get64(frame + 16)
    standing = get64(frame + 24)
    parts = 0 if standing == NOTHING else get64(entry + k.ENTRY_COUNT)
    while part < parts:
        slot = slot_of(body, part)
        mode = get64(slot) if standing == VARIED else standing
        item = get64(entry + k.ENTRY_BYTES + 8 * part)
        part += 1
        fixed = get64(slot)
        if mode == k.PRIMITIVE:
            inner = give_small(c, get64(slot + 8), item)
        elif (
            (fixed == k.FINAL or fixed == k.OBJECT) and item != 0 and get64(item) != get64(slot + 8)
        ):
            inner = unsupported(c)  # Kryo takes only objects of the class here
        else:
            inner = begin_write(c, mode, get64(slot + 16), item)
        if inner != 0:
            put64(frame + 16, part)
            return inner
    return 0 if get64(c + k.STATUS) == k.DONE else -1


@kernel
def write_object(c: int, entry: int) -> int:
    """Writes an object from its class on; returns 0, or -1."""
    body = begin_write(c, k.DYNAMIC, 0, entry)
    depth = 0
    frame = 0
    while True:
        if body < 0:
            return -1
        if body > 0:
            standing = open_parts(c, body, entry)
            if standing < 0:
                return -1
            depth += 1
            frame = push(c, k.WRITING, depth, entry, body, 0, standing)
        else:
            depth -= 1
            if depth <= 0:
                return 0 if get64(c + k.STATUS) == k.DONE else -1
            frame -= k.FRAME_BYTES
        if frame < 0:
            return -1
        body = next_write(c, frame)
        if body > 0:
            entry = get64(get64(frame) + k.ENTRY_BYTES + 8 * (get64(frame + 16) - 1))


@kernel
def part_at(entry: int, part: int, kind: int) -> int:
    """The contents of a part, 0 if it is null or of another kind."""
    held = get64(entry + k.ENTRY_BYTES + 8 * part)
    return held if held != 0 and get64(held + k.ENTRY_KIND) == kind else 0


@kernel
def give_date_time(c: int, entry: int) -> int:
    """A date and a time, which Kryo 2.24 stores as objects."""
    date = part_at(entry, 0, k.SCALAR)
    time = part_at(entry, 1, k.SCALAR)
    if date == 0 or time == 0:
        return unsupported(c)
    give_date(c, date + k.ENTRY_BYTES)
    return give_time(c, time + k.ENTRY_BYTES)


@kernel
def give_enum_set(c: int, content: int, count: int) -> int:
    give_class(c, get64(content))
    give_varint(c, count)
    for at in range(1, count + 1):
        if give_varint(c, get64(content + 8 * at) + 1) < 0:
            return -1
    return 0


@kernel
def give_offset_time(c: int, entry: int) -> int:
    """A time of the day and an offset, which Kryo 2.24 stores the other way round."""
    offset = part_at(entry, 0, k.SCALAR)
    time = part_at(entry, 1, k.SCALAR)
    if offset == 0 or time == 0 or give_time(c, time + k.ENTRY_BYTES) < 0:
        return unsupported(c)
    return give_offset(c, get64(offset + k.ENTRY_BYTES))


@kernel
def give_region(c: int, entry: int) -> int:
    """The name of a zone."""
    name = part_at(entry, 0, k.SCALAR)
    return unsupported(c) if name == 0 else give_text(c, name + k.ENTRY_BYTES)


@kernel
def give_zoned(c: int, entry: int) -> int:
    """A date and time with its zone if that has a name, or with its offset."""
    date_time = part_at(entry, 0, k.DATE_TIME)
    offset = part_at(entry, 1, k.SCALAR)
    if date_time == 0 or offset == 0 or give_date_time(c, date_time) < 0:
        return unsupported(c)
    if get64(entry + k.ENTRY_COUNT) == 2:
        return give_offset(c, get64(offset + k.ENTRY_BYTES))
    zone = part_at(entry, 2, k.REGION)
    return unsupported(c) if zone == 0 else give_region(c, zone)


@kernel
def write_value(c: int, ids: int, bodies: int, entry: int) -> int:
    """Writes a value from its class on: names and references start afresh."""
    put64(c + k.IDS, ids)
    put64(c + k.OUT_BODIES, bodies)
    put64(c + k.OUT_NAME_COUNT, 0)
    put64(c + k.OUT_OBJECT_COUNT, 0)
    put64(c + k.EPOCH, get64(c + k.EPOCH) + 1)
    return write_object(c, entry)
