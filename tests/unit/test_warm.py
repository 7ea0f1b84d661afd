"""``dstl warm``: the first run after it compiles nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dstl_core.spark.warm import forget_older
from tests.first_day import FIRST_DAY


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
    assert (warmed.returncode, warmed.stdout.count("kernels of")) == (0, 7)
    assert re.search(r"\d+ kernels compiled in \d+ s, \d+ kept, 0 came with", warmed.stdout)
    day = run("-c", FIRST_DAY, str(tmp_path))
    assert (day.stdout, day.stderr) == ("[]\n", "")


def test_of_archives_that_are_made_at_the_same_time_the_newest_stays(tmp_path: Path) -> None:
    first, second = tmp_path / "spark-a-1.jsa", tmp_path / "spark-a-2.jsa"
    for made_ns, archive in enumerate((first, second)):
        archive.touch()
        os.utime(archive, ns=(made_ns, made_ns))
    forget_older(first)
    assert first.exists() and second.exists()
    forget_older(second)
    forget_older(first)
    assert [*tmp_path.iterdir()] == [second]


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
