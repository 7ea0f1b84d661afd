"""A driver that is killed: ``python -m tests.integration.spark.kill_rewriting``.

Its arguments are a savepoint, the output, a log, and a number of units. It rewrites the savepoint
on Spark, and a worker kills it when so many units are done.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from dstl_core import Snapshot
from dstl_core.savepoint.access.unit_pool import run_units
from dstl_core.savepoint.access.units import Unit
from dstl_core.savepoint.edit import keyed_units, rewriting
from dstl_core.savepoint.edit.savepoint_edit import edit_savepoint
from dstl_core.savepoint.read import entry_reader
from dstl_core.savepoint.write import work_record
from dstl_core.spark.savepoints.spark_units import SparkUnits

UNIT_BYTES = 40_000
MANY = 8
"""More workers than streams: they share the units of each."""


class Noted:
    """Runs units as another runner does, and notes those that it keeps, wherever they run. What an
    earlier run has kept is not noted, nor is the reading back, which keeps nothing.
    """

    workers = MANY

    def __init__(self, runner: Any, out: Path, log: Path, then: Callable[[int], None]) -> None:
        self._runner, self._log, self._then = runner, log, then
        self._kept = out / work_record.WORK_FOLDER

    def __call__(self, task: Callable[[Unit], Any], units: Sequence[Unit]) -> Any:
        log, then, kept = self._log, self._then, self._kept

        def noted(unit: Unit) -> Any:
            key_groups = unit.key_groups
            name = f"unit-*-{unit.handle}-{key_groups.start_key_group}-{key_groups.end_key_group}"
            if any(kept.glob(name)):
                return task(unit)
            result = task(unit)
            if not any(kept.glob(name)):
                return result
            with log.open("a") as lines:
                lines.write(f"{unit.handle} {unit.key_groups}\n")
            then(len(log.read_text().splitlines()))
            return result

        return run_units(noted, units, self._runner)


def main() -> None:
    from tests.spark_session import local_session

    source, out, log, units = sys.argv[1:]
    rewriting.RECORDED_FROM_BYTES = 0
    for module in (keyed_units, entry_reader):
        module.BYTES_AT_ONCE = UNIT_BYTES
    work_record.secrets.token_hex = lambda size=None: "a1" * (size or 0)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    driver, last = os.getpid(), int(units)

    def kill(done: int) -> None:
        if done >= last:  # two workers may count both of their units
            os.kill(driver, signal.SIGKILL)

    edit = edit_savepoint(Snapshot.load(source)).with_files("canonical")
    edit.write(out, jobs=Noted(SparkUnits(local_session()), Path(out), Path(log), kill))


if __name__ == "__main__":
    main()
