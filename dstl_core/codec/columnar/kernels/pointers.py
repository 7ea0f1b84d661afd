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
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dstl_core.errors import InvariantViolation

_raw_memcpy: Any = cgutils.raw_memcpy  # untyped


def _loader(bits: int, result: types.Type) -> Any:
    @intrinsic
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.IntType(bits)
            value = builder.load(builder.inttoptr(args[0], kind.as_pointer()), align=1)
            swap = builder.module.declare_intrinsic("llvm.bswap", [kind])
            return builder.call(swap, [value])

        return result(types.int64), generate

    return load


def _storer(bits: int, kind_of_value: types.Type) -> Any:
    @intrinsic
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.IntType(bits)
            swap = builder.module.declare_intrinsic("llvm.bswap", [kind])
            swapped = builder.call(swap, [args[1]])
            builder.store(swapped, builder.inttoptr(args[0], kind.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, kind_of_value), generate

    return store


_load_i32 = _loader(32, types.int32)
_store_i32 = _storer(32, types.int32)


@intrinsic
def _raw_copy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        _raw_memcpy(
            builder,
            builder.inttoptr(args[0], pointer),
            builder.inttoptr(args[1], pointer),
            args[2],
            1,
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


# Only called from compiled code, which passes no typing context.
_memcpy: Any = _raw_copy


@numba.njit(inline="always")
def load_i32(array: Any, position: Any) -> Any:
    """The big-endian int32 at ``array[position : position + 4]``."""
    return _load_i32(np.int64(array.ctypes.data) + np.int64(position))


@numba.njit(inline="always")
def store_i32(array: Any, position: Any, value: Any) -> None:
    """Writes a big-endian int32."""
    _store_i32(np.int64(array.ctypes.data) + np.int64(position), np.int32(value))


@numba.njit(inline="always")
def copy_bytes(target: Any, to: Any, source: Any, from_: Any, size: Any) -> None:
    """Copies ``source[from_ : from_ + size]`` to ``target[to:]``; they must not overlap."""
    _memcpy(
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
