"""The instructions of a compiled type, and the reports of the decoding and encoding kernels.

An instruction is eight int64 words: the operation, then operands. The same program runs in both
directions: from bytes to columns, and from columns to bytes. Operands that name a column are
addresses, set when the program is bound to the buffers of one batch; 0 means "not wanted".

    word   fixed-size          text, bytes        list             other
    1      values              offsets            offsets          see the operation
    2      validity            validity           validity         validity
    3      -                   data               items' capacity
    4      width               data's capacity    least bytes of an item
    5      mode                mode               its LOOP         -
    6      -                   -                  -                -
    7      number of the column

Validity has one byte per value in both directions: it is packed to bits after decoding, and
unpacked before encoding. The same holds for booleans. For encoding, validity 0 means that no value
is null. Loops and frames keep their state in their own words: a type never contains itself, so each
is in use only once at a time. Jumps and frames are byte offsets from the start of the program.
"""

from __future__ import annotations

SIGN_BIT = -0x8000000000000000
LIST_DELIMITER = 0x2C
"""The byte between elements of list state."""

WORDS = 8
INSTRUCTION_BYTES = 8 * WORDS

# -------------------------------------------------------------------------------- plain values

END = 0
"""The bytes must end here."""
TEXT = 1
"""Flink's string value. Mode: bits ``TEXT_UTF16`` and ``TEXT_WITHOUT_NULL``."""
COPY8 = 2
COPY4 = 3
COPY2 = 4
COPY1 = 5
BOOL = 6
FLIP8 = 7
"""int64 with its sign bit flipped (timers)."""
MARKER = 8
"""One constant byte. Word 1: its value, or -1 for any value."""
LIST = 9
"""i32 count, items. Word 6: 0 or one of ``LIST_*``."""
LOOP = 10
"""End of an item. Words: 1 number of items left, 2 row of the list, 3 first instruction of an item,
4 and 5 mask and number of the current item.
"""
DELIMITED = 11
"""Items separated by a comma byte, up to the end (list state)."""
NEXT_DELIMITED = 12
"""Like LOOP. Words: 1 first instruction of an item, 2 row of the list, 3 its DELIMITED."""
NULL_FLAG = 13
"""One byte, not 0 = null. Word 1: next instruction if not null; word 3: bytes after a null."""
PRESENT_FLAG = 14
"""One byte, 0 = null. Otherwise like NULL_FLAG."""
SKIP_REST = 15
"""Ignores the remaining bytes."""
JUMP = 16
NULL_FIXED = 17
NULL_OFFSETS = 18
NULL_STRUCT = 19
VALID = 20
"""Marks the struct as valid."""
BYTES = 21
"""Bytes. Mode: one of ``BYTES_*``; word 6 is the size for ``BYTES_SIZED``."""
MARK = 22
"""Stores the position. Word 1: the LENGTH_DIGITS that uses it."""
LENGTH_DIGITS = 23
"""The number of bytes since MARK, as little-endian digits. Word 1: the stored position."""
REQUIRE = 24
"""The value just read must not be null (word 2: its validity)."""
POSITION = 25
"""Stores the current address; reads nothing."""

# ------------------------------------------------------------------------ numbers, dates, unions

BIG_INT = 26
"""i32 length and two's complement, with codes for null, 0, 1 and 10. Mode: 1 if never null."""
ZERO_IS_NULL = 27
"""Peeks at an i32 and consumes it if it is 0 = null. Otherwise like NULL_FLAG."""
DECIMAL = 28
"""A decimal to 16 bytes. Mode: 0 i64, 1 i32 size and two's complement."""
INDEX4 = 29
"""An i32 index, at least 0 and below word 5."""
TIMESTAMP = 30
"""A time to int64, and to int32 at word 3 with ``TIME_EXACT``. Mode: one of ``TIME_*``."""
LOCAL_DATE = 31
LOCAL_TIME = 32
MASK = 33
"""Bits of a null mask, highest first. Word 3: number of bits; 1: whether the first two are a row
kind; 2: whether row kinds except +I are refused; 4 and 5: target of the kind, and its validity; 6:
position of the mask.
"""
MASK_FIELD = 34
"""Like NULL_FLAG, for bit word 4 of the mask at word 3 (a MASK); if word 4 is -1, for the current
item of the LOOP at word 3.
"""
EITHER = 35
"""A byte: not 0 = left; if word 5 is 1: 1 = left, 2 = right. Word 3: instructions of left."""
POJO = 36
"""Flags of a POJO. Word 1: fields of the class itself; 3: selection of the subclass, or 0; 4:
number of registered subclasses; 5: the tag, or -1; 6: start of the class name, after its length
(encoding: column with the number of the class).
"""
TAG_IS = 37
"""Word 1: target of the jump if the tag of the POJO at word 3 is word 4."""
CLASS_IS = 38
"""Word 1: target of the jump if the class name of the POJO at word 3 equals the word 4 bytes at
word 5. Encoding: if the class number is word 6; writes the name.
"""
REFUSE = 39
"""Refuses a value that cannot be read. Word 3: the code."""
STREAM_TAG = 40
"""Tag of a stream element, with its timestamp if it has one."""
SIZES = 41
"""Two i32 lengths, for the two BYTES at words 3 and 4."""

