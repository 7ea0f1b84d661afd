"""Finds the records in sections of canonical keyed state, without decoding them.

A record becomes a *span* of five int64 words: start and end address of the key, start and end
address of the value, and ``key group << 16 | state id``. The key starts after its key group. All
other code uses spans to decode, filter, join, compare and copy.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.instructions import BAD_LENGTH, OK, TRUNCATED
from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import get64, load8, load16, load32, put64

SPAN_WORDS = 5
SPAN_BYTES = 8 * SPAN_WORDS
KEY_START, KEY_END, VALUE_START, VALUE_END, TAG = range(SPAN_WORDS)

SECTION_WORDS = 3
"""Words of a section: start, end, key group."""

# Words of the resume block: where the scan continues.
RESUME_SECTION, RESUME_AT, RESUME_STATE, RESUME_BYTES = range(4)
RESUME_WORDS = 4
NO_STATE = -1
"""The next two bytes are a state id."""

# Reasons for the end of a scan, in addition to the codes of ``instructions``.
BATCH_FULL = 32
NEED_INPUT = 33
BAD_STATE = 34
EMPTY_KEY = 35
FOREIGN_KEY_GROUP = 36

END_OF_KEY_GROUP = 0xFFFF


@kernel
def stop(status: int, code: int, address: int, resume: int, at: int, state: int) -> None:
    put64(status, code)
    put64(status + 8, address)
    put64(resume + 8, at)
    put64(resume + 16, state)


@kernel
def scan_sections(
    sections: int,
    section_count: int,
    available: int,
    prefix: int,
    state_count: int,
    wanted: int,
    spans: int,
    capacity: int,
    byte_limit: int,
    resume: int,
    status: int,
) -> int:
    """Scans from the place in ``resume``; returns the number of spans found.

    Args:
        sections: Address of the sections.
        section_count: Number of sections.
        available: End of the bytes in memory; a section may continue after it.
        prefix: Bytes of the key group in a key.
        state_count: Number of states in the header.
        wanted: Address of one byte per state: whether its records become spans.
        spans: Address of the output.
        capacity: Number of spans that the output can hold.
        byte_limit: The scan stops once the keys and values of the spans have this many bytes.
        resume: Section, address (0: start of the section), state; updated for the next call.
        status: Receives OK at the end of the sections, BATCH_FULL, NEED_INPUT, or an error.
    """
    spans_written = 0
    size = 0
    index = get64(resume)
    at = get64(resume + 8)
    state = get64(resume + 16)
    while index < section_count:
        section = sections + 24 * index
        end = get64(section + 8)
        key_group = get64(section + 16)
        if at == 0:
            at = get64(section)
            state = NO_STATE
        put64(resume, index)
        while True:
            if state == NO_STATE:
                if end - at < 2:
                    stop(status, TRUNCATED, at, resume, at, state)
                    return spans_written
                if available - at < 2:
                    stop(status, NEED_INPUT, at, resume, at, state)
                    return spans_written
                state = load16(at)
                if state == END_OF_KEY_GROUP:
                    break
                if state >= state_count:
                    stop(status, BAD_STATE, at, resume, at, NO_STATE)
                    return spans_written
                at += 2
            if spans_written == capacity or (size >= byte_limit and spans_written > 0):
                stop(status, BATCH_FULL, at, resume, at, state)
                return spans_written
            if end - at < 4:
                stop(status, TRUNCATED, at, resume, at, state)
                return spans_written
            if available - at < 4:
                stop(status, NEED_INPUT, at, resume, at, state)
                return spans_written
            length = load32(at)
            if length < 0 or length > end - at - 4:
                stop(status, BAD_LENGTH, at, resume, at, state)
                return spans_written
            if length == 0:
                stop(status, EMPTY_KEY, at, resume, at, state)
                return spans_written
            key = at + 4
            value = key + length
            if end - value < 4:
                stop(status, TRUNCATED, value, resume, at, state)
                return spans_written
            if available - value < 4:
                stop(status, NEED_INPUT, at, resume, at, state)
                return spans_written
            length = load32(value)
            if length < 0 or length > end - value - 4:
                stop(status, BAD_LENGTH, value, resume, at, state)
                return spans_written
            next_at = value + 4 + length
            if next_at > available:
                stop(status, NEED_INPUT, at, resume, at, state)
                return spans_written
            group = load8(key)
            last = group >= 0x80
            group &= 0x7F
            if prefix == 2:
                if value - key < 2:
                    stop(status, TRUNCATED, key, resume, at, state)
                    return spans_written
                group = group << 8 | load8(key + 1)
            if group != key_group:
                stop(status, FOREIGN_KEY_GROUP, at, resume, at, state)
                return spans_written
            if load8(wanted + state) != 0:
                span = spans + SPAN_BYTES * spans_written
                put64(span, key + prefix)
                put64(span + 8, value)
                put64(span + 16, value + 4)
                put64(span + 24, next_at)
                put64(span + 32, key_group << 16 | state)
                spans_written += 1
                size += next_at - key
            at = next_at
            if last:
                state = NO_STATE
        index += 1
        at = 0
    put64(resume, index)
    stop(status, OK, 0, resume, 0, NO_STATE)
    return spans_written


@kernel
def span_bytes(spans: int, count: int) -> int:
    """Total bytes of ``count`` values whose start and end are at ``spans``."""
    total = 0
    for row in range(count):
        total += get64(spans + SPAN_BYTES * row + 8) - get64(spans + SPAN_BYTES * row)
    return total
