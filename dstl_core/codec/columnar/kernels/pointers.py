"""Loads, stores and copies at ``array[position]`` without wrap-around and without bounds checks.

Indexing a uint8 array in a kernel checks the sign of every index and loads byte by byte. These
functions compile to one unaligned load, a byte swap and a memcpy, 3-15 times faster. They check
nothing: **every kernel checks each position against the end of its array first.** The damage tests
run the same kernels with ``CHECKED``, whose functions have the same names and meaning and raise for
positions outside the array.
"""

from __future__ import annotations

import types as python_types
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from dstl_core.codec.columnar.kernels import memory
from dstl_core.errors import InvariantViolation

# Compiled code passes NumPy's integers.
_copy: Any = memory.copy
_load32: Any = memory.load32
_store32: Any = memory.store32


@numba.njit(inline="always")
def load_i32(array: Any, position: Any) -> Any:
    """The big-endian int32 at ``array[position : position + 4]``."""
    return _load32(np.int64(array.ctypes.data) + np.int64(position))


@numba.njit(inline="always")
def store_i32(array: Any, position: Any, value: Any) -> None:
    """Writes a big-endian int32."""
    _store32(np.int64(array.ctypes.data) + np.int64(position), np.int64(value))


@numba.njit(inline="always")
def copy_bytes(target: Any, to: Any, source: Any, from_: Any, size: Any) -> None:
    """Copies ``source[from_ : from_ + size]`` to ``target[to:]``; they must not overlap."""
    _copy(
        np.int64(target.ctypes.data) + np.int64(to),
        np.int64(source.ctypes.data) + np.int64(from_),
        np.int64(size),
    )


def _checked(array: Any, position: int, size: int) -> slice:
    if not (position >= 0 and size >= 0 and position + size <= len(array)):
        raise InvariantViolation(
            f"a kernel left its array: {size} bytes at {position} of {len(array)}"
        )
    return slice(int(position), int(position) + int(size))


def _checked_load_i32(array: Any, position: int) -> int:
    return int.from_bytes(array[_checked(array, position, 4)].tobytes(), "big", signed=True)


def _checked_store_i32(array: Any, position: int, value: int) -> None:
    raw = int(value).to_bytes(4, "big", signed=True)
    array[_checked(array, position, 4)] = np.frombuffer(raw, np.uint8)


def _checked_copy(target: Any, to: int, source: Any, from_: int, size: int) -> None:
    target[_checked(target, to, size)] = source[_checked(source, from_, size)]


CHECKED: dict[str, Callable[..., Any]] = {
    "load_i32": _checked_load_i32,
    "store_i32": _checked_store_i32,
    "copy_bytes": _checked_copy,
}


def checked_build(kernel: Any) -> Callable[..., Any]:
    """The kernel as plain Python, which checks the bounds of every load, store and copy."""
    function = kernel.py_func
    return python_types.FunctionType(
        function.__code__, {**function.__globals__, **CHECKED}, function.__name__
    )
