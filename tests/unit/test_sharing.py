"""A process of a test run that dies is one failed test, and the run ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.sharing import SessionsApart

def pytest_xdist_make_scheduler(config, log):
    return SessionsApart(config, log)
"""
DIES = """
import os
from pathlib import Path

def test_dies():
    died = Path(__file__).with_name("died")
    if not died.exists():
        died.touch()
        os._exit(1)
"""


@pytest.mark.slow
def test_a_run_ends_after_a_process_has_died(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for number in range(6):
        (tmp_path / f"test_{number}.py").write_text("def test_passes(): pass\n")
    (tmp_path / "test_last.py").write_text(DIES)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "."]
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 1
    assert "test_last.py::test_dies" in ran.stdout
    assert "1 failed, 6 passed" in ran.stdout or "1 failed, 7 passed" in ran.stdout
