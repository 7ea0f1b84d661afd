"""Converts values of Flink 1.x that hold values of Kryo to those of Flink 2.x, from bytes to bytes.

A *node* is a type: its kind, how many parts it has, and an operand, then the nodes of the parts.
``convert`` follows Flink's bytes and copies what stays. ``build`` writes entries of the tape.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.hashing import equal_bytes
from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.kryo import codes as k
from dstl_core.codec.columnar.kernels.kryo.build_scalars import (
    build_scalar,
    build_small,
    give_big,
)
from dstl_core.codec.columnar.kernels.kryo.codes import (
    give8,
    has,
    push,
    room,
    stop,
    take8,
    unsupported,
)
from dstl_core.codec.columnar.kernels.kryo.copies import (
    copy_big_integer,
    copy_count,
    copy_flag,
    copy_input,
    copy_local,
    copy_mask,
    copy_millis,
    copy_nanos,
    copy_numbers,
    copy_text,
    is_wrong_null,
)
from dstl_core.codec.columnar.kernels.kryo.read_objects import read_value
from dstl_core.codec.columnar.kernels.kryo.write_objects import give_bytes, write_value
from dstl_core.codec.columnar.kernels.memory import (
    copy,
    get64,
    load8,
    load16,
    load32,
    put64,
)

# Kinds of nodes.
UNKNOWN = 0
FIXED = 1
"""``operand`` bytes."""
FLAG = 2
TEXT = 3
POJO = 4
"""The operand is the class on the tape. In Flink's bytes the next word is the table of subclasses:
the number of those with a tag, and of others, then for each its node, its name and its length. If
it is built, that table has an entry for each class: its node, and what stands in front of a value.
"""
LIST = 5
"""The operand of an array that is built is its class, and -1 of what may be of any."""
SET = 6
MAP = 7
TUPLE = 8
ARRAY = 9
ROW = 10
"""The operand is the number of bits of the mask in front of those for the fields."""
EITHER = 11
ASSEMBLED = 12
"""Parts that are written in another order, and bytes between them. The operand is the number of
pieces, then for each its part, and -1 for bytes: where they are, and how many. The next word says
whether the flags of a POJO stand in front.
"""
NULLABLE = 13
"""The operand is the padding. The next word, in Flink's bytes, is what says that a value is there
before and after, then the bytes for null and their number; without these, null is unsupported.
"""
KRYO = 14
"""A value of Kryo 2.24 in Flink's bytes: registered classes, bodies, then the node to build."""
KRYO_5 = 15
"""A value of Kryo 5 to build: ids of classes, bodies."""
LEAF = 16
"""A scalar of the tape; the operand is its class, the next word its kind."""
CONSTANT = 17
"""A constant of an enum: the next word is the number of constants."""
BIG_INTEGER = 18
BIG_DECIMAL = 19
MILLIS = 20
"""Milliseconds; the smallest number means null."""
NANOS = 21
"""Milliseconds or seconds, and nanoseconds; the operand stands for these if it is null."""
NUMBERS = 22
"""A count, and as many times ``operand`` bytes. If it is built, the operand is the class of the
array, the next word the kind of its items.
"""
LOCAL = 23
"""The operand says whether there is a date, the next word whether there is a time."""
ZERO = 24
"""A byte that is 0."""
CHOICE = 25
"""A number that becomes bytes: the operand is a table, the next word its length; each entry has the
number, where the bytes are, and how many.
"""

# What says that a value is there.
NULL_FLAG = 0
"""A byte, 1 if it is null."""
THERE_FLAG = 1
"""A byte, 1 if it is there."""
NOTHING = 2
"""Nothing: the bytes of a value have a form for null, or it is always there."""
NEVER_NULL = 3
"""Nothing, and it is always there."""

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
"""Of an entry of a table of subclasses, of pieces and of choices."""


@kernel
def build_leaf(c: int, node: int, entry: int) -> int:
    """A scalar, a constant or an array; the object must be of the class of the node."""
    content = entry + k.ENTRY_BYTES
    extra = get64(node + EXTRA)
    if get64(node) == CONSTANT:  # one with a body has a class of its own
        if get64(entry + k.ENTRY_KIND) != k.CONSTANT or get64(content) >= extra:
            return unsupported(c)
        return give_big(c, get64(content), 4)
    if get64(entry) != get64(node + OPERAND):
        return unsupported(c)
    if get64(node) == NUMBERS:
        return build_numbers(c, extra, entry)
    return build_scalar(c, extra, content)


