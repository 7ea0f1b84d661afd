"""Real PyFlink restores what dstl writes of its savepoints, and goes on: a long run.

It fetches PyFlink of three releases once. ``pyflink_job.py`` is the job.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.savepoint import SavepointUpgrade
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from tests.integration.flink.releases import python_of
from tests.unit.savepoint.test_pyflink_lines import (
    FIRST,
    NEXT,
    OF_KEY,
    check_holds,
    held,
    numbers_of,
)

pytestmark = [pytest.mark.flink, pytest.mark.soak]

JOB = Path(__file__).with_name("pyflink_job.py")
OLD, NEW, NEWEST = "1.20.5", "2.2.1", "2.3.0"
TIMEOUT_S = 300
NUMBERS, LATER = range(FIRST), range(FIRST, NEXT)


class Job:
    """Runs of one job, each in a PyFlink of its own."""

    def __init__(self, folder: Path, mode: str, key: str) -> None:
        self.folder, self.mode, self.key = folder, mode, key
        self.input = folder / "in"
        self.input.mkdir(parents=True)
        self.runs = 0

    def run(
        self, release: str, numbers: Iterable[int], restore: str | None = None, **more: Any
    ) -> tuple[list[dict[str, Any]], str]:
        """What its states held before each of the numbers, and a savepoint behind the last."""
        self.runs += 1
        texts = [str(n) for n in numbers]
        (self.input / f"numbers-{self.runs}").write_text("\n".join(texts) + "\n")
        pipe, declared = self.folder / f"pipe-{self.runs}", self.folder / f"job-{self.runs}.json"
        os.mkfifo(pipe)
        job = {
            "mode": self.mode,
            "key": self.key,
            "input": self.input.as_uri(),
            "out": (self.folder / f"taken-{self.runs}").as_uri(),
            "pipe": str(pipe),
            "count": len(texts),
            "restore": restore,
            "uid": "hold",
            **more,
        }
        declared.write_text(json.dumps(job))
        python = python_of(release)
        hidden = ("PYTHONPATH", "FLINK_HOME")
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"  # Flink starts "python"
        ran = subprocess.run(
            [str(python), str(JOB), str(declared)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            cwd=self.folder,
            env={**{k: v for k, v in os.environ.items() if k not in hidden}, "PATH": path},
            check=False,
        )
        assert ran.returncode == 0, f"{ran.stdout[-3000:]}\n{ran.stderr[-6000:]}"
        read = [
            json.loads(line.removeprefix("HELD "))
            for line in ran.stdout.splitlines()
            if line.startswith("HELD ")
        ]
        return read, ran.stdout.splitlines()[-1]


def check_read(lines: list[dict[str, Any]], numbers: Iterable[int], key: str) -> None:
    """The function read what it had written, before it got each of the numbers."""
    for line, n in zip(lines, numbers, strict=True):
        own = numbers_of(n % 3, n)
        read = {**held(own), "key": OF_KEY[key](n % 3), "mean": sum(own) * 1.5 / len(own)}
        assert line == {**read, "numbers": [str(number) for number in own]}


@pytest.mark.parametrize("key", ["string", "pickle"])
def test_pyflink_restores_an_edited_savepoint(tmp_path: Path, key: str) -> None:
    job = Job(tmp_path / "job", "process", key)
    _, first = job.run(NEW, NUMBERS)
    rules = {
        "migration": 1,
        "operators": {
            "moved": {
                "from": ["hold"],
                "states": {
                    "python-state-sums": {"from": "python-state-total"},
                    "python-state-numbers": {"value": "recode(value, LONG, BIG_DEC)"},
                },
            }
        },
    }
    migration = SavepointMigration(Migration.of(rules), Snapshot.load(first))
    changed = {"uid": "moved", "names": {"total": "sums"}, "number_type": "BIG_DEC"}
    edited = migration.write(tmp_path / "edited")
    read, _ = job.run(NEW, LATER, edited, **changed)
    check_read(read, LATER, key)


@pytest.mark.parametrize(
    ("mode", "key", "release"),
    [
        ("process", "string", NEW),
        ("process", "pickle", NEW),
        ("thread", "tuple", NEW),
        ("thread", "pickle", NEW),
        ("process", "tuple", NEWEST),
        ("thread", "string", NEWEST),
    ],
)
def test_pyflink_of_flink_2_restores_an_upgraded_savepoint(
    tmp_path: Path, mode: str, key: str, release: str
) -> None:
    job = Job(tmp_path / "job", mode, key)
    _, first = job.run(OLD, NUMBERS)
    line = release.rpartition(".")[0]
    upgraded = SavepointUpgrade(Snapshot.load(first), to=line).write(tmp_path / "upgraded")
    read, after = job.run(release, LATER, upgraded)
    check_read(read, LATER, key)
    check_holds(after, key, NEXT)
