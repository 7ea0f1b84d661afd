"""An epoch on the local engine in a process that ends at a storage operation."""

from __future__ import annotations

import os
import sys
from itertools import count
from pathlib import Path
from typing import Any

from dstl_core import KeyedOperator, LocalEngine, StatefulJob
from dstl_core.codec.serializers import Types
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.storage.file_io import FsspecFileIO
from tests.integration.spark.job_functions import OUTPUT, TotalsByRow, random_batch
from tests.unit.local.test_local_engine import table_of

OPERATIONS = (
    "read_bytes",
    "read_each",
    "open_input",
    "write_new",
    "publish_once",
    "replace",
    "size",
    "list_folder",
    "delete",
    "delete_folder",
)
KILLED = 9


def job(base: Path) -> StatefulJob:
    operator = KeyedOperator("totals", "k", Types.STRING, TotalsByRow(), OUTPUT)
    copies = LocalCopies(str(base / "local"))
    return StatefulJob(
        LocalEngine(), "job", str(base / "jobs"), operator, num_retained=2, local_copies=copies
    )


def run(base: Path, number: int) -> StatefulJob:
    """Runs an epoch as any process does."""
    running = job(base)
    running.run(table_of(random_batch(number, 40)), number, order_by=["v"])
    return running


def run_and_die(base: Path, number: int, at: int) -> None:
    """Runs an epoch; the process ends before its storage operation of a number."""
    numbers = count()

    def dying(operation: Any) -> Any:
        def called(*args: Any, **options: Any) -> Any:
            if next(numbers) == at:
                os._exit(KILLED)
            return operation(*args, **options)

        return called

    for name in OPERATIONS:
        setattr(FsspecFileIO, name, dying(getattr(FsspecFileIO, name)))
    run(base, number)
    sys.exit(0)
