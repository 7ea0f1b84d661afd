"""The kernels over memory that knows which bytes may be touched.

``guarded_build`` imports a second copy of ``dstl_core.codec.columnar``, compiled over twins of its
modules ``memory`` and ``addresses``: every load, store and copy is checked against the buffers that
the host has handed out, byte for byte. One that leaves them is not made, and counted in
``violations``.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar.kernels import jit as real_jit
from dstl_core.codec.columnar.kernels import memory as real
from dstl_core.codec.columnar.types import addresses as real_addresses

PACKAGE = "dstl_core.codec.columnar"
MOST_REGIONS = 1 << 16


_regions = np.zeros((MOST_REGIONS, 3), np.int64)
_count = np.zeros(1, np.int64)
REGIONS = real_addresses.address_of(_regions)
COUNT = real_addresses.address_of(_count)
_violations = np.zeros(1, np.int64)
VIOLATIONS = real_addresses.address_of(_violations)
_kept: list[Any] = []

get64, put64 = real.get64, real.put64


def forget_regions() -> None:
    """From here on, nothing may be touched that is not handed out again."""
    _count[0] = 0
    _kept.clear()


def violations() -> int:
    """How often a kernel left its buffers so far."""
    return int(_violations[0])


def add_region(address: int, size: int, *, writable: bool) -> None:
    assert _count[0] < MOST_REGIONS, "call forget_regions"
    _regions[_count[0]] = address, address + size, writable
    _count[0] += 1


def address_of(array: Any) -> int:
    """Hands out the bytes of an array."""
    address = real_addresses.address_of(array)
    add_region(address, array.nbytes, writable=bool(array.flags.writeable))
    _kept.append(array)  # so that nothing else gets the same address
    return address


class GuardedAllocator:
    """Buffers that a kernel may fill, to the byte."""

    def allocate(self, size: int) -> pa.Buffer:
        buffer = pa.allocate_buffer(size)
        add_region(buffer.address, size, writable=True)
        _kept.append(buffer)
        return buffer

    def grow(self, buffer: pa.Buffer, size: int) -> pa.Buffer:
        larger = self.allocate(size)
        kept = min(size, buffer.size)
        np.frombuffer(larger, np.uint8)[:kept] = np.frombuffer(buffer, np.uint8)[:kept]
        self._take_back(buffer.address)
        return larger

    def _take_back(self, address: int) -> None:
        for row in _regions[: _count[0]]:
            if row[0] == address:
                row[1] = address


@numba.cfunc("int64(int64, int64, int64)")
def _compiled_check(address: int, size: int, write: int) -> int:
    for index in range(get64(COUNT) - 1, -1, -1):
        region = REGIONS + 24 * index
        if get64(region) <= address and address + size <= get64(region + 8):
            if write == 1 and get64(region + 16) == 0:
                continue
            return 1
    put64(VIOLATIONS, get64(VIOLATIONS) + 1)
    return 0


# Called by a name, so that it is not inlined a thousand times, and so that a kernel of the cache
# finds the check of its process.
_NAME = "dstl_tests_is_allowed"
llvmlite.binding.add_symbol(_NAME, _compiled_check.address)
_is_allowed = numba.types.ExternalFunction(
    _NAME, numba.types.int64(numba.types.int64, numba.types.int64, numba.types.int64)
)


def _named(function: Any, name: str) -> Any:
    """Machine code is linked by name: functions that differ must not have one name."""
    function.__qualname__ = f"guarded_{name}"
    return function


def _guarded_load(load: Any, size: int, name: str) -> Any:
    def guarded(address: int) -> int:
        return load(address) if _is_allowed(address, size, 0) == 1 else 0

    return numba.njit(_named(guarded, name))


def _guarded_store(store: Any, size: int, name: str) -> Any:
    def guarded(address: int, value: int) -> None:
        if _is_allowed(address, size, 1) == 1:
            store(address, value)

    return numba.njit(_named(guarded, name))


_real_copy = real.copy


@numba.njit
def _guarded_copy(target: int, source: int, size: int) -> None:
    if size != 0 and _is_allowed(source, size, 0) == 1 and _is_allowed(target, size, 1) == 1:
        _real_copy(target, source, size)


@numba.njit
def _prefetch_nothing(address: int) -> None:
    """Prefetching touches no memory that a program can see."""


def _twin() -> types.ModuleType:
    twin = types.ModuleType(real.__name__)
    for name, size in (("8", 1), ("16", 2), ("32", 4), ("64", 8)):
        for kind, guard in (
            ("load", _guarded_load),
            ("get", _guarded_load),
            ("put", _guarded_store),
            ("store", _guarded_store),
        ):
            function = getattr(real, kind + name, None)
            if function is not None:
                setattr(twin, kind + name, guard(function, size, kind + name))
    twin.copy = _guarded_copy
    twin.prefetch = _prefetch_nothing
    return twin


def _twin_of_addresses() -> types.ModuleType:
    twin = types.ModuleType(real_addresses.__name__)
    twin.address_of = address_of
    return twin


@contextmanager
def _other_modules() -> Iterator[None]:
    own = {name: module for name, module in sys.modules.items() if name.startswith(PACKAGE)}
    for name in own:
        del sys.modules[name]
    parent = sys.modules["dstl_core.codec"]
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
            del sys.modules[name]
        sys.modules.update(own)
        parent.columnar = own[PACKAGE]


def _compile_apart(jit: Any) -> None:
    """Kernels of this build have a cache and names of their own.

    The cache of the real build would hand out its kernels. Machine code is linked by name: a kernel
    of the real build that comes from its cache would call functions of this one.
    """
    compile_kernel = jit.kernel
    if real_jit.CACHE_FOLDER is not None:
        digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
        jit.CACHE_FOLDER = real_jit.CACHE_FOLDER / f"guarded_{digest[:16]}"

    def compile_with_own_name(function: Any) -> Any:
        return compile_kernel(_named(function, function.__qualname__))

    jit.kernel = compile_with_own_name


@functools.cache
def guarded_build() -> types.SimpleNamespace:
    """Modules of the package by name, over guarded memory."""
    build = types.SimpleNamespace()
    with _other_modules():
        kernels = importlib.import_module(f"{PACKAGE}.kernels")
        _compile_apart(importlib.import_module(f"{PACKAGE}.kernels.jit"))
        build.memory = twin = _twin()
        sys.modules[twin.__name__] = kernels.memory = twin
        addresses = _twin_of_addresses()
        sys.modules[addresses.__name__] = addresses
        importlib.import_module(f"{PACKAGE}.types").addresses = addresses
        for name in ("decoder", "encoder", "spans", "sections", "packed_blocks"):
            setattr(build, name, importlib.import_module(f"{PACKAGE}.keyed.{name}"))
        assert importlib.import_module(f"{PACKAGE}.kernels.scan").load32 is twin.load32
        build.section_converter = importlib.import_module(f"{PACKAGE}.kryo.section_converter")
        build.type_layouts = importlib.import_module(f"{PACKAGE}.types.type_layouts")
    return build
