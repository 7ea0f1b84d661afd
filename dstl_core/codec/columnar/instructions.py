"""The instructions of a compiled type, and what the two kernels report.

An instruction is eight int64 words: the operation, then operands. The same program runs in both
directions: over bytes into columns, and over columns into bytes. Operands that name a column are
addresses, put in when the program is bound to the buffers of one batch; 0 means "not wanted".

    word   fixed-size          text, bytes        list             other
    1      values              offsets            offsets          see the operation
    2      validity            validity           validity         validity
    3      -                   data               items' capacity
    4      width               data's capacity    bytes of an item at least
    5      -                   how (see below)    its LOOP         -
    6      -                   -                  -                -
    7      decoding: number of the column; encoding: first bit of the validity bitmap

Validity is a byte a value while decoding (packed at the end), Arrow's bitmap while encoding. Loops
keep their state in their own words: a type never contains itself, so a loop runs once at a time.
Jumps are byte offsets from the start of the program.
"""

from __future__ import annotations

WORDS = 8
INSTRUCTION_BYTES = 8 * WORDS

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
"""One byte that says nothing: word 1 what it must be, word 3 the error code otherwise."""
LIST = 9
"""i32 count, items."""
LOOP = 10
"""End of an item. Words: 1 items left, 2 the list's row, 3 the first instruction of an item."""
DELIMITED = 11
"""Items joined by a comma byte, up to the end (list state)."""
NEXT_DELIMITED = 12
"""As LOOP. Words: 1 first instruction of an item, 2 the list's row, 3 DELIMITED itself."""
NULL_FLAG = 13
"""One byte, not 0 = null. Word 1: where to go on if it is not null; word 3: bytes after a null."""
PRESENT_FLAG = 14
"""One byte, 0 = null. As NULL_FLAG."""
SKIP_REST = 15
"""What is left is ignored (after a null map value)."""
JUMP = 16
NULL_FIXED = 17
NULL_OFFSETS = 18
NULL_STRUCT = 19
VALID = 20
"""The struct is there."""
BYTES = 21
"""i32 length, bytes."""
MARK = 22
"""Remembers the place. Word 1: the LENGTH_DIGITS that will ask for it."""
LENGTH_DIGITS = 23
"""The number of bytes since MARK, as little-endian digits. Word 1: the place."""
REQUIRE = 24
"""What was just read must not be null (word 2 its validity)."""
POSITION = 25
"""Notes the address that is reached; reads nothing."""

TEXT_UTF16 = 1
TEXT_WITHOUT_NULL = 2

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
LONE_SURROGATE = 10
"""Legal in Flink, but Arrow's text cannot hold it."""
NULL_KEY = 11
"""Legal in Flink, but the keys of an Arrow map are never null."""
TOO_LARGE = 12
"""More than 2 GiB in one column of one batch."""
UNKNOWN_INSTRUCTION = 13
BAD_VALUE = 14
"""A value that its type does not have."""
