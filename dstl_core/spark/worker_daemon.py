"""Spark's daemon of Python workers, which imports once what each of its workers needs.

A local session starts it by ``spark.python.daemon.module``. A worker is a fork of the daemon.
Spark puts its Python code on the path as an archive, whose modules every process compiles anew; an
installed package has the same modules, compiled.
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import sys
from pathlib import Path

MODULE = __name__
_MODULES = (
    "pandas",
    "pyarrow",
    "dstl_core.job.task.subtask",
    "dstl_core.spark.savepoints.data_source",
)


def _is_archive_of_package(path: str) -> bool:
    """Whether a path is ``<package>/python/lib/pyspark.zip`` of an installed package."""
    archive = Path(path)
    if archive.name != "pyspark.zip" or len(archive.parents) < 4:
        return False
    package = archive.parents[2]
    return package.joinpath("worker.py").is_file() and package.parent.resolve() in _folders()


def _folders() -> set[Path]:
    return {Path(path).resolve() for path in sys.path if path}


def prepare(worker: str) -> None:
    """Imports what the workers of this daemon need.

    Args:
        worker: The module of the worker.
    """
    sys.path[:] = [path for path in sys.path if not _is_archive_of_package(path)]
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a fork has none of the daemon's threads
    if "streaming" not in worker:  # a stream has a daemon of its own, with one worker
        for name in (worker, *_MODULES):
            importlib.import_module(name)
    # The collector would write to pages that the forks share.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    prepare(sys.argv[1])
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
