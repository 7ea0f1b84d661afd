"""Real Flink still says of pairs of types what the golden file says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.golden_files import GOLDEN
from tests.integration.flink.type_pairs import ask_flink, make_pairs

pytestmark = pytest.mark.flink


def test_flink_answers_as_the_golden_file(tmp_path: Path) -> None:
    lines = gzip.decompress((GOLDEN / "type-pairs/pairs.jsonl.gz").read_bytes()).splitlines()
    answers = ask_flink(make_pairs(), tmp_path)
    assert answers == [json.loads(line) for line in lines]
