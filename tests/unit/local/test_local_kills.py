"""A process is killed at storage operations of an epoch; the next run ends as if it was not.

``make soak`` kills before each of them, ``make test`` before every third.
"""

from __future__ import annotations

import shutil
from multiprocessing import get_context
from pathlib import Path

import pytest

from dstl_core.savepoint.verify.verify import verify_snapshot
from tests.examples import WHOLE
from tests.integration.spark.job_functions import plain, random_batch
from tests.unit.local import killed_epoch
from tests.unit.local.test_local_engine import state_of


@pytest.mark.slow
def test_a_kill_before_any_storage_operation_loses_nothing(tmp_path: Path) -> None:
    processes = get_context("forkserver")
    processes.set_forkserver_preload(["tests.unit.local.warm_epoch"])
    base, start = tmp_path / "base", tmp_path / "start"
    killed_epoch.run(base, 0)
    shutil.copytree(base, start)
    wanted = plain([random_batch(0, 40), random_batch(1, 40)])
    kills = 0
    while True:
        shutil.rmtree(base)
        shutil.copytree(start, base)
        process = processes.Process(target=killed_epoch.run_and_die, args=(base, 1, kills))
        process.start()
        process.join()
        running = killed_epoch.run(base, 1)
        assert state_of(running, "total", "last") == wanted, kills
        output = running.output_of(running.latest())["totals"].to_arrow()
        assert output.num_rows == 40
        assert verify_snapshot(running.snapshot()).findings == []
        if process.exitcode == 0:
            break
        assert process.exitcode == killed_epoch.KILLED
        kills += 1 if WHOLE else 3
    assert kills > 20
