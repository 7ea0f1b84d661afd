"""Converts values of Flink 1.x that hold values of Kryo to those of Flink 2.x, from bytes to bytes.

A *node* is a type: its kind, how many parts it has, and an operand, then the nodes of the parts.
``convert`` follows Flink's bytes and copies what stays. ``build`` writes entries of the tape.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.hashing import equal_bytes
from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.kryo import codes as k
from dstl_core.codec.columnar.kernels.kryo.codes import (
    give8,
    has,
    push,
    room,
    take8,
    unsupported,
)
from dstl_core.codec.columnar.kernels.kryo.read_objects import read_value
from dstl_core.codec.columnar.kernels.kryo.write_objects import give_bytes, give_varint, write_value
from dstl_core.codec.columnar.kernels.memory import (
    get64,
    load8,
    load16,
    load32,
    load64,
    put8,
    put64,
    store16,
    store32,
    store64,
)

# Kinds of nodes.
UNKNOWN = 0
FIXED = 1
"""``operand`` bytes."""
FLAG = 2
TEXT = 3
POJO = 4
"""The operand is the class on the tape. In Flink's bytes the next word is the table of subclasses:
the number of those with a tag, and of others, then for each its node, its name and its length.
"""
LIST = 5
SET = 6
MAP = 7
TUPLE = 8
ARRAY = 9
NULLABLE = 10
"""The operand is the padding."""
KRYO = 11
"""A value of Kryo 2.24 in Flink's bytes: registered classes, bodies, then the node to build."""
KRYO_5 = 12
"""A value of Kryo 5 to build: ids of classes, bodies."""
LEAF = 13
"""A scalar of the tape; the operand is its class, the next word its kind."""
CONSTANT = 14
"""A constant of an enum: the operand is the class, the next word the number of constants."""
BIG_INTEGER = 15
BIG_DECIMAL = 16
MILLIS = 17
"""Milliseconds; the smallest number means null."""
NANOS = 18
"""Milliseconds or seconds, and nanoseconds."""
NUMBERS = 19
"""A count, and as many times ``operand`` bytes."""

PARTS = 8
OPERAND = 16
EXTRA = 24
FIRST_PART = 32

# What a stored value is.
VALUE = 0
MAP_VALUE = 1
"""A flag for null in front; a null stays."""
ELEMENTS = 2
"""Elements of a list, a byte between them."""
DELIMITER = 0x2C

# Flags of a POJO.
NULL = 1
ITSELF = 2
SUBCLASS = 4
TAGGED_SUBCLASS = 8
SUBCLASS_BYTES = 24

SMALLEST = -0x8000000000000000


@kernel
def copy_input(c: int, size: int) -> int:
    if size < 0 or not has(c, size):
        return unsupported(c)
    at = get64(c + k.AT)
    put64(c + k.AT, at + size)
    return give_bytes(c, at, size)


@kernel
def copy_count(c: int) -> int:
    """Copies a number of parts; returns it."""
    if not has(c, 4):
        return unsupported(c)
    count = load32(get64(c + k.AT))
    if count < 0 or count > get64(c + k.END) - get64(c + k.AT) - 4:
        return unsupported(c)
    return -1 if copy_input(c, 4) < 0 else count


@kernel
def copy_flag(c: int) -> int:
    """Copies a boolean; returns it."""
    flag = take8(c)
    if flag < 0 or flag > 1:
        return unsupported(c)
    return -1 if give8(c, flag) < 0 else flag


@kernel
def is_wrong_null(c: int) -> bool:
    """Whether a null here contradicts the flag in front: written anew, the flag changes."""
    return get64(c + k.NEVER_NULL) != 0


@kernel
def copy_text(c: int) -> int:
    """Copies a text whose numbers have their shortest form."""
    start = get64(c + k.AT)
    end = get64(c + k.END)
    at = start
    units = 0
    shift = 0
    while True:
        if at >= end or shift > 28:
            return unsupported(c)
        byte = load8(at)
        at += 1
        units |= (byte & 0x7F) << shift
        shift += 7
        if byte < k.MORE:
            break
    if (shift > 7 and byte == 0) or units > 1 + end - at or (units == 0 and is_wrong_null(c)):
        return unsupported(c)
    for _ in range(units - 1):
        if at >= end:
            return unsupported(c)
        byte = load8(at)
        at += 1
        if byte < k.MORE:
            continue
        if at >= end:
            return unsupported(c)
        byte = load8(at)
        at += 1
        if byte >= k.MORE:
            if at >= end:
                return unsupported(c)
            byte = load8(at)
            at += 1
            if byte > 3:
                return unsupported(c)
        if byte == 0:
            return unsupported(c)
    return copy_input(c, at - start)


