"""The instructions of a compiled type, and what the two kernels report.

An instruction is eight int64 words: the operation, then operands. The same program runs in both
directions: over bytes into columns, and over columns into bytes. Operands that name a column are
addresses, put in when the program is bound to the buffers of one batch; 0 means "not wanted".

    word   fixed-size          text, bytes        list             other
    1      values              offsets            offsets          see the operation
    2      validity            validity           validity         validity
    3      -                   data               items' capacity
    4      width               data's capacity    bytes of an item at least
    5      how                 how                its LOOP         -
    6      -                   -                  -                -
    7      number of the column

Validity is a byte a value in both directions: packed after decoding, unpacked before encoding; so
are booleans. Encoding, a validity of 0 means that nothing is null. Loops
and frames keep their state in their own words: a type never contains itself, so each is in use once
at a time. Jumps and frames are byte offsets from the start of the program.
"""

from __future__ import annotations

SIGN_BIT = -0x8000000000000000
LIST_DELIMITER = 0x2C
"""Between the elements of list state."""

WORDS = 8
INSTRUCTION_BYTES = 8 * WORDS

# -------------------------------------------------------------------------------- plain values

END = 0
"""The bytes must end here."""
TEXT = 1
"""Flink's string value. How: bits ``TEXT_UTF16`` and ``TEXT_WITHOUT_NULL``."""
COPY8 = 2
COPY4 = 3
COPY2 = 4
COPY1 = 5
BOOL = 6
FLIP8 = 7
"""int64 with its sign bit flipped (timers)."""
MARKER = 8
"""One byte that says nothing. Word 1: what it must be, or -1 for anything."""
LIST = 9
"""i32 count, items. Word 6: 0 or one of ``LIST_*``."""
LOOP = 10
"""End of an item. Words: 1 items left, 2 the list's row, 3 the first instruction of an item,
4 and 5 the mask and the number of the item in it.
"""
DELIMITED = 11
"""Items joined by a comma byte, up to the end (list state)."""
NEXT_DELIMITED = 12
"""As LOOP. Words: 1 first instruction of an item, 2 the list's row, 3 DELIMITED itself."""
NULL_FLAG = 13
"""One byte, not 0 = null. Word 1: where to go on if it is not null; word 3: bytes after a null."""
PRESENT_FLAG = 14
"""One byte, 0 = null. As NULL_FLAG."""
SKIP_REST = 15
"""What is left is ignored."""
JUMP = 16
NULL_FIXED = 17
NULL_OFFSETS = 18
NULL_STRUCT = 19
VALID = 20
"""The struct is there."""
BYTES = 21
"""Bytes. How: one of ``BYTES_*``; word 6 the size for ``BYTES_SIZED``."""
MARK = 22
"""Remembers the place. Word 1: the LENGTH_DIGITS that will ask for it."""
LENGTH_DIGITS = 23
"""The number of bytes since MARK, as little-endian digits. Word 1: the place."""
REQUIRE = 24
"""What was just read must not be null (word 2 its validity)."""
POSITION = 25
"""Notes the address that is reached; reads nothing."""

# ------------------------------------------------------------------------ numbers, dates, unions

BIG_INT = 26
"""i32 length and two's complement, with codes for null, 0, 1 and 10. How: 1 if never null."""
ZERO_IS_NULL = 27
"""Peeks at an i32, which is read if it is 0 = null. As NULL_FLAG."""
DECIMAL = 28
"""Into 16 bytes. How: 0 i64, 1 i32 size and two's complement."""
INDEX4 = 29
"""i32 from 0 up to below word 5."""
TIMESTAMP = 30
"""Into int64, and int32 at word 3 with ``TIME_EXACT``. How: one of ``TIME_*``."""
LOCAL_DATE = 31
LOCAL_TIME = 32
MASK = 33
"""Bits of a null mask, highest first. Word 3: how many; 1: whether the first two are a row kind;
2: whether another kind than +I is refused; 4 and 5: where the kind goes, and its validity; 6: the
place of the mask.
"""
MASK_FIELD = 34
"""As NULL_FLAG for the bit word 4 of the mask at word 3 (a MASK); for word 4 = -1 the item of the
LOOP at word 3.
"""
EITHER = 35
"""A byte: not 0 = left, or 1 = left and 2 = right if word 5 is 1. Word 3: where left goes on."""
POJO = 36
"""Flags of a POJO. Word 1: fields of the class itself; 3: where subclasses are told apart, or 0;
4: the number of registered subclasses; 5: the tag, or -1; 6: where the class name starts, after
its length (encoding: the column of the class's number).
"""
TAG_IS = 37
"""Word 1: where to go if the tag of the POJO at word 3 is word 4."""
CLASS_IS = 38
"""Word 1: where to go if the class name of the POJO at word 3 has the word 4 bytes at word 5.
Encoding: if its number is word 6; the name is written.
"""
REFUSE = 39
"""What comes here cannot be read. Word 3: the code."""
STREAM_TAG = 40
"""Tag of a stream element, with its timestamp if it has one."""
SIZES = 41
"""Two i32 lengths, for the two BYTES at words 3 and 4."""

