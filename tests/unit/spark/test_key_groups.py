"""Rows of a partition go to their subtasks, in their order."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dstl_core.job.spec.fingerprint import SUBTASK_COLUMN
from dstl_core.spark.engine.key_groups import split_by_subtask

Batches = list[list[tuple[int, int]]]


@pytest.mark.parametrize(
    "batches, expected",
    [
        ([], []),
        ([[]], []),
        ([[(1, 10), (1, 11)], [], [(1, 12)]], [(1, [10, 11, 12])]),
        (
            [[(2, 10), (0, 20), (2, 11)], [(0, 21)], [(1, 30), (2, 12)]],
            [(2, [10, 11, 12]), (0, [20, 21]), (1, [30])],
        ),
    ],
)
def test_each_subtask_gets_its_rows_in_their_order(
    batches: Batches, expected: list[tuple[int, list[int]]]
) -> None:
    sorted_batches = [
        pa.RecordBatch.from_pydict(
            {"v": [value for _, value in rows], SUBTASK_COLUMN: [own for own, _ in rows]},
            schema=pa.schema([("v", pa.int64()), (SUBTASK_COLUMN, pa.int32())]),
        )
        for rows in batches
    ]
    split = [
        (subtask, [value for batch in own for value in batch.column("v").to_pylist()])
        for subtask, own in split_by_subtask(sorted_batches)
    ]
    assert split == expected
