"""Compiles the kernels of ordinary days into a folder, for the wheel (``hatch_build.py``).

Usage: ``python scripts/compile_kernels.py FOLDER``. A user of the wheel needs the releases of this
Python, its numba and its llvmlite. Kernels that are in the folder are not compiled again. It prints
the name of the folder inside, and the tags of the wheel: what numba runs on.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from dstl_core.codec.columnar.kernels import shipped

PROCESSOR = shipped.shipped_processor()
os.environ["NUMBA_CPU_NAME"] = PROCESSOR.name
os.environ["NUMBA_CPU_FEATURES"] = ",".join(f"+{name}" for name in sorted(PROCESSOR.features))

from numba.core.caching import NullCache  # the options are read here

from dstl_core.codec.columnar.kernels import jit

TYPES_OF_THE_TEXT = 6
"""The part of a kernel in numba's form that has its source with types, and paths."""


class WrittenKernel(shipped.ShippedKernel):
    """Writes the machine code of a kernel."""

    def save_overload(self, signature: Any, compiled: Any) -> None:
        parts = list(compiled._reduce())
        parts[TYPES_OF_THE_TEXT] = ""
        self.files.save(self.key(signature), tuple(parts))


def write_into(folder: Path) -> None:
    """From here on, kernels of modules that are imported are written into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    compile_kernel = jit.kernel

    def written_kernel(function: Any) -> Any:
        kernel: Any = compile_kernel(function)
        kernel._cache = WrittenKernel(folder, function, NullCache())
        return kernel

    jit.kernel = written_kernel


def call_kernels() -> None:
    """Runs the jobs of ``dstl warm``."""
    from dstl_core.local.warm_jobs import steps

    with TemporaryDirectory() as work:
        for _, step in steps(Path(work)):
            step()


def tags() -> list[str]:
    """The tags of numba's wheel: Python, its interface and the system."""
    wheel = importlib.metadata.distribution("numba").read_text("WHEEL") or ""
    return [line.split()[1] for line in wheel.splitlines() if line.startswith("Tag: ")]


if __name__ == "__main__":
    name = shipped.shipped_name(jit.DIGEST)
    write_into(Path(sys.argv[1]) / name)
    call_kernels()
    sys.stdout.write(json.dumps({"folder": name, "tags": tags()}))
