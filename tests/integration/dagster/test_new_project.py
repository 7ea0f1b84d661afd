"""A project as a new user makes it: outside the repository, from the wheels, by Dagster's commands.

It installs everything twice, so it is part of ``make soak``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.wheels import PROJECTS, ROOT, build_wheel

pytestmark = [pytest.mark.dagster, pytest.mark.spark, pytest.mark.soak]

TOOLS = ["create-dagster", "dagster-dg-cli", "dagster-webserver"]
DAYS = {
    "2026-01-01": {"ada": 17, "bob": 3},
    "2026-01-02": {"ada": 17, "bob": 23, "eve": 7},
}
"""Totals of the scaffolder's example after each day, by hand."""


def interpreter(version: str) -> str:
    """A Python of this version; the shims of version managers may exist and not run."""
    name = f"python{version}"
    candidates = [shutil.which(name), *Path.home().glob(f".pyenv/versions/{version}*/bin/{name}")]
    for candidate in candidates:
        if (
            candidate is not None
            and subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0
        ):
            return str(candidate)
    pytest.fail(f"No Python {version} was found on the PATH; install it, e.g. as {name}.")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("wheels")
    return [build_wheel(name, folder) for name in PROJECTS]


class User:
    """Somebody's shell: a virtual environment, a folder, and nothing of this repository."""

    def __init__(self, folder: Path, version: str) -> None:
        self.folder = folder
        subprocess.run([interpreter(version), "-m", "venv", folder / "venv"], check=True)
        kept = {"PYTHONPATH", "PYTHONHOME", "DAGSTER_HOME", "VIRTUAL_ENV"}
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in kept},
            "PATH": os.pathsep.join([str(folder / "venv" / "bin"), os.environ["PATH"]]),
            "DAGSTER_HOME": str(folder / "home"),
            "DAGSTER_DISABLE_TELEMETRY": "yes",
            "DAGSTER_DG_UPDATE_CHECK_ENABLED": "0",
        }
        (folder / "home").mkdir()
        (folder / "home" / "dagster.yaml").touch()

    def run(self, *words: str | Path, where: str = ".") -> str:
        done = subprocess.run(
            [str(self.folder / "venv" / "bin" / words[0]), *map(str, words[1:])],
            cwd=self.folder / where,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=1_200,
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.mark.parametrize("version", ["3.11", "3.13"])
def test_a_new_project_has_green_partitions(
    version: str, wheels: list[Path], tmp_path: Path
) -> None:
    user = User(tmp_path, version)
    user.run("pip", "install", "--quiet", "-c", ROOT / "constraints.txt", *wheels, *TOOLS)
    user.run("create-dagster", "project", "--no-uv-sync", "state")
    user.run("pip", "install", "--quiet", "--no-deps", "-e", "state")
    component = "dstl_dagster.StatefulPipelineComponent"
    user.run("dg", "scaffold", "defs", component, "payments", where="state")
    user.run("dg", "check", "defs", where="state")

    def launch(day: str) -> None:
        select = "key:payments/payments_checkpoint"
        user.run("dg", "launch", "--assets", select, "--partition", day, where="state")

    first, second = DAYS
    launch(first)
    assert totals(user) == DAYS[first]
    launch(second)
    assert totals(user) == DAYS[second]


def totals(user: User) -> dict[str, int]:
    """The state of the newest checkpoint, by the command of the core's wheel."""
    checkpoints = (user.folder / "state" / "data" / "dstl").glob("jobs/*/chk-*")
    newest = max(checkpoints, key=lambda folder: int(folder.name.removeprefix("chk-")))
    lines = user.run("dstl", "dump", newest, "--state", "total").splitlines()
    return {each["key"]: each["value"] for each in map(json.loads, lines)}