@kernel
def build_numbers(c: int, kind: int, entry: int) -> int:
    """An array of numbers, characters or booleans."""
    count = get64(entry + k.ENTRY_COUNT)
    if get64(entry + k.ENTRY_KIND) != k.PRIMITIVES or give_big(c, count, 4) < 0:
        return unsupported(c)
    for item in range(count):
        if build_small(c, kind, get64(entry + k.ENTRY_BYTES + 8 * item)) < 0:
            return -1
    return 0


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
    cls = get64(node + OPERAND)
    if (kind == LIST or kind == ARRAY) and cls >= 0 and get64(entry) != cls:
        return unsupported(c)
    count = parts // 2 if kind == MAP else parts
    return -1 if give_big(c, count, 4) < 0 else parts


@kernel
def part_of(node: int, part: int) -> int:
    kind = get64(node)
    at = 0
    if kind == POJO or kind == TUPLE or ROW <= kind <= ASSEMBLED:
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
    if kind == LEAF or kind == CONSTANT or kind == NUMBERS:
        return build_leaf(c, node, entry)
    if kind == POJO and get64(entry) != get64(node + OPERAND):
        return begin_subclass(c, node, entry)
    return unsupported(c) if kind < POJO or kind > ARRAY else node


@kernel
def begin_subclass(c: int, node: int, entry: int) -> int:
    """Writes what says that an object is of a subclass; returns the node of that, or -1."""
    table = get64(node + EXTRA)
    if table == 0:
        return unsupported(c)
    known = table + SUBCLASS_BYTES * get64(entry)
    subclass = get64(known)
    if subclass == 0:
        return stop(c, k.NEED_SUBCLASS, get64(entry), node)
    return -1 if give_bytes(c, get64(known + 8), get64(known + 16)) < 0 else subclass


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
            if give8(c, 1 - null if kind == ARRAY else null) < 0:
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
    """Copies the header of a composite value; returns the number behind its last part, or -1."""
    kind = get64(node)
    if kind == ASSEMBLED and get64(node + EXTRA) != 0 and take8(c) != ITSELF:
        return unsupported(c)
    if kind == TUPLE or kind == ASSEMBLED:
        return get64(node + PARTS)
    if kind == ROW:
        parts = get64(node + PARTS)
        return -1 if copy_mask(c, get64(node + OPERAND) + parts) < 0 else parts
    if kind == EITHER:
        left = copy_flag(c)
        return left if left < 0 else 2 - left
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
    if kind == MILLIS:
        return copy_millis(c)
    if kind == NANOS:
        return copy_nanos(c, get64(node + OPERAND))
    if kind == LOCAL:
        return copy_local(c, get64(node + OPERAND), get64(node + EXTRA))
    if kind == FLAG:
        return min(copy_flag(c), 0)
    if kind == CHOICE:
        return convert_choice(c, node)
    if kind == ZERO:
        return 0 if copy_flag(c) == 0 and not is_wrong_null(c) else unsupported(c)
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
def convert_choice(c: int, node: int) -> int:
    """Writes the bytes for a number."""
    if not has(c, 4):
        return unsupported(c)
    number = load32(get64(c + k.AT))
    table = get64(node + OPERAND)
    for at in range(get64(node + EXTRA)):
        entry = table + SUBCLASS_BYTES * at
        if get64(entry) == number:
            put64(c + k.AT, get64(c + k.AT) + 4)
            return give_bytes(c, get64(entry + 8), get64(entry + 16))
    return unsupported(c)


