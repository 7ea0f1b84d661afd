"""``dstl warm``: the first run after it compiles nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DAY = """
import sys
from decimal import Decimal
import pyarrow as pa
from numba.core import event
from dstl_core import AggregateOperator, LocalEngine, StatefulJob, aggregates

listener = event.RecordingListener()
event.register("numba:compile", listener)
day = pa.table({
    "k": ["ada", "bob"],
    "ts": pa.array([0, 1], pa.timestamp("us", "UTC")),
    "amount": pa.array([Decimal("1.25"), None], pa.decimal128(18, 2)),
    "price": [0.5, None], "item": ["tea", "ink"], "ok": [True, False],
})
states = {
    "n": aggregates.count(), "total": aggregates.sum("amount"), "first": aggregates.min("ts"),
    "last": aggregates.max("ts"), "latest": aggregates.max_by("item", "ts"),
    "top": aggregates.max("price"), "price": aggregates.sum("price"),
    "ok": aggregates.bool_or("ok"),
}
columns = "ts timestamp, amount decimal(18,2), price double, item string, ok boolean"
operator = AggregateOperator("states", "k", states, schema=f"k string, {columns}", output=True)
job = StatefulJob(LocalEngine(), "day", sys.argv[1], operator, parallelism=2)
for number in range(2):
    job.run(day, number)
compiled = {each.data["dispatcher"].py_func.__name__ for _, each in listener.buffer}
print(sorted(name for name in compiled))
"""


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_first_day_after_it_compiles_nothing(tmp_path: Path) -> None:
    warmed = run("-m", "dstl_core.cli", "warm")
    assert (warmed.returncode, warmed.stdout.count("kernels of")) == (0, 6)
    assert "kernels compiled in" in warmed.stdout
    day = run("-c", DAY, str(tmp_path))
    assert (day.stdout, day.stderr) == ("[]\n", "")


@pytest.mark.slow
def test_kernels_that_cannot_be_kept_are_an_error(tmp_path: Path) -> None:
    open_to_others = tmp_path / "file"
    open_to_others.write_text("")
    done = run("-m", "dstl_core.cli", "warm", NUMBA_CACHE_DIR=str(open_to_others))
    assert done.returncode == 2
    assert done.stderr == (
        "dstl: Kernels cannot be kept: expected a folder that belongs to this user and is closed "
        "to others (mode 0700); set NUMBA_CACHE_DIR to a folder where one can be made.\n"
    )
