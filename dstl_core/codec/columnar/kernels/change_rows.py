"""Splits change records into operation, state id and rest, and sorts events by key group."""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import get32, get64, load8, load16, put64
from dstl_core.codec.columnar.kernels.scan import SPAN_BYTES

HEAD_BYTES = 3
"""Size of operation and state id."""

EVENT_WORDS = 7
"""An event: key, value, end of the scope (which starts with the key), order, and if it is a put."""
KEY_START, KEY_END, VALUE_START, VALUE_END, SCOPE_END, ORDER, IS_PUT = range(EVENT_WORDS)


@kernel
def split_changes(
    data: int, offsets: int, groups: int, rows: int, spans: int, operations: int, ids: int
) -> int:
    """Writes spans whose value starts after the state id, without keys.

    Args:
        data: Address of the records' bytes.
        offsets: Address of ``rows + 1`` int32: where each record starts.
        groups: Address of the key groups, int32.
        rows: Number of records.
        spans: Receives the spans.
        operations: Receives the operations, int64.
        ids: Receives the state ids, int64.

    Returns:
        -1, or the first row that is too short.
    """
    end = get32(offsets)
    for row in range(rows):
        start = end
        end = get32(offsets + 4 * row + 4)
        if end - start < HEAD_BYTES:
            return row
        at = data + start
        span = spans + SPAN_BYTES * row
        put64(span, 0)
        put64(span + 8, 0)
        put64(span + 16, at + HEAD_BYTES)
        put64(span + 24, data + end)
        put64(span + 32, get32(groups + 4 * row) << 16)
        put64(operations + 8 * row, load8(at))
        number = load16(at + 1)
        put64(ids + 8 * row, number - 0x10000 if number >= 0x8000 else number)
    return -1


@kernel
def place_events(
    columns: int, groups: int, rows: int, is_put: int, first: int, cursors: int, events: int
) -> None:
    """Writes events behind those of the same key group that were placed before.

    Args:
        columns: Address of the addresses of six int64 columns: the words before ``IS_PUT``.
        groups: Address of the key groups, int64.
        rows: Number of events.
        is_put: The last word of each event.
        first: The first key group.
        cursors: Address of the place of the next event of each key group.
        events: Receives the events.
    """
    for row in range(rows):
        cursor = cursors + 8 * (get64(groups + 8 * row) - first)
        at = get64(cursor)
        put64(cursor, at + 1)
        event = events + 8 * EVENT_WORDS * at
        for word in range(IS_PUT):
            put64(event + 8 * word, get64(get64(columns + 8 * word) + 8 * row))
        put64(event + 8 * IS_PUT, is_put)