@kernel
def convert_flag(c: int, node: int) -> int:
    """Converts what says that a value is there; returns 1 if it is null, 0, or -1."""
    how = get64(node + EXTRA)
    before = get64(how)
    after = get64(how + 8)
    null = 0
    if before == NULL_FLAG or before == THERE_FLAG:
        flag = take8(c)
        if flag < 0 or flag > 1:
            return unsupported(c)
        null = flag if before == NULL_FLAG else 1 - flag
    if null != 0:
        size = get64(how + 24)
        if size == 0 or get64(node + OPERAND) != 0 or is_wrong_null(c):
            return unsupported(c)
        return -1 if give_bytes(c, get64(how + 16), size) < 0 else 1
    if after != NOTHING:
        put64(c + k.NEVER_NULL, 1)
    if after == NULL_FLAG or after == THERE_FLAG:
        return give8(c, 0 if after == NULL_FLAG else 1)
    return 0


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
        null = convert_flag(c, node)
        if null != 0:
            return min(null, 0)
        node = get64(node + FIRST_PART)
    kind = get64(node)
    if kind == POJO:
        return enter_subclass(c, node)
    return convert_leaf(c, node) if kind < POJO or kind > ASSEMBLED else node


@kernel
def part_flag(c: int, frame: int, kind: int, part: int) -> int:
    """What a flag or mask says of a part: 1 if it is null, 0 if not, -1 if nothing does; -2 is
    unsupported.
    """
    if kind == ROW:
        bit = get64(get64(frame) + OPERAND) + part
        return load8(get64(frame + 24) + bit // 8) >> (7 - bit % 8) & 1
    if not has_flag(kind, part):
        return -1
    flag = copy_flag(c)
    if flag < 0:
        return -2
    return 1 - flag if kind == ARRAY else flag


@kernel
def next_convert(c: int, frame: int) -> int:
    """Converts parts up to the next one that has parts itself; returns its node, 0 at the end, or
    -1. The frame: node, next part, number behind the last part, where the header begins.
    """
    node = get64(frame)
    part = get64(frame + 8)
    parts = get64(frame + 16)
    kind = get64(node)
    marks = marks_of(c, frame)
    while part < parts:
        if kind == ASSEMBLED:
            put64(marks + 8 * part, get64(c + k.OUT))
        flag = part_flag(c, frame, kind, part)
        if flag == -2:
            return -1
        put64(c + k.NEVER_NULL, 0 if flag < 0 else 1)
        part += 1
        started = 0 if flag == 1 else begin_convert(c, part_of(node, part - 1))
        if started != 0:
            put64(frame + 8, part)
            return started
    if kind != ASSEMBLED:
        return 0
    put64(marks + 8 * parts, get64(c + k.OUT))
    return assemble(c, get64(node + OPERAND), marks, parts)


@kernel
def marks_of(c: int, frame: int) -> int:
    """Where the parts of a frame begin in the output, and where the last one ends."""
    depth = (frame - get64(c + k.STACKS)) % k.STACK_BYTES // k.FRAME_BYTES
    return get64(c + k.MARKS) + 8 * (k.MAX_PARTS + 1) * depth


@kernel
def assemble(c: int, pieces: int, marks: int, parts: int) -> int:
    """Writes parts of the output in another order, with bytes between them."""
    start = get64(marks)
    total = get64(marks + 8 * parts) - start
    count = get64(pieces)
    size = 0
    for at in range(count):
        piece = pieces + 8 + SUBCLASS_BYTES * at
        part = get64(piece)
        mark = marks + 8 * part
        size += get64(piece + 16) if part < 0 else get64(mark + 8) - get64(mark)
    if size < total:
        return unsupported(c)
    if not room(c, size):
        return -1
    copy(start + size, start, total)  # behind what is written
    out = start
    for at in range(count):
        piece = pieces + 8 + SUBCLASS_BYTES * at
        part = get64(piece)
        if part < 0:
            copy(out, get64(piece + 8), get64(piece + 16))
            out += get64(piece + 16)
        else:
            mark = marks + 8 * part
            copy(out, get64(mark) + size, get64(mark + 8) - get64(mark))
            out += get64(mark + 8) - get64(mark)
    put64(c + k.OUT, out)
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
            start = get64(c + k.AT)
            parts = open_convert(c, node)
            first = parts - 1 if get64(node) == EITHER else 0
            depth += 1
            frame = -1 if parts < 0 else push(c, k.CONVERTING, depth, node, first, parts, start)
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
    """Converts the stored value or key of one record."""
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
