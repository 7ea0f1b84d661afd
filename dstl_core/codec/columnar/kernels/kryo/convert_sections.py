"""Converts sections of canonical keyed state: records are copied or converted."""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.kryo import codes as k
from dstl_core.codec.columnar.kernels.kryo.build_scalars import give_big
from dstl_core.codec.columnar.kernels.kryo.codes import stop
from dstl_core.codec.columnar.kernels.kryo.convert import VALUE, convert_stored
from dstl_core.codec.columnar.kernels.kryo.write_objects import give_bytes
from dstl_core.codec.columnar.kernels.memory import get64, load8, load16, load32, put64, store32

# What happens to the records of a state.
DROPPED = 0
COPIED = 1
CONVERTED = 2

# Words of a state: what happens, its new number, the node of its values, its framing, how many were
# converted, the node of its stored keys. What has no node is copied.
STATE_BYTES = 48
STATE_ID = 8
STATE_NODE = 16
STATE_FRAMING = 24
STATE_COUNT = 32
STATE_KEY = 40

# Words of a section: where it goes on, its end, the state there (-1: its number is next).
SECTION_END = 8
SECTION_STATE = 16
SECTION_VALUE = 24
"""Start and end of the value where the kernel stopped."""
SECTION_LAST = 40
"""The state of the last run."""
SECTION_WORDS = 6

DAMAGED = 6
"""A section is left to the code that reads it record by record, and says what is wrong."""
END_OF_KEY_GROUP = 0xFFFF


@kernel
def next_run(c: int, section: int, states: int, state_count: int) -> int:
    """Reads the number of a state, and writes its new one; returns it, -2 at the end, or -1."""
    at = get64(section)
    if get64(section + SECTION_END) - at < 2:
        return stop(c, DAMAGED, 0, 0)
    number = load16(at)
    if number == END_OF_KEY_GROUP:
        return -2
    if number >= state_count or number == get64(section + SECTION_LAST):
        return stop(c, DAMAGED, 0, 0)
    state = states + STATE_BYTES * number
    if get64(state) != DROPPED and give_big(c, get64(state + STATE_ID), 2) < 0:
        return -1
    put64(section, at + 2)
    put64(section + SECTION_LAST, number)
    return number


@kernel
def part_end(at: int, end: int) -> int:
    """The end of bytes behind their length, or -1."""
    if end - at < 4:
        return -1
    size = load32(at)
    return -1 if size < 0 or size > end - at - 4 else at + 4 + size


@kernel
def convert_part(c: int, node: int, framing: int, at: int, end: int) -> int:
    """Writes the new length of a key or value, and the key or value."""
    if node == 0:
        return give_bytes(c, at - 4, end - at + 4)
    if give_big(c, 0, 4) < 0:
        return -1
    start = get64(c + k.OUT)
    put64(c + k.AT, at)
    put64(c + k.END, end)
    if convert_stored(c, node, framing) < 0 or get64(c + k.STATUS) != k.DONE:
        return -1
    store32(start - 4, get64(c + k.OUT) - start)
    return 0


@kernel
def convert_record(c: int, section: int, state: int) -> int:
    """Writes the next record; returns 1 if it is the last of its run, 0, or -1."""
    at = get64(section)
    end = get64(section + SECTION_END)
    key_end = part_end(at, end)
    after = -1 if key_end <= at + 4 else part_end(key_end, end)
    if after < 0:
        return stop(c, DAMAGED, 0, 0)
    last = 1 if load8(at + 4) >= k.MORE else 0
    action = get64(state)
    if action == COPIED:
        if give_bytes(c, at, after - at) < 0:
            return -1
    elif action == CONVERTED:
        put64(section + SECTION_VALUE, key_end + 4)
        put64(section + SECTION_VALUE + 8, after)
        key = get64(state + STATE_KEY)
        node = get64(state + STATE_NODE)
        framing = get64(state + STATE_FRAMING)
        if convert_part(c, key, VALUE, at + 4, key_end) < 0:
            return -1
        if convert_part(c, node, framing, key_end + 4, after) < 0:
            return -1
        put64(state + STATE_COUNT, get64(state + STATE_COUNT) + 1)
    put64(section, after)
    return last


@kernel
def convert_section(c: int, section: int, states: int, state_count: int) -> int:
    """Converts records of a section to its end mark, from where ``section`` says.

    It stops before a record that is unsupported, or that lacks something, and so does the output.
    Returns the status.
    """
    put64(c + k.STATUS, k.DONE)
    number = get64(section + SECTION_STATE)
    while True:
        out = get64(c + k.OUT)
        if number < 0:
            number = next_run(c, section, states, state_count)
            if number == -2:
                return k.DONE
            done = min(number, 0)
        else:
            done = convert_record(c, section, states + STATE_BYTES * number)
            if done == 1:
                number = -1
        if done < 0:
            put64(c + k.OUT, out)
            return get64(c + k.STATUS)
        put64(section + SECTION_STATE, number)