@kernel
def copy_big_integer(c: int) -> int:
    """Copies a number; returns 1 if it is null."""
    if not has(c, 4):
        return unsupported(c)
    size = load32(get64(c + k.AT))
    if size < 0 or size == 4 or (size == 0 and is_wrong_null(c)):
        return unsupported(c)
    if size > 4:
        start = get64(c + k.AT) + 4
        if not has(c, size):
            return unsupported(c)
        first = load8(start)
        second = load8(start + 1) if size > 5 else 0x40
        if (first == 0 and second < 0x80) or (first == 0xFF and second >= 0x80):
            return unsupported(c)
        if size == 5 and (first == 1 or first == 10 or first == 0):
            return unsupported(c)
    if copy_input(c, 4 + max(0, size - 4)) < 0:
        return -1
    return 1 if size == 0 else 0


@kernel
def copy_numbers(c: int, size: int) -> int:
    if not has(c, 4):
        return unsupported(c)
    count = load32(get64(c + k.AT))
    return unsupported(c) if count < 0 else copy_input(c, 4 + count * size)


@kernel
def copy_date(c: int, kind: int) -> int:
    """Copies a date with or without nanoseconds that is not null."""
    size = 8 if kind == MILLIS else 12
    if not has(c, size):
        return unsupported(c)
    at = get64(c + k.AT)
    if load64(at) == SMALLEST:
        return unsupported(c)
    if kind == NANOS and (load32(at + 8) < 0 or load32(at + 8) >= 1_000_000_000):
        return unsupported(c)
    return copy_input(c, size)


# ----------------------------------------------------------------- what entries of the tape become


@kernel
def give_big(c: int, value: int, size: int) -> int:
    """A number of fixed width, its highest byte first."""
    if not room(c, size):
        return -1
    out = get64(c + k.OUT)
    if size == 1:
        put8(out, value)
    elif size == 2:
        store16(out, value)
    elif size == 4:
        store32(out, value)
    else:
        store64(out, value)
    put64(c + k.OUT, out + size)
    return 0


@kernel
def build_small(c: int, kind: int, value: int) -> int:
    """A number, boolean or character of one word."""
    if kind == k.BOOLEAN or kind == k.BYTE:
        return give_big(c, value, 1)
    if kind == k.CHAR or kind == k.SHORT:
        return give_big(c, value, 2)
    if kind == k.INT or kind == k.FLOAT:
        return give_big(c, value, 4)
    if kind == k.LONG or kind == k.DOUBLE or kind == k.MILLIS:
        return give_big(c, value, 8)
    return unsupported(c)


@kernel
def build_text(c: int, content: int) -> int:
    start = get64(content)
    size = get64(content + 8)
    form = get64(content + 16)
    if give_varint(c, get64(content + 24) + 1) < 0:
        return -1
    if form != k.UNITS:
        if give_bytes(c, start, size) < 0:
            return -1
        if form == k.MARKED:
            last = get64(c + k.OUT) - 1
            put8(last, load8(last) & 0x7F)
        return 0
    if not room(c, size):  # no unit becomes longer
        return -1
    at = start
    out = get64(c + k.OUT)
    while at < start + size:
        unit = load8(at)
        if unit >= 0xE0:
            unit = (unit & 0x0F) << 12 | (load8(at + 1) & 0x3F) << 6 | load8(at + 2) & 0x3F
            at += 3
        elif unit >= 0x80:
            unit = (unit & 0x1F) << 6 | load8(at + 1) & 0x3F
            at += 2
        else:
            at += 1
        while unit >= k.MORE:
            put8(out, unit & 0x7F | k.MORE)
            out += 1
            unit >>= 7
        put8(out, unit)
        out += 1
    put64(c + k.OUT, out)
    return 0


@kernel
def build_leaf(c: int, node: int, entry: int) -> int:
    """A scalar or a constant; the object must be of the class of the node."""
    content = entry + k.ENTRY_BYTES
    if get64(entry) != get64(node + OPERAND):
        return unsupported(c)
    extra = get64(node + EXTRA)
    if get64(node) == CONSTANT:
        if get64(content) >= extra:
            return unsupported(c)
        return give_big(c, get64(content), 4)
    return build_text(c, content) if extra == k.TEXT else build_small(c, extra, get64(content))


@kernel
def open_build(c: int, node: int, entry: int) -> int:
    """Writes the header of a composite value; returns the number of its parts, or -1."""
    kind = get64(node)
    parts = get64(entry + k.ENTRY_COUNT)
    shape = get64(entry + k.ENTRY_KIND)
    if kind == POJO or kind == TUPLE:
        if shape != k.FIELDS or get64(entry) != get64(node + OPERAND):
            return unsupported(c)
        if parts != get64(node + PARTS):
            return unsupported(c)
        return -1 if kind == POJO and give8(c, ITSELF) < 0 else parts
    if shape != (k.PAIRS if kind == MAP else k.ITEMS):
        return unsupported(c)
    count = parts // 2 if kind == MAP else parts
    return -1 if give_big(c, count, 4) < 0 else parts


