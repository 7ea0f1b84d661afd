"""Loads, stores and copies at addresses, for kernels only.

Each function is one unaligned instruction. Indexing a NumPy array instead checks the sign of the
index and moves single bytes, which is 3-15 times slower. **Nothing is checked here**: a kernel
compares every address with the end of its buffer first. The damage tests run the same kernels with
a replacement of this module that knows the readable and writable bytes and refuses all others.

``load`` and ``store`` are big-endian, as in Java. ``get`` and ``put`` use the machine's byte order.
All values are int64, since numba converts mixed widths to floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_raw_memcpy: Any = cgutils.raw_memcpy

Load = Callable[[int], int]
Store = Callable[[int, int], None]


def _load(bits: int, *, swap: bool, signed: bool) -> Load:
    @intrinsic
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.IntType(bits)
            value = builder.load(builder.inttoptr(args[0], kind.as_pointer()), align=1)
            if swap:
                reverse = builder.module.declare_intrinsic("llvm.bswap", [kind])
                value = builder.call(reverse, [value])
            if bits == 64:
                return value
            return (builder.sext if signed else builder.zext)(value, ir.IntType(64))

        return types.int64(types.int64), generate

    loader: Any = load  # only called from compiled code, which passes no typing context
    return cast(Load, loader)


def _store(bits: int, *, swap: bool = False) -> Store:
    @intrinsic
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.IntType(bits)
            value = args[1] if bits == 64 else builder.trunc(args[1], kind)
            if swap:
                reverse = builder.module.declare_intrinsic("llvm.bswap", [kind])
                value = builder.call(reverse, [value])
            builder.store(value, builder.inttoptr(args[0], kind.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    storer: Any = store
    return cast(Store, storer)


load8 = _load(8, swap=False, signed=False)
load16 = _load(16, swap=True, signed=False)
load32 = _load(32, swap=True, signed=True)
load64 = _load(64, swap=True, signed=True)
get16 = _load(16, swap=False, signed=False)
get32 = _load(32, swap=False, signed=True)
get64 = _load(64, swap=False, signed=True)
put8 = _store(8)
put16 = _store(16)
put32 = _store(32)
put64 = _store(64)
store16 = _store(16, swap=True)
store32 = _store(32, swap=True)
store64 = _store(64, swap=True)


@intrinsic
def _copy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        to = builder.inttoptr(args[0], pointer)
        _raw_memcpy(builder, to, builder.inttoptr(args[1], pointer), args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


_copier: Any = _copy
copy: Callable[[int, int, int], None] = _copier
"""``copy(target, source, size)``: the two ranges must not overlap."""


@intrinsic
def _prefetch(typing_context: Any, address: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        to_read, keep, data = word(0), word(3), word(1)
        builder.call(function, [builder.inttoptr(args[0], pointer), to_read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


_prefetcher: Any = _prefetch
prefetch: Callable[[int], None] = _prefetcher
"""Brings the memory at an address into the cache. It reads nothing, so any address is allowed."""