# --------------------------------------------------------------------------------- SQL memory

FRAME = 42
"""Not an instruction: two lines of words for a row, array or map. 1 start, 2 size, 3 bytes left for
the variable part, 4 slots, 5 null bits, 6 first null bit, 7 items, 9 first row of the items.
"""
REGION = 43
"""Finds the memory of the frame at word 1. Word 2: one of ``REGION_*``; 3: the enclosing frame; 4:
slot in the enclosing frame.
"""
REGION_END = 44
"""End of a region, with the operands of its REGION."""
SQL_ROW = 45
"""Word 1: frame; 3: number of fields; 4 and 5: target of the row kind, and its validity; 6: whether
row kinds except +I are refused.
"""
SQL_ARRAY = 46
"""Like LIST; word 4 bytes of a slot, 6 frame. Word 3 is -1 for the values of a map: they are in the
rows of the keys, whose frame is at word 1.
"""
NEXT_SLOT = 47
"""Like LOOP. Word 4: bytes of a slot; 5: frame."""
SLOT_NULL = 48
"""Like NULL_FLAG, for bit word 4 of the frame at word 3."""
SLOT = 49
"""A little-endian value of word 4 bytes. Word 3: frame, 5: slot, 6: 1 for a boolean."""
SLOT_BYTES = 50
"""Text and bytes. Word 5: slot and mode (``SLOT_SHIFT``); 6: frame."""
SLOT_DECIMAL = 51
"""A decimal to 16 bytes. Word 3: frame, 5: slot, 6: 1 if it is in the variable part."""
SLOT_TIMESTAMP = 52
"""Like TIMESTAMP. Word 4: frame, 5: slot and mode, 6: 1 if it is in the variable part."""

CONSTANT4 = 53
"""The int32 in word 5; takes no bytes."""

PLAIN = frozenset((*range(BIG_INT), ZERO_IS_NULL, MASK, MASK_FIELD, EITHER))
"""Instructions for text, numbers, lists, maps, tuples and rows. Each kernel has a small build with
only these, which compiles in a fraction of the time.
"""

SLOT_SHIFT = 4
"""Slot operands with flags have the flags in the lowest four bits."""

LIST_MASKED = 1
"""A bit mask of nulls follows the count, which may be up to 8 times the remaining bytes."""
LIST_LOOSE = 2
"""The count may be up to 8 times the remaining bytes."""

TEXT_UTF16 = 1
TEXT_WITHOUT_NULL = 2

BYTES_COUNTED = 0
BYTES_COUNTED_TEXT = 1
"""Like BYTES_COUNTED, but the bytes must be UTF-8."""
BYTES_SIZED = 2
BYTES_REST = 3

SLOT_TEXT = 1
"""UTF-8; up to 7 bytes are in the slot itself."""
SLOT_BINARY = 2
"""Bytes; up to 7 of them are in the slot itself."""
SLOT_RAW = 0

TIME_INSTANT = 0
"""i64 seconds, i32 nanos; null is the smallest value of both."""
TIME_SQL = 1
"""i64 ms, i32 nanos of the second; null is the smallest ms."""
TIME_DATA = 2
"""i64 ms, i32 nanos within the ms."""
TIME_DATA_MS = 3
"""i64 ms."""
TIME_LOCAL = 4
"""A local date and a local time."""
TIME_MS = 5
"""i64 ms; null is the smallest ms."""
TIME_KIND = 7
"""Mask of the values above."""
TIME_EXACT = 8
"""Seconds and nanos in two columns (TIME_MS: ms in one), instead of microseconds in one."""

REGION_AT = 0
"""i32 size, then the memory."""
REGION_SLOT = 1
"""In the variable part of another frame."""
REGION_KEYS = 2
"""The keys of a map."""
REGION_VALUES = 3
"""The values of a map."""

# -------------------------------------------------------------------------------------- reports

# Status words of a kernel: 0 code, 1 address, 2 column, 3 needed, 4 scratch.
STATUS_WORDS = 5
OK = 0
NEED_SPACE = 1
"""The column in word 2 needs room for the number of bytes or items in word 3."""
TRUNCATED = 2
BAD_LENGTH = 3
ENDLESS_NUMBER = 4
BAD_UNIT = 5
BAD_MARKER = 6
LEFT_OVER = 7
BAD_DELIMITER = 8
BAD_DIGITS = 9
BAD_VALUE = 10
"""The bytes are not a value of the type."""
BAD_MEMORY = 11
"""SQL memory with inconsistent sizes or offsets."""
UNKNOWN_INSTRUCTION = 12

# Valid in Flink, but a column of the chosen form cannot hold it.
LONE_SURROGATE = 16
NULL_KEY = 17
TOO_LARGE = 18
NOT_EXACT = 19
"""A time that is not a whole number of microseconds, or is out of a column's range."""
ROW_KIND = 20
UNREADABLE = 21
"""A value that only a Java class of the job can read."""
NOT_A_COLUMN = 22
NO_UTF8 = 23

ALWAYS_NULL = -1
"""Encoding: the validity of a column whose values are all null."""

# Encoding: a column holds a value that the type does not allow.
NULL_VALUE = 24
EMPTY_LIST = 25
BAD_ROW_KIND = 26