@kernel
def part_of(node: int, part: int) -> int:
    """The node of a part."""
    kind = get64(node)
    at = 0
    if kind == POJO or kind == TUPLE:
        at = part
    elif kind == MAP:
        at = part & 1
    return get64(node + FIRST_PART + 8 * at)


@kernel
def has_flag(kind: int, part: int) -> bool:
    """Whether a flag before a part says if it is null, or if it exists."""
    return kind == POJO or kind == SET or kind == ARRAY or (kind == MAP and part & 1 == 1)


@kernel
def begin_build(c: int, node: int, entry: int) -> int:
    """Writes an entry up to its parts; returns the node that has them, 0 if it is complete, or
    -1.
    """
    while get64(node) == NULLABLE:
        if entry == 0:
            return unsupported(c) if get64(node + OPERAND) != 0 else give8(c, 1)
        if give8(c, 0) < 0:
            return -1
        node = get64(node + FIRST_PART)
    kind = get64(node)
    if kind == KRYO_5:
        return write_value(c, get64(node + OPERAND), get64(node + EXTRA), entry)
    if entry == 0:
        if kind == POJO:
            return give8(c, NULL)
        if kind == LEAF and get64(node + EXTRA) == k.TEXT:
            return give8(c, 0)
        return unsupported(c)
    if kind == LEAF or kind == CONSTANT:
        return build_leaf(c, node, entry)
    return unsupported(c) if kind < POJO or kind >= ARRAY else node


@kernel
def next_build(c: int, frame: int) -> int:
    """Writes parts up to the next one that has parts itself; returns its node, 0 at the end, or
    -1. The frame: node, entry, next part, number of parts.
    """
    node = get64(frame)
    entry = get64(frame + 8)
    part = get64(frame + 16)
    parts = get64(frame + 24)
    kind = get64(node)
    while part < parts:
        inner = part_of(node, part)
        item = get64(entry + k.ENTRY_BYTES + 8 * part)
        is_primitive = get64(inner) == FIXED
        if has_flag(kind, part):
            null = 1 if item == 0 and not is_primitive else 0
            if give8(c, null) < 0:
                return -1
            if null != 0:
                part += 1
                continue
        part += 1
        if is_primitive:
            started = build_small(c, get64(inner + EXTRA), item)
        else:
            started = begin_build(c, inner, item)
        if started != 0:
            put64(frame + 16, part)
            return started
    return 0


@kernel
def build(c: int, node: int, entry: int) -> int:
    """Writes an entry of the tape as a type of Flink; returns 0, or -1."""
    node = begin_build(c, node, entry)
    depth = 0
    frame = 0
    while True:
        if node < 0:
            return -1
        if node > 0:
            parts = open_build(c, node, entry)
            depth += 1
            frame = -1 if parts < 0 else push(c, k.BUILDING, depth, node, entry, 0, parts)
        else:
            depth -= 1
            if depth <= 0:
                return 0
            frame -= k.FRAME_BYTES
        if frame < 0:
            return -1
        node = next_build(c, frame)
        if node > 0:
            entry = get64(get64(frame + 8) + k.ENTRY_BYTES + 8 * (get64(frame + 16) - 1))


# ------------------------------------------------------------------------------- Flink's bytes


@kernel
def open_convert(c: int, node: int) -> int:
    """Copies the header of a composite value; returns the number of its parts, or -1."""
    kind = get64(node)
    if kind == TUPLE:
        return get64(node + PARTS)
    if kind != POJO:
        count = copy_count(c)
        return 2 * count if kind == MAP and count > 0 else count
    flags = take8(c)
    if (flags != NULL and flags != ITSELF) or (flags == NULL and is_wrong_null(c)):
        return unsupported(c)
    if give8(c, flags) < 0:
        return -1
    return get64(node + PARTS) if flags == ITSELF else 0


@kernel
def convert_leaf(c: int, node: int) -> int:
    """Copies a value without parts, or builds a value of Kryo."""
    kind = get64(node)
    if kind == FIXED:
        return copy_input(c, get64(node + OPERAND))
    if kind == TEXT:
        return copy_text(c)
    if kind == NUMBERS:
        return copy_numbers(c, get64(node + OPERAND))
    if kind == MILLIS or kind == NANOS:
        return copy_date(c, kind)
    if kind == FLAG:
        return min(copy_flag(c), 0)
    if kind == CONSTANT:
        if not has(c, 4):
            return unsupported(c)
        number = load32(get64(c + k.AT))
        return unsupported(c) if number < 0 or number >= get64(node + EXTRA) else copy_input(c, 4)
    if kind == KRYO:
        entry = read_value(c, get64(node + OPERAND), get64(node + EXTRA))
        if entry <= 0:
            return unsupported(c)
        return build(c, get64(node + FIRST_PART), entry)
    if kind == BIG_INTEGER or kind == BIG_DECIMAL:
        null = copy_big_integer(c)
        if null < 0:
            return -1
        return copy_input(c, 4) if kind == BIG_DECIMAL and null == 0 else 0
    return unsupported(c)


