"""Real Flink still does with the changed classes what the golden file says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dstl_core import Snapshot
from tests.golden_files import CHANGED_CLASSES
from tests.integration.flink.changed_classes import CASES, WHAT, restored
from tests.integration.flink.checker import FlinkChecker

pytestmark = [pytest.mark.flink, pytest.mark.soak]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_flink_restores_or_refuses_each_case(tmp_path: Path, backend: str) -> None:
    outcomes = json.loads((CHANGED_CLASSES / "outcomes.json").read_bytes())
    assert list(outcomes) == list(CASES) == list(WHAT)
    old = Snapshot.load(CHANGED_CLASSES / "old")
    (tmp_path / "flink").mkdir()
    checker = FlinkChecker(tmp_path / "flink", job_jars=[CHANGED_CLASSES / "new.jar"])
    found = {
        name: restored(checker, name, old, backend, tmp_path / name) == "restored" for name in CASES
    }
    checker.close()
    assert found == {name: each[backend] == "restored" for name, each in outcomes.items()}
