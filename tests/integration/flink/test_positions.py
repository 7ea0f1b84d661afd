"""Real Flink goes on reading at exactly the positions that were set."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstl_core import Snapshot, edit_savepoint
from dstl_core.savepoint.connectors.set_positions import set_positions
from tests.golden_files import CONNECTORS
from tests.integration.flink.checker import FlinkChecker

pytestmark = pytest.mark.flink


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_source_goes_on_where_it_was_set(
    flink: FlinkChecker, tmp_path: Path, parallelism: int
) -> None:
    positions = {"1": "66660", "2": "133334", "3": "199990"}
    changed, _ = set_positions(Snapshot.load(CONNECTORS / "c-numseq" / "savepoint"), positions)
    out = edit_savepoint(changed).write(tmp_path / "out")

    numbers = flink.read_numbers(out, "source", last_number=LAST, parallelism=parallelism)

    assert numbers == [*range(66660, 66668), 133334, *range(199990, LAST + 1)]


LAST = 200_000
"""The last number of the source that the savepoint was taken of."""