@kernel
def find_subclass(c: int, table: int) -> int:
    """Copies the tag or name of a subclass; returns its node, 0 if it is unknown."""
    at = get64(c + k.AT)
    registered = get64(table)
    if load8(at) == TAGGED_SUBCLASS:
        tag = load8(at + 1) if has(c, 2) else registered
        if tag >= registered or copy_input(c, 2) < 0:
            return 0
        return get64(table + 16 + SUBCLASS_BYTES * tag)
    size = load16(at + 1) if has(c, 3) else -1
    if size < 0 or not has(c, 3 + size):
        return 0
    for number in range(registered, registered + get64(table + 8)):
        other = table + 16 + SUBCLASS_BYTES * number
        if get64(other + 16) == size and equal_bytes(get64(other + 8), at + 3, size):
            return get64(other) if copy_input(c, 3 + size) == 0 else 0
    return 0


@kernel
def enter_subclass(c: int, node: int) -> int:
    """The node of the class of the next POJO, or -1."""
    if not has(c, 1):
        return unsupported(c)
    flags = load8(get64(c + k.AT))
    if flags != SUBCLASS and flags != TAGGED_SUBCLASS:
        return node
    table = get64(node + EXTRA)
    subclass = 0 if table == 0 else find_subclass(c, table)
    if subclass == 0 or not has(c, 1) or load8(get64(c + k.AT)) != ITSELF:
        return unsupported(c)
    return subclass


@kernel
def begin_convert(c: int, node: int) -> int:
    """Converts a value up to its parts; returns the node that has them, 0 if it is complete, or
    -1.
    """
    while get64(node) == NULLABLE:
        null = copy_flag(c)
        if null > 0 and (get64(node + OPERAND) != 0 or is_wrong_null(c)):
            return unsupported(c)
        if null != 0:
            return min(null, 0)
        put64(c + k.NEVER_NULL, 1)
        node = get64(node + FIRST_PART)
    kind = get64(node)
    if kind == POJO:
        return enter_subclass(c, node)
    return convert_leaf(c, node) if kind < POJO or kind > ARRAY else node


@kernel
def next_convert(c: int, frame: int) -> int:
    """Converts parts up to the next one that has parts itself; returns its node, 0 at the end, or
    -1. The frame: node, next part, number of parts.
    """
    node = get64(frame)
    part = get64(frame + 8)
    parts = get64(frame + 16)
    kind = get64(node)
    while part < parts:
        flag = 0
        if has_flag(kind, part):
            flag = copy_flag(c)
            if flag < 0:
                return -1
            if kind == ARRAY:
                flag = 1 - flag
        put64(c + k.NEVER_NULL, 1 if has_flag(kind, part) else 0)
        part += 1
        started = 0 if flag == 1 else begin_convert(c, part_of(node, part - 1))
        if started != 0:
            put64(frame + 8, part)
            return started
    return 0


@kernel
def convert(c: int, node: int) -> int:
    """Converts the next value of the input; returns 0, or -1."""
    node = begin_convert(c, node)
    depth = 0
    frame = 0
    while True:
        if node < 0:
            return -1
        if node > 0:
            parts = open_convert(c, node)
            depth += 1
            frame = -1 if parts < 0 else push(c, k.CONVERTING, depth, node, 0, parts, 0)
        else:
            depth -= 1
            if depth <= 0:
                return 0
            frame -= k.FRAME_BYTES
        if frame < 0:
            return -1
        node = next_convert(c, frame)


@kernel
def convert_stored(c: int, node: int, framing: int) -> int:
    """Converts the bytes of one record."""
    if framing == MAP_VALUE:
        if not has(c, 1) or load8(get64(c + k.AT)) != 0:
            return copy_input(c, get64(c + k.END) - get64(c + k.AT))
        copy_flag(c)
    put64(c + k.NEVER_NULL, 1 if framing == MAP_VALUE else 0)
    while convert(c, node) == 0:
        put64(c + k.NEVER_NULL, 0)
        if get64(c + k.AT) == get64(c + k.END):
            return 0
        if framing != ELEMENTS:
            return unsupported(c)
        put64(c + k.AT, get64(c + k.AT) + 1)
        if give8(c, DELIMITER) < 0:
            return -1
    return unsupported(c)