# --------------------------------------------------------------------------------- SQL memory

FRAME = 42
"""No instruction: two lines of words for a row, array or map. 1 start, 2 size, 3 bytes left for the
variable part, 4 slots, 5 null bits, 6 first null bit, 7 items, 9 first row of the items.
"""
REGION = 43
"""Finds the memory for the frame at word 1. Word 2: one of ``REGION_*``; 3: the frame around it; 4:
the slot in it.
"""
REGION_END = 44
"""Operands of its REGION."""
SQL_ROW = 45
"""Word 1: frame; 3: number of fields; 4 and 5: where the row kind goes, and its validity; 6:
whether another kind than +I is refused.
"""
SQL_ARRAY = 46
"""As LIST; word 4 bytes of a slot, 6 frame. Word 3 is -1 for the values of a map: they have the
rows of the keys, whose frame is at word 1.
"""
NEXT_SLOT = 47
"""As LOOP. Word 4: bytes of a slot; 5: frame."""
SLOT_NULL = 48
"""As NULL_FLAG for bit word 4 of the frame at word 3."""
SLOT = 49
"""A little-endian value of word 4 bytes. Word 3: frame, 5: slot, 6: 1 for a boolean."""
SLOT_BYTES = 50
"""Text and bytes. Word 5: slot and how (``SLOT_SHIFT``); 6: frame."""
SLOT_DECIMAL = 51
"""Into 16 bytes. Word 3: frame, 5: slot, 6: 1 if in the variable part."""
SLOT_TIMESTAMP = 52
"""As TIMESTAMP. Word 4: frame, 5: slot and how, 6: 1 if in the variable part."""

CONSTANT4 = 53
"""Word 5, an int32, without bytes."""

PLAIN = frozenset((*range(BIG_INT), ZERO_IS_NULL, MASK, MASK_FIELD, EITHER))
"""What text, numbers, lists, maps, tuples and rows need: each kernel has a small build for these,
which compiles in a fraction of the time.
"""

SLOT_SHIFT = 4
"""Slot operands that carry flags have them in the lowest four bits."""

LIST_MASKED = 1
"""A bit mask of nulls follows the count, which may be 8 times what is left."""
LIST_LOOSE = 2
"""The count may be 8 times what is left."""

TEXT_UTF16 = 1
TEXT_WITHOUT_NULL = 2

BYTES_COUNTED = 0
BYTES_COUNTED_TEXT = 1
"""As BYTES_COUNTED, and they must be UTF-8."""
BYTES_SIZED = 2
BYTES_REST = 3

SLOT_TEXT = 1
"""Must be UTF-8; up to 7 bytes may stand in the slot."""
SLOT_BINARY = 2
"""Up to 7 bytes may stand in the slot."""
SLOT_RAW = 0

TIME_INSTANT = 0
"""i64 seconds, i32 nanos; the smallest of both are null."""
TIME_SQL = 1
"""i64 ms, i32 nanos of the second; the smallest ms are null."""
TIME_DATA = 2
"""i64 ms, i32 nanos of the ms."""
TIME_DATA_MS = 3
"""i64 ms."""
TIME_LOCAL = 4
"""A local date and a local time."""
TIME_MS = 5
"""i64 ms; the smallest are null."""
TIME_KIND = 7
"""Mask of these."""
TIME_EXACT = 8
"""Seconds and nanos in two columns (TIME_MS: ms in one), instead of microseconds in one."""

REGION_AT = 0
"""i32 size, memory."""
REGION_SLOT = 1
"""In the variable part of another frame."""
REGION_KEYS = 2
"""The keys of a map."""
REGION_VALUES = 3
"""The values of a map."""

# -------------------------------------------------------------------------------------- reports

# What a kernel reports in its status words: 0 code, 1 address, 2 column, 3 needed, 4 scratch.
STATUS_WORDS = 5
OK = 0
NEED_SPACE = 1
"""The column in word 2 needs room for as many bytes or items as word 3 says."""
TRUNCATED = 2
BAD_LENGTH = 3
ENDLESS_NUMBER = 4
BAD_UNIT = 5
BAD_MARKER = 6
LEFT_OVER = 7
BAD_DELIMITER = 8
BAD_DIGITS = 9
BAD_VALUE = 10
"""A value that its type does not have."""
BAD_MEMORY = 11
"""SQL memory that contradicts itself."""
UNKNOWN_INSTRUCTION = 12

# Legal in Flink, but not in a column of the chosen form.
LONE_SURROGATE = 16
NULL_KEY = 17
TOO_LARGE = 18
NOT_EXACT = 19
"""A time between two microseconds, or too far away for a column."""
ROW_KIND = 20
UNREADABLE = 21
"""Only a Java class of the job can read it."""
NOT_A_COLUMN = 22
NO_UTF8 = 23

ALWAYS_NULL = -1
"""Encoding: as validity, that every value is null."""

# Encoding: what a column holds and the type does not.
NULL_VALUE = 24
EMPTY_LIST = 25
BAD_ROW_KIND = 26
