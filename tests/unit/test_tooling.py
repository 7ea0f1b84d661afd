"""What a contributor's tools are told to run is there."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_workflow_runs_what_a_change_has_to_pass() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    job = workflow["jobs"]["make"]
    assert job["steps"][-1] == {"run": "make ${{ matrix.target }}"}
    targets = job["strategy"]["matrix"]["target"]
    script = (ROOT / ".ci" / "run").read_text()
    assert targets == re.findall(r"^make (\S+)", script, re.MULTILINE)
    assert set(targets) <= TARGETS


def test_the_hooks_of_a_commit_run_tools_of_the_environment() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    [repository] = config["repos"]
    assert repository["repo"] == "local"
    commands = [hook["entry"].split()[0] for hook in repository["hooks"]]
    assert set(commands) == {".venv/bin/ruff", ".venv/bin/mypy"}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md"])
def test_every_target_that_a_page_names_is_there(page: str) -> None:
    named = set(re.findall(r"\bmake ([a-z]+(?:-[a-z]+)*)\b", (ROOT / page).read_text()))
    assert named
    assert named - TARGETS == set()


def test_processes_of_tests_keep_their_bytecode() -> None:
    ran = subprocess.run(
        [ROOT / "scripts" / "with-java", "env"],
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "JAVA_HOME=" in ran.stdout
    assert "PYTHONDONTWRITEBYTECODE" not in ran.stdout
