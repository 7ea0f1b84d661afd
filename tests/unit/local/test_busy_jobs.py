"""What a job refuses while an epoch runs, and what other threads may call meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from dstl_core import KeyedOperator, LocalEngine, StatefulJob
from dstl_core.errors import JobBusyError
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.state.tables.descriptor import ValueStateDescriptor

TIMEOUT_S = 60
STARTED, GATE = Event(), Event()


class Waiting(KeyedProcessFunction):
    """Adds numbers; a negative one waits at the gate."""

    order_insensitive = True

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", "bigint"))

    def process_element(self, value: Any, ctx: Any) -> None:
        if value["v"] < 0:
            STARTED.set()
            GATE.wait(TIMEOUT_S)
        self.total.update((self.total.value() or 0) + value["v"])


def rows(*values: int) -> pa.Table:
    return pa.table({"k": ["a"] * len(values), "v": pa.array(values, pa.int64())})


def job_in(folder: Path) -> StatefulJob:
    operator = KeyedOperator("totals", "k", "string", Waiting())
    copies = LocalCopies(str(folder / "copies"))
    return StatefulJob(LocalEngine(), "job", str(folder / "jobs"), operator, local_copies=copies)


def total(job: StatefulJob) -> int:
    [line] = job.snapshot()["totals"].dump("total")
    value: int = line["value"]
    return value


def test_calls_that_commit_refuse_each_other_and_others_go_on(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    job.run(rows(1), 1)
    written = job.materialize_beside()
    persisted = job.persist(rows(2), 2)
    refused: dict[str, Callable[[], object]] = {
        "run": lambda: job.run(rows(3), 3),
        "persist": lambda: job.persist(rows(3), 3),
        "confirm": lambda: job.confirm(persisted),
        "start": job.start,
        "materialize": job.materialize,
        "adopt": lambda: job.adopt(written),
        "migrate": job.migrate,
        "stop_with_savepoint": lambda: job.stop_with_savepoint(str(tmp_path / "stopped")),
        "resume": job.resume,
    }
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(job.run, rows(-10), 2)
        assert STARTED.wait(TIMEOUT_S)
        try:
            for name, call in refused.items():
                with pytest.raises(
                    JobBusyError, match=rf"busy with run\(\) and refuses {name}\(\)"
                ):
                    call()
            latest = job.latest()
            assert latest is not None
            assert latest.facts.input is not None
            assert latest.facts.input.id == 1
            assert [commit.facts.kind for commit in job.history()] == ["start", "epoch"]
            assert total(job) == 1
            assert job.current_output() == {}
            job.savepoint(str(tmp_path / "beside"))
            job.materialize_beside()
        finally:
            GATE.set()
        running.result(TIMEOUT_S)
    assert total(job) == -9
    assert not (tmp_path / "stopped").exists()
