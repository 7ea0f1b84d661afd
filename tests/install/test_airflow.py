"""The DAGs of ``examples/airflow`` in a real Airflow, in an environment of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.wheels import ROOT, build_wheel, make_environment

pytestmark = pytest.mark.soak

AIRFLOW = "apache-airflow==3.3.2"
DAYS = {"2026-01-02": [("ada", 12), ("bob", 3)], "2026-01-03": [("ada", 7)]}
RUN = """
import json, os, sys
from datetime import UTC, datetime
from airflow.dag_processing.dagbag import DagBag

bag = DagBag(dag_folder=os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
assert not bag.import_errors, bag.import_errors
runs = []
for dag, day in json.loads(sys.argv[1]):
    run = bag.dags[dag].test(logical_date=datetime.fromisoformat(day).replace(tzinfo=UTC))
    runs.append(str(run.state.value))
print("RUNS", json.dumps([sorted(bag.dags), runs]))
"""


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Airflow and the core; Airflow's own versions, which are not those of Dagster."""
    folder = tmp_path_factory.mktemp("airflow")
    wheel = build_wheel("dstl_core", folder)
    return make_environment(folder / "environment", wheel, AIRFLOW, pinned=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples" / "airflow", tmp_path / "dags")
    (tmp_path / "data").mkdir()
    for day, rows in DAYS.items():
        write_day(tmp_path, day, rows)
    return tmp_path


def write_day(home: Path, day: str, rows: list[tuple[str, int]]) -> None:
    names, amounts = zip(*rows, strict=True)
    table = pa.table({"account": names, "amount": amounts})
    pq.write_table(table, home / "data" / f"{day}.parquet")


def run(commands: Path, home: Path, *words: str) -> str:
    environment = {
        "PATH": os.pathsep.join([str(commands), "/usr/bin", "/bin"]),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "AIRFLOW_HOME": str(home / "home"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "PYTHONPATH": str(home / "dags"),
        "PAYMENTS_DATA": str(home / "data"),
        "PAYMENTS_STATE": str(home / "state"),
    }
    ran = subprocess.run(
        [commands / words[0], *words[1:]],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, f"{words}\n{ran.stdout[-5000:]}\n{ran.stderr[-5000:]}"
    return ran.stdout


def runs_of(commands: Path, home: Path, *runs: tuple[str, str]) -> Any:
    out = run(commands, home, "python", "-c", RUN, json.dumps(runs))
    [line] = [line for line in out.splitlines() if line.startswith("RUNS ")]
    return json.loads(line.removeprefix("RUNS "))


def totals(commands: Path, home: Path) -> dict[str, int]:
    lines = run(commands, home, "dstl", "dump", "state/payments", "--state", "total").splitlines()
    return {entry["key"]: entry["value"] for entry in map(json.loads, lines)}


def test_the_dags_run_and_a_day_that_runs_again_is_applied_once(commands: Path, home: Path) -> None:
    """A run of a date applies the day before it."""
    run(commands, home, "airflow", "db", "migrate")
    days = [("payments", day) for day in ("2026-01-03", "2026-01-04", "2026-01-03")]
    dags, states = runs_of(commands, home, *days)
    assert dags == ["payments", "payments_backup", "payments_report"]
    assert states == ["success"] * 3
    assert totals(commands, home) == {"ada": 19, "bob": 3}
    others = [("payments_report", "2026-01-04"), ("payments_backup", "2026-01-04")]
    assert runs_of(commands, home, *others)[1] == ["success"] * 2
    assert (home / "state" / "savepoints" / "2026-01-03" / "_metadata").is_file()

    write_day(home, "2026-01-03", [("ada", 8)])
    assert runs_of(commands, home, ("payments", "2026-01-04"))[1] == ["failed"]
    assert totals(commands, home) == {"ada": 19, "bob": 3}
