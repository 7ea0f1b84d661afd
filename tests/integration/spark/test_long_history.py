"""What an epoch and a new process need does not grow with the number of commits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.soak]

ROOT = Path(__file__).parents[3]
EPOCHS = 50
GROWTH = 1.2


def run(base, *arguments):
    command = [sys.executable, "-m", "benchmarks.history_worker", str(base), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def epochs(base, until):
    [figures] = run(base, "--until", str(until), "--mark", str(until), "--gc")
    return figures


def test_ten_thousand_commits_cost_what_a_hundred_do(tmp_path, record_property):
    early = epochs(tmp_path, EPOCHS)
    run(tmp_path, "--fill", str(10_000 - EPOCHS))
    late = epochs(tmp_path, 10_000)
    record_property("figures", [early, late])
    assert early["commits"] == EPOCHS and late["commits"] == 10_000
    assert late["open_requests"] <= 13
    grown = ("driver_mb", "jvm_live_mb", "workers_mb", "driver_files", "jvm_files", "workers_files")
    assert {name: late[name] for name in grown if late[name] > GROWTH * early[name]} == {}
