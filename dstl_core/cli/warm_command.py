"""``dstl warm``: compiles kernels ahead of the first run."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from dstl_core.cli.output import print_lines
from dstl_core.errors import ConfigError


def warm() -> None:
    """Compile the kernels of ordinary jobs ahead of a first run.

    Kernels are kept for a user. Run it as the user that runs the jobs, for example while an image
    is built.
    """
    from dstl_core.codec.columnar.kernels.jit import CACHE_FOLDER
    from dstl_core.local.warm_jobs import steps

    if CACHE_FOLDER is None:
        raise ConfigError(
            "Kernels cannot be kept: expected a folder that belongs to this user and is closed to "
            "others (mode 0700); set NUMBA_CACHE_DIR to a folder where one can be made."
        )
    before, start = _kernels(CACHE_FOLDER), time.monotonic()
    with TemporaryDirectory(prefix="dstl-warm-") as work:
        for what, step in steps(Path(work)):
            print_lines([f"kernels of {what}"])
            sys.stdout.flush()
            step()
    made = _kernels(CACHE_FOLDER) - before
    seconds = time.monotonic() - start
    print_lines([f"{made} kernels compiled in {seconds:.0f} s, {before} kept; {CACHE_FOLDER}"])


def _kernels(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*.nbc"))
