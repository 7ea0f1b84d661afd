"""A pipeline for every test that asks for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.checkpoint.pipeline import Pipeline


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path)
