"""Kernels that come compiled with the package, in a wheel that was built with them.

The machine code is loaded without a check, so it is trusted as the modules beside it are. The name
of its folder says all that it was made from and for: the sources, Python, the compiler and the kind
of processor. Another name is not looked for, so code that does not fit is never loaded.
"""

from __future__ import annotations

import hashlib
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from dstl_core.cached_property import cached_property

# The compiler is imported where it is asked: who builds a wheel sets its options before.

FOLDER = Path(__file__).parent / "compiled"


class Processor(NamedTuple):
    """A kind of processor: its name for the compiler, and the features that code may use."""

    name: str
    features: frozenset[str]


_V3 = "avx avx2 bmi bmi2 crc32 cx16 f16c fma lzcnt movbe popcnt sahf sse3 sse4.1 sse4.2 ssse3 xsave"
_PROCESSORS = {"x86_64": Processor("x86-64-v3", frozenset(_V3.split()))}


def shipped_processor() -> Processor:
    """The kind of processor that kernels are shipped for, on this architecture.

    Those of servers since 2015 have its features. Elsewhere, what each processor has must do.
    """
    return _PROCESSORS.get(os.uname().machine, Processor("generic", frozenset()))


def shipped_name(digest: str) -> str:
    """The name of the folder for kernels with these sources, in this process."""
    import llvmlite
    import numba
    from llvmlite.binding import get_process_triple

    compiler = f"numba-{numba.__version__}-llvmlite-{llvmlite.__version__}"
    python = sys.implementation.cache_tag
    processor = shipped_processor().name
    return f"{digest}-{python}-{compiler}-{get_process_triple()}-{processor}"


def shipped_folder(digest: str, parent: Path = FOLDER) -> Path | None:
    """The folder of shipped kernels that this process may run.

    Args:
        digest: Of the sources of the kernels.
        parent: Where such folders are.

    Returns:
        None if there is none, or if this process compiles for a processor that lacks a feature.
    """
    folder = parent / shipped_name(digest)
    if not folder.is_dir():
        return None
    return folder if shipped_processor().features <= _own_features() else None


def _own_features() -> set[str]:
    """The features that the compiler uses in this process: the processor's, or those configured."""
    from numba import core

    compiler: Any = core  # untyped
    configured = compiler.config.CPU_FEATURES
    text = compiler.codegen.get_host_cpu_features() if configured is None else configured
    return {name[1:] for name in text.split(",") if name.startswith("+")}


class ShippedKernel:
    """Where the compiler looks for the machine code of a kernel, in the form that numba asks.

    What is not shipped comes from the cache of the user, and goes there.

    Args:
        folder: The shipped kernels.
        function: The kernel as Python.
        kept: The cache of the user for this kernel.
    """

    cache_path = None

    def __init__(self, folder: Path, function: Any, kept: Any) -> None:
        self._folder = folder
        self._function = function
        self._kept = kept

    @cached_property
    def files(self) -> Any:
        """An index and files with machine code, which a change of the module makes invalid."""
        from numba.core import caching

        untyped: Any = caching
        name = f"{self._function.__module__}.{self._function.__qualname__}"
        name = name.replace("<", "").replace(">", "")  # not in names of files on every system
        stamp = _digest_of_file(self._function.__code__.co_filename)
        return untyped.IndexDataCacheFile(str(self._folder), name, stamp)

    def key(self, signature: Any) -> Any:
        """The types of the arguments, and the constants that a kernel was made with."""
        return signature, tuple(cell.cell_contents for cell in self._function.__closure__ or ())

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The machine code for some types of arguments; None if there is none."""
        from numba.core import compiler

        untyped: Any = compiler
        context.refresh()
        code = self.files.load(self.key(signature))
        if code is None:
            return self._kept.load_overload(signature, context)
        return untyped.CompileResult._rebuild(context, *code)

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keeps what this process compiled, for the user."""
        self._kept.save_overload(signature, compiled)

    def enable(self) -> None:
        """As numba's cache."""
        self._kept.enable()

    def disable(self) -> None:
        """As numba's cache."""
        self._kept.disable()

    def flush(self) -> None:
        """As numba's cache."""
        self._kept.flush()


@lru_cache
def _digest_of_file(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def look_first_in(folder: Path, kernel: Any) -> None:
    """Lets a kernel take its machine code from the folder, if it is there."""
    kernel._cache = ShippedKernel(folder, kernel.py_func, kernel._cache)
