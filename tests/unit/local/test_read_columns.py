"""A batch is known by the columns that the job reads: others come, go and change unnoticed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstl_core import AggregateOperator, KeyedOperator, LocalEngine, StatefulJob, aggregates
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import EpochFacts, InputFacts
from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError, InputChangedError
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.coordination.same_input import committed_before
from dstl_core.job.spec.lineage import InputPlace
from dstl_core.job.spec.operators import INPUT
from dstl_core.job.spec.read_columns import ReadColumns
from tests.changed_batches import ROWS, SEEN, UNSEEN, sums


def job(base: Path, operator: Any = None, **options: Any) -> StatefulJob:
    return StatefulJob(LocalEngine(threads=2), "job", str(base), operator or sums(), **options)


def test_a_job_does_not_see_what_it_does_not_read(tmp_path: Path) -> None:
    job(tmp_path).run(ROWS, 1)
    for change, rows in UNSEEN.items():
        assert job(tmp_path).run(rows, 1).committed_before, change
    path = tmp_path / "rows.parquet"
    pq.write_table(UNSEEN["a new first column"], path)
    assert job(tmp_path).run(str(path), 1).committed_before
    stream = UNSEEN["a new column of a type that Spark lacks"].to_reader(2)
    assert job(tmp_path).run(stream, 1).committed_before


def test_the_message_names_what_is_different(tmp_path: Path) -> None:
    running = job(tmp_path)
    running.run(ROWS, 1)
    for difference, rows in SEEN.items():
        with pytest.raises(InputChangedError, match=f"columns: {re.escape(difference)}; give"):
            running.run(rows, 1)
    assert len(running.history()) == 2


def test_a_batch_with_more_columns_gives_the_same_state(tmp_path: Path) -> None:
    runs = [job(tmp_path / "some").run(ROWS, 1), job(tmp_path / "more").run(UNSEEN["the same"], 1)]
    runs.append(job(tmp_path / "late").run(UNSEEN["a new column of a type that Spark lacks"], 1))
    assert len({str(run.facts.input) for run in runs}) == 1
    facts = runs[0].facts.input
    assert facts is not None
    assert facts.columns == {"k": "string", "v": "int", "price": "decimal(6,2)"}


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-3, 3), st.booleans()), max_size=6),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-3, 3), st.booleans()), max_size=6),
    st.sampled_from([pa.int8(), pa.int32(), pa.int64()]),
    st.sampled_from([[], ["read"], ["unread"], ["unread", "new"]]),
)
def test_a_batch_is_the_rows_of_what_is_read(
    rows: list[Any], others: list[Any], kind: pa.DataType, unread: list[str]
) -> None:
    """The judge compares the rows as Python values, of the two columns that the job reads."""
    operator = AggregateOperator(
        "sums", "k", {"total": aggregates.sum("v")}, schema="k string, v bigint"
    )

    def table(values: list[Any], kind: pa.DataType, more: list[str]) -> pa.Table:
        columns = {
            "k": pa.array([row[0] for row in values], pa.string()),
            "v": pa.array([row[1] for row in values], kind),
        }
        return pa.table(columns | {name: pa.array([row[2] for row in values]) for name in more})

    with TemporaryDirectory() as folder:
        running = job(Path(folder), operator)
        running.run(table(rows, pa.int32(), ["unread"]), 1)
        for again in (others, rows[::-1]):
            batch = table(again, kind, unread)
            if Counter(row[:2] for row in again) == Counter(row[:2] for row in rows):
                assert running.run(batch, 1).committed_before
            else:
                with pytest.raises(InputChangedError):
                    running.run(batch, 1)


# ------------------------------------------------------------------------------ functions


class Names(KeyedProcessFunction):
    """Gives the names of the columns that it gets."""

    order_insensitive = True

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield {"names": " ".join(sorted(value.asDict() if hasattr(value, "asDict") else value))}


def names(**options: Any) -> KeyedOperator:
    schema = pa.schema([("names", pa.string())])
    return KeyedOperator("names", "k", Types.STRING, Names(), schema, **options)


LOADED = pa.table({"k": ["a"], "v": [1], "_dlt_load_id": ["1"], "_dlt_id": ["x"]})
RELOADED = pa.table({"k": ["a"], "v": [1], "_dlt_load_id": ["2"], "_dlt_id": ["y"]})


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"ignore_columns": ["_dlt_*"]}, "k v"),
        ({"columns": ["v"]}, "k v"),
        ({"columns": []}, "k"),
    ],
)
def test_columns_of_a_loader_are_left_out(
    tmp_path: Path, options: dict[str, Any], wanted: str
) -> None:
    running = job(tmp_path, names(), **options)
    assert pa.table(running.run(LOADED, 1).output).to_pylist() == [{"names": wanted}]
    assert running.run(RELOADED, 1).committed_before


def test_a_function_that_reads_all_columns_keeps_days_when_there_is_a_new_one(
    tmp_path: Path,
) -> None:
    running = job(tmp_path, names())
    running.run(LOADED, 1)
    more = LOADED.append_column("channel", pa.array(["web"]))
    assert running.run(more, 1).committed_before
    output = pa.table(running.run(more, 2).output)
    assert output.to_pylist() == [{"names": "_dlt_id _dlt_load_id channel k v"}]
    with pytest.raises(InputChangedError, match="no column 'channel' \\(string\\)"):
        running.run(LOADED, 2)


def test_a_rewind_applies_columns_that_the_commit_has_not_read(tmp_path: Path) -> None:
    one = job(tmp_path, names(), columns=["v"], num_retained=9)
    both = job(tmp_path, names(), columns=["v", "_dlt_id"], num_retained=9)
    one.run(LOADED, 1)
    assert both.run(RELOADED, 1).committed_before
    for rewound in (both.run(RELOADED, 1, rewind=True), both.run(RELOADED, 1, rewind=True)):
        assert pa.table(rewound.output).to_pylist() == [{"names": "_dlt_id k v"}]
    assert rewound.committed_before


def test_columns_that_are_missing_or_no_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no column 'w' in the batch, which the columns of the"):
        job(tmp_path, names(), columns=["w"]).run(LOADED, 1)
    for options in ({"columns": "v"}, {"ignore_columns": None}, {"ignore_columns": [1]}):
        with pytest.raises(ConfigError, match="expected a list of names of columns, got"):
            job(tmp_path, names(), **options)


def test_a_source_that_is_a_function_may_read_every_column(tmp_path: Path) -> None:
    def only_a(frames: Any) -> Any:
        return frames[INPUT].to_arrow().select(["k"])

    running = job(tmp_path, names(source=only_a))
    assert pa.table(running.run(LOADED, 1).output).to_pylist() == [{"names": "k"}]
    with pytest.raises(InputChangedError, match="'_dlt_id'"):
        running.run(RELOADED, 1)


# ---------------------------------------------------------------------- earlier releases


@pytest.mark.parametrize("hash_sum", ["1992c1a0e0609f7d", "4a7f78d25f190244"])
def test_commits_of_an_earlier_release_go_on(hash_sum: str) -> None:
    # Commit 534709da stored these hashes: of k, v and note, and of k and v alone.
    stored = InputFacts(id=1, rows=3, hash_sum=hash_sum, fingerprint_version=2)
    commit = CompletedCheckpoint(2, 1, "", 0, EpochFacts(input=stored))
    place = InputPlace(commit, commit, 1)
    operator = AggregateOperator(
        "sums", "k", {"total": aggregates.sum("v")}, schema="k string, v int"
    )
    reads, engine = ReadColumns.of([operator], None, None, ()), LocalEngine()
    rows = {"k": ["a", "b", "a"], "v": pa.array([1, 2, 3], pa.int32()), "note": ["x", None, "z"]}
    has_note = hash_sum.startswith("19")

    def again(table: pa.Table) -> Any:
        batch = engine.batch_of(table, "The batch", reads)
        return committed_before(place, batch, reads, 1, engine, rewind=False)

    assert again(pa.table(rows)) is commit
    assert again(pa.table({**rows, "channel": ["web"] * 3, "shop": [1, 2, 3]})) is commit
    other = pa.table({**rows, "note": ["y"] * 3})
    if not has_note:
        assert again(other) is commit
        other = pa.table({**rows, "v": pa.array([1, 2, 4], pa.int32())})
    with pytest.raises(InputChangedError, match="that commit does not name its columns"):
        again(other)
