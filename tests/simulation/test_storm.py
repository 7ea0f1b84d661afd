"""The storm of processes, faults and signals: a short one always, long ones with ``make soak``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import pytest

from tests.simulation.storm.run import Storm

Storage = Literal["local", "s3"]


def test_a_short_storm(tmp_path: Path) -> None:
    Storm("local", seed=1, commits=20, seconds=600).run(tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("storage", ["local", "s3"])
def test_a_storm(storage: Storage, tmp_path: Path, soak_seed: int, soak_seconds: float) -> None:
    report = Storm(storage, soak_seed, commits=1_000, seconds=soak_seconds).run(tmp_path)
    sys.stderr.write(report + "\n")


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("storage", ["local", "s3"])
def test_a_storm_on_spark(
    storage: Storage, tmp_path: Path, soak_seed: int, soak_seconds: float
) -> None:
    storm = Storm(storage, soak_seed, commits=100, seconds=soak_seconds, on_spark=True)
    sys.stderr.write(storm.run(tmp_path) + "\n")
