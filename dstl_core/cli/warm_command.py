"""``dstl warm``: makes ahead what a first run would make: kernels, and Spark's classes."""

from __future__ import annotations

import sys
import time
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from dstl_core.cli.output import print_lines
from dstl_core.errors import ConfigError


def warm() -> None:
    """Compile kernels and archive Spark's classes ahead.

    Kernels that came with the package are left out. Both are kept for a user. Run it as the user
    that runs the jobs, for example while an image is built.
    """
    compile_kernels()
    if find_spec("pyspark") is not None:
        _archive_classes()


def compile_kernels(steps_at_most: int | None = None) -> None:
    """Compiles kernels, or those of the first steps: most kernels belong to the first."""
    from dstl_core.codec.columnar.kernels.jit import CACHE_FOLDER, SHIPPED_FOLDER
    from dstl_core.local.warm_jobs import steps

    if CACHE_FOLDER is None:
        raise ConfigError(
            "Kernels cannot be kept: expected a folder that belongs to this user and is closed to "
            "others (mode 0700); set NUMBA_CACHE_DIR to a folder where one can be made."
        )
    before, start = _kernels(CACHE_FOLDER), time.monotonic()
    with TemporaryDirectory(prefix="dstl-warm-") as work:
        for what, step in islice(steps(Path(work)), steps_at_most):
            print_lines([f"kernels of {what}"])
            sys.stdout.flush()
            step()
    made = _kernels(CACHE_FOLDER) - before
    seconds = time.monotonic() - start
    shipped = 0 if SHIPPED_FOLDER is None else _kernels(SHIPPED_FOLDER)
    print_lines(
        [
            f"{made} kernels compiled in {seconds:.0f} s, {before} kept, {shipped} came with the "
            f"package; {CACHE_FOLDER}"
        ]
    )


def _archive_classes() -> None:
    """Makes the archive of Spark's classes, and says with which settings a session uses it."""
    from dstl_core.spark.session_start import archive_folder, kept_archive, start_settings
    from dstl_core.spark.warm import make_archive

    folder = archive_folder()
    if folder is None:
        print_lines(["no archive of Spark's classes: there is no Java, or no folder of this user"])
        return
    if kept_archive() is None:
        print_lines(["classes of Spark"])
        sys.stdout.flush()
        make_archive(folder)
    settings = [f"  {name}={value}" for name, value in start_settings().items()]
    print_lines(
        ["DstlSparkResource starts Spark with the archive; another session takes", *settings]
    )


def _kernels(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*.nbc"))
