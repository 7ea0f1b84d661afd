"""Merges sorted runs of table entries to rows: the compiled ``sst.merge``."""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import get64, load8, load16, put64
from dstl_core.codec.columnar.kernels.scan import SPAN_BYTES
from dstl_core.codec.columnar.kernels.tables.table_blocks import ENTRY_BYTES, is_before, same_bytes

DELETION, PUT, MERGE, SINGLE_DELETION = 0, 1, 2, 7

OPERAND_WORDS = 3
"""Words of an operand: its row, start and end of its value."""

# Words of the result: number of operands, and the kind that is not supported.
OPERAND_COUNT, BAD_KIND = range(2)
RESULT_WORDS = 2


@kernel
def insert_run(runs: int, order: int, count: int, at: int) -> None:
    """Moves the run at place ``at`` behind all later runs whose next entry sorts before its own."""
    run = get64(order + 8 * at)
    line = get64(runs + 16 * run)
    while at + 1 < count:
        other = get64(order + 8 * at + 8)
        if not is_before(get64(runs + 16 * other), line):
            break
        put64(order + 8 * at, other)
        at += 1
    put64(order + 8 * at, run)


@kernel
def advance(runs: int, order: int, count: int) -> int:
    """Moves the first run to its next entry and to its place; returns how many runs are left."""
    run = runs + 16 * get64(order)
    line = get64(run) + ENTRY_BYTES
    put64(run, line)
    if line < get64(run + 8):
        insert_run(runs, order, count, 0)
        return count
    for at in range(count - 1):
        put64(order + 8 * at, get64(order + 8 * at + 8))
    return count - 1


@kernel
def merge_runs(
    runs: int,
    order: int,
    count: int,
    prefix: int,
    first: int,
    last: int,
    spans: int,
    operands: int,
    result: int,
) -> int:
    """Writes a span for each row of the key groups ``first`` to ``last``, in the order of keys.

    Args:
        runs: Address of two words for each run: its next line, and the end of its lines. The lines
            of a run are sorted, and there is at least one.
        order: Scratch space of one word for each run.
        count: Number of runs.
        prefix: Bytes of a key group.
        first: First key group.
        last: Last key group.
        spans: Receives spans; their keys start after the key group. State ids are 0.
        operands: Receives the versions of rows that end with a merge, newest first.
        result: Receives ``RESULT_WORDS`` words.

    Returns:
        The number of rows, or -1 for an entry of an unknown kind.
    """
    for run in range(count):
        put64(order + 8 * (count - 1 - run), run)
        insert_run(runs, order, count, count - 1 - run)
    rows = 0
    operands_written = 0
    start = size = 0
    is_open = False
    while count > 0:
        line = get64(runs + 16 * get64(order))
        key = get64(line)
        key_size = get64(line + 8) - key
        kind = get64(line + 32) & 0xFF
        is_new = start == 0 or not same_bytes(start, size, key, key_size)
        is_known = kind == PUT or kind == MERGE or kind == DELETION or kind == SINGLE_DELETION
        if (is_new or is_open) and not is_known:
            put64(result + 8, kind)
            return -1
        if is_new:
            start = key
            size = key_size
            is_open = False
            group = load16(key) if prefix == 2 else load8(key)
            if group >= first and group <= last and (kind == PUT or kind == MERGE):
                span = spans + SPAN_BYTES * rows
                put64(span, key + prefix)
                put64(span + 8, key + key_size)
                put64(span + 16, get64(line + 16))
                put64(span + 24, get64(line + 24))
                put64(span + 32, group << 16)
                rows += 1
                is_open = kind == MERGE
        if is_open:
            if kind == PUT or kind == MERGE:
                put64(operands + 24 * operands_written, rows - 1)
                put64(operands + 24 * operands_written + 8, get64(line + 16))
                put64(operands + 24 * operands_written + 16, get64(line + 24))
                operands_written += 1
            is_open = kind == MERGE
        count = advance(runs, order, count)
    put64(result, operands_written)
    return rows
