"""What the kernels that convert values of Kryo share: codes, and the words of their block.

Every type is a small block of words that the host builds. A block is found by its address.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import get64, load8, put8, put64

# Why a kernel stops at a value.
DONE = 0
UNSUPPORTED = 1
"""The value is left to the code that converts values one by one, and says what is wrong."""
NEED_BODY = 2
"""The host has to say how a class with some arguments is stored."""
NEED_CLASS = 3
"""A class name comes for the first time."""
NEED_TAPE = 4
NEED_OUTPUT = 5
NEED_SUBCLASS = 7
"""The host has to say how an object of a subclass is written where another POJO is declared."""

# Words of the block, as offsets in bytes.
AT = 0
END = 8
TAPE = 16
TAPE_AT = 24
TAPE_END = 32
NAME_COUNT = 40
NAMES = 48
OBJECT_COUNT = 56
OBJECTS = 64
CLASSES = 72
CLASS_COUNT = 80
REGISTERED = 88
BODIES = 96
STATUS = 104
FIRST_OPERAND = 112
SECOND_OPERAND = 120
REFERENCES = 128
OUT = 144
OUT_END = 152
OUT_NAME_COUNT = 160
OUT_NAMES = 168
OUT_OBJECT_COUNT = 176
EPOCH = 184
IDS = 192
OUT_BODIES = 200
STACKS = 208
NEVER_NULL = 216
"""Whether a flag said that the next value is there."""
MARKS = 224
CONTEXT_WORDS = 32

# Each walk over a value has a stack of frames: cached kernels cannot call themselves.
READING = 0
WRITING = 1
BUILDING = 2
CONVERTING = 3
WALKS = 4
FRAME_BYTES = 32
DEEPEST = 60
STACK_BYTES = FRAME_BYTES * (DEEPEST + 2)

MAX_PARTS = 256
"""Of a value whose parts are written in another order."""
MAX_NAMES = 256
MAX_OBJECTS = 1 << 16
MAX_SHARED = 1 << 22
"""Objects times references: what lies above is counted one by one."""
MAX_CLASSES = 1024
MAX_ARGUMENTS = 64

CLASS_BYTES = 24
"""Of a class: the address of its name, whose last byte has the highest bit, its length, and the
class that is written in its place.
"""

# How an object stands in the bytes.
DYNAMIC = 0
"""Behind its class."""
FINAL = 1
"""Without a class, perhaps null."""
OBJECT = 2
"""Without a class, never null."""
PRIMITIVE = 3

# Words of a body.
KIND = 0
FLAGS = 8
COMPARATOR = 16
NULLS = 24
SLOTS = 32
SLOT_BYTES = 24
"""Of a slot: how it stands, its class or kind, its arguments."""
PLAIN = 1
ENUM = 2

# Flags beside the number of elements, in the word COMPARATOR.
COMPARED = 1
"""A comparator, whose entry stands behind the parts: null, or an object without fields."""
PLUS_ONE = 2
"""The number is stored plus 1."""
ELEMENT_CLASS = 3
"""The class of the elements of an array."""
FIXED_COUNT = 4
"""Nothing: the word NULLS is the number."""

# Kinds of bodies, and of entries of the tape.
NONE = 1
"""Nothing that the kernels know."""
SCALAR = 2
CONSTANT = 3
FIELDS = 4
ITEMS = 5
PAIRS = 6
OPTIONAL = 7
DATE_TIME = 8
PRIMITIVES = 9
"""An array of numbers or booleans."""
ZONED = 10
"""A date and time, an offset, perhaps a zone."""
REGION = 11
"""A zone: its name is an object."""
OFFSET_TIME = 12
"""An offset and a time of the day."""
ENUM_SET = 13
"""The class of an enum, then ordinals."""

# Words of an entry: class, number in the output, kind (0 until it is complete), count, body,
# contents.
ENTRY_NUMBER = 8
ENTRY_KIND = 16
ENTRY_COUNT = 24
ENTRY_BODY = 32
ENTRY_BYTES = 40
SCALAR_WORDS = 4

# Kinds of scalars.
BOOLEAN = 1
BYTE = 2
CHAR = 3
SHORT = 4
INT = 5
LONG = 6
FLOAT = 7
DOUBLE = 8
TEXT = 9
BIG_INTEGER = 10
BIG_DECIMAL = 11
MILLIS = 12
UUID = 13
DATE = 14
TIME = 15
INSTANT = 16
DURATION = 17
PERIOD = 18
YEAR = 19
YEAR_MONTH = 20
MONTH_DAY = 21
TIMESTAMP = 22
OFFSET = 23
ATOMIC_FLAG = 24
MAYBE_INT = 25
MAYBE_LONG = 26
MAYBE_DOUBLE = 27

# Forms of a text on the tape.
UNITS = 0
ASCII = 1
MARKED = 2
"""ASCII whose last byte has the highest bit."""

MORE = 0x80


@kernel
def stop(c: int, status: int, first: int, second: int) -> int:
    """Ends the work on a value; returns -1."""
    if get64(c + STATUS) == DONE:
        put64(c + STATUS, status)
        put64(c + FIRST_OPERAND, first)
        put64(c + SECOND_OPERAND, second)
    return -1


@kernel
def unsupported(c: int) -> int:
    """Leaves the value to the code that converts values one by one; returns -1."""
    return stop(c, UNSUPPORTED, 0, 0)


@kernel
def has(c: int, size: int) -> bool:
    """Whether as many bytes of input are left."""
    return size <= get64(c + END) - get64(c + AT)


@kernel
def take8(c: int) -> int:
    at = get64(c + AT)
    if at >= get64(c + END):
        return unsupported(c)
    put64(c + AT, at + 1)
    return load8(at)


@kernel
def room(c: int, size: int) -> bool:
    """Whether the output takes as many bytes."""
    if get64(c + OUT_END) - get64(c + OUT) < size:
        stop(c, NEED_OUTPUT, size, 0)
        return False
    return True


@kernel
def give8(c: int, value: int) -> int:
    if not room(c, 1):
        return -1
    out = get64(c + OUT)
    put8(out, value)
    put64(c + OUT, out + 1)
    return 0


@kernel
def push(c: int, walk: int, depth: int, first: int, second: int, third: int, fourth: int) -> int:
    """Writes the frame of a depth; returns its address, or -1."""
    if depth > DEEPEST:
        return unsupported(c)
    frame = get64(c + STACKS) + STACK_BYTES * walk + FRAME_BYTES * depth
    put64(frame, first)
    put64(frame + 8, second)
    put64(frame + 16, third)
    put64(frame + 24, fourth)
    return frame


@kernel
def slot_of(body: int, part: int) -> int:
    kind = get64(body)
    at = 0
    if kind == FIELDS or kind == DATE_TIME or kind == ZONED or kind == OFFSET_TIME:
        at = part
    elif kind == PAIRS:
        at = part & 1
    return body + SLOTS + SLOT_BYTES * at
