"""Rows go to their subtasks in messages, whose parts may come in any order."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from dstl_core import AggregateOperator, aggregates
from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError
from dstl_core.job.rows.placement import Placement
from dstl_core.job.spec.fingerprint import SUBTASK_COLUMN, Fingerprint
from dstl_core.job.spec.row_hashes import RowHash
from dstl_core.job.task import reduced_rows
from dstl_core.model.key_group import assign_to_key_group, compute_operator_index_for_key_group
from dstl_core.spark.job import sent_rows
from dstl_core.spark.job.sent_rows import SendRows, received

ROWS = [
    {"k": f"key-{row % 700}", "v": row, "w": None if row % 5 else "é" * row} for row in range(2_000)
]
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("w", pa.string())])
BATCHES = pa.Table.from_pylist(ROWS, SCHEMA).to_batches(max_chunksize=300)
ROW_HASH = RowHash.of_schema(SCHEMA)


@pytest.fixture
def small_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_rows, "ROWS_PER_MESSAGE", 500)
    monkeypatch.setattr(sent_rows, "PART_BYTES", 1_000)


@pytest.mark.usefixtures("small_messages")
@pytest.mark.parametrize("key_by", ["k", None])
@pytest.mark.parametrize("parallelism", [1, 5])
def test_each_row_reaches_its_subtask_whatever_the_order_of_the_parts(
    key_by: str | None, parallelism: int
) -> None:
    placement = Placement(key_by, key_by and Types.STRING, parallelism, 64)
    sent = pa.Table.from_batches(SendRows(placement, ("v", "k"), ROW_HASH)(BATCHES))
    assert sent.num_rows > 4 * parallelism
    parts = sent.to_pylist()
    random.Random(1).shuffle(parts)
    rows_received, fingerprint = [], Fingerprint(0, 0)
    for subtask in range(parallelism):
        own = [part for part in parts if part[SUBTASK_COLUMN] == subtask]
        batches = pa.Table.from_pylist(own, sent.schema).to_batches(max_chunksize=7)
        for batch in received(batches):
            fingerprint += Fingerprint.of_batch(batch)
            for row in batch.select(["k", "v"]).to_pylist():
                rows_received.append(row)
                if key_by is not None:
                    group = assign_to_key_group(Types.STRING.java_hash(row["k"]), 64)
                    owner = compute_operator_index_for_key_group(64, parallelism, group)
                    assert owner == subtask
    expected = [{"k": row["k"], "v": row["v"]} for row in ROWS]
    assert sorted(rows_received, key=lambda row: row["v"]) == expected
    hashes = (Fingerprint.of_column(ROW_HASH.of(batch)) for batch in BATCHES)
    assert fingerprint == sum(hashes, Fingerprint(0, 0))


OPERATOR = AggregateOperator("u", "k", {"n": aggregates.count()}, "string")


@pytest.mark.usefixtures("small_messages")
@pytest.mark.parametrize("keys, is_reduced", [(5, True), (2_000, False)])
def test_rows_of_few_keys_are_reduced_on_their_way(
    keys: int, is_reduced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reduced_rows, "LEAST_ROWS", 100)
    monkeypatch.setattr(reduced_rows, "SAMPLED_ROWS", 200)
    rows = pa.table({"k": [f"key-{row % keys}" for row in range(2_000)]})
    row_hash = RowHash.of_schema(rows.schema)
    send = SendRows(Placement("k", Types.STRING, 2, 64), ("k",), row_hash, OPERATOR)
    batches = list(received(send(rows.to_batches(max_chunksize=300))))
    assert (sum(batch.num_rows for batch in batches) < 2_000) == is_reduced
    hashes = (Fingerprint.of_column(row_hash.of(batch)) for batch in rows.to_batches())
    expected = sum(hashes, Fingerprint(0, 0))
    assert sum(map(Fingerprint.of_batch, batches), Fingerprint(0, 0)) == expected


def test_a_null_key_is_refused_before_it_is_sent() -> None:
    send = SendRows(Placement("k", Types.STRING, 2, 64), ("k",), ROW_HASH, OPERATOR)
    rows = pa.RecordBatch.from_pylist([*ROWS, {"k": None, "v": 1, "w": None}], SCHEMA)
    with pytest.raises(ConfigError, match="A key is null, in the column 'k'"):
        list(send([rows]))


def test_no_rows_are_no_messages() -> None:
    placement = Placement("k", Types.STRING, 2, 64)
    assert list(SendRows(placement, ("k",), ROW_HASH)([])) == []
    assert list(SendRows(placement, ("k",), ROW_HASH)([BATCHES[0].slice(0, 0)])) == []
