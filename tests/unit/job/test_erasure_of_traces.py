"""``erase`` finds keys where the state has them no longer, and in every form of a pipeline."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dstl_core import AggregateOperator, KeyedOperator, LocalEngine, StatefulJob, aggregates
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.errors import ConfigError, FencedError
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.erasure import erasure
from dstl_core.job.erasure.erased_rows import ErasedRows
from dstl_core.job.erasure.erasure import PipelineKeys
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.sinks import ParquetSink
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_core.windows import TumblingEventTimeWindows
from tests.unit.job.test_erasure import ADA, BOB, batch, folder_of, job_of, rows_of, values_of
from tests.unit.job.test_job_migration import Killed
from tests.unpacked import files_with


class Forgets(KeyedProcessFunction):
    """Keeps a number and a timer of a key until a number below zero comes."""

    def open(self, context: Any) -> None:
        self.number = context.get_state(ValueStateDescriptor("number", "bigint"))

    def process_element(self, row: Any, context: Any) -> Iterator[dict[str, Any]]:
        timers, time = context.timer_service(), 1_000
        if row["v"] < 0:
            self.number.clear()
            timers.delete_event_time_timer(time)
        else:
            self.number.update(row["v"])
            timers.register_event_time_timer(time)
        yield {"k": row["k"], "v": row["v"]}

    def on_timer(self, time_ms: int, context: Any) -> Iterator[dict[str, Any]]:
        return iter(())


def forgetful(folder: Path, **options: Any) -> StatefulJob:
    forgets = KeyedOperator("forgets", "k", "string", Forgets(), "k string, v bigint")
    jobs = str(folder / "jobs")
    return StatefulJob(LocalEngine(), "forgets", jobs, forgets, max_parallelism=8, **options)


def numbers(*pairs: tuple[str, int]) -> pa.Table:
    return pa.table({"k": [key for key, _ in pairs], "v": [value for _, value in pairs]})


def test_a_key_that_the_state_has_no_longer_goes_from_the_log(tmp_path: Path) -> None:
    job = forgetful(tmp_path)
    job.run(numbers((ADA, 1), (BOB, 1)), 1, order_by=["v"])
    job.run(numbers((ADA, -1), (BOB, 2)), 2, order_by=["v"])
    assert not PipelineKeys(job.path, [ADA]).find().entries
    before = values_of(job, "forgets")
    done = job.erase([ADA])
    # A value and a timer were set, and taken back.
    assert done.traces.records == {"forgets": 4} and done.subtasks == 1
    assert files_with(tmp_path, ADA) == []
    assert values_of(job, "forgets") == before
    assert verify_snapshot(job.snapshot()).findings == []
    assert PipelineKeys(job.path, [ADA]).find().is_nothing
    job.run(numbers((BOB, 3)), 3, order_by=["v"])
    assert values_of(job, "forgets")["number"] == {BOB: 3}


def test_a_key_of_windows_that_have_fired_goes_with_its_late_rows(tmp_path: Path) -> None:
    counts = AggregateOperator(
        "counts",
        "k",
        {"n": aggregates.count()},
        schema="k string, ts timestamp",
        window=TumblingEventTimeWindows.of(1_000),
        event_time="ts",
        side_output_late_data=True,
    )
    job = StatefulJob(LocalEngine(), "counts", str(tmp_path), counts, parallelism=1)
    utc = pa.timestamp("us", "UTC")
    for number, rows in enumerate(({ADA: 2, BOB: 1}, {BOB: 30}, {ADA: 1, BOB: 31})):
        seconds = pa.array([1_000_000 * second for second in rows.values()], utc)
        job.run(pa.table({"k": list(rows), "ts": seconds}), number)
    done = job.erase([ADA])
    assert done.traces.entries == {} and done.traces.records["counts"] > 0
    assert done.traces.rows == {"counts": 1, "counts.late": 1}
    assert files_with(tmp_path, ADA) == []
    assert len(files_with(tmp_path, BOB)) > 0


def test_tables_lose_rows_of_a_key_that_only_stored_output_has(tmp_path: Path) -> None:
    job, table = forgetful(tmp_path, changelog=False), tmp_path / "table.parquet"
    job.run(numbers((ADA, 1), (BOB, 1), (ADA, -1)), 1, order_by=["v"])
    job.run(numbers((ADA, -1)), 2, order_by=["v"])
    job.merge_into(ParquetSink(str(table)))
    done = job.erase([ADA])
    assert done.traces.entries == {} and done.traces.rows == {"forgets": 3}
    job.merge_into(ParquetSink(str(table)))
    assert files_with(tmp_path, ADA) == []
    assert pq.read_table(table).column("k").to_pylist() == [BOB]


def test_a_pipeline_without_a_log_keeps_files_of_other_subtasks(tmp_path: Path) -> None:
    job = job_of(tmp_path, changelog=False, parallelism=4)
    job.run(batch(1), 1)
    expected = values_of(job, "sums")
    for key in (ADA, "other-3"):
        done = job.erase([key])
        assert done.subtasks == 1
        expected = {
            state: {other: value for other, value in own.items() if other != key}
            for state, own in expected.items()
        }
        assert values_of(job, "sums") == expected
        assert files_with(tmp_path, ADA) == []
    job.run(batch(2), 2)
    job.erase([BOB])
    assert len(list(folder_of(job).glob("chk-*"))) <= 2
    assert files_with(tmp_path, BOB) == []


def test_a_stopped_pipeline_stays_stopped(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    job.run(batch(1), 1)
    saved = job.stop_with_savepoint(str(tmp_path / "saved"))
    job.erase([ADA], savepoints=[saved])
    job.erase([BOB], savepoints=[saved])
    assert files_with(tmp_path, ADA) == files_with(tmp_path, BOB) == []
    with pytest.raises(ConfigError, match="was stopped"):
        job.run(batch(2), 2)
    assert job.stop_with_savepoint(str(tmp_path / "other")) == saved
    job.resume()
    job.run(batch(2), 2)


@pytest.mark.parametrize(
    ("ddl", "keys", "shown"),
    [
        ("struct<a string, b bigint>", [{"a": "x", "b": 1}, {"a": "x", "b": 2}], '["x", 1]'),
        ("decimal(10,2)", [Decimal("1.50"), Decimal("2.00")], "1.50"),
        ("array<int>", [[1, 2], [1]], "[1, 2]"),
    ],
)
def test_rows_of_keys_that_arrow_cannot_look_for(
    tmp_path: Path, ddl: str, keys: list[Any], shown: str
) -> None:
    schema = f"k {ddl}, v bigint"
    counts = AggregateOperator("n", "k", {"n": aggregates.count()}, schema=schema, output=True)
    job = StatefulJob(LocalEngine(), "n", str(tmp_path), counts, parallelism=1)
    job.run(pa.table({"k": keys, "v": [1, 2]}), 1)
    done = job.erase([shown])
    assert done.traces.entries == {"n": {"n": 1}} and done.traces.rows == {"n": 1}
    assert len(rows_of(job, "n")) == 1 and len([*job.snapshot()["n"].dump("n")]) == 1
    job.erase([keys[1]])
    assert rows_of(job, "n") == [*job.snapshot()["n"].dump("n")] == []


def test_output_of_attempts_that_were_not_committed_goes(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    job.run(batch(1), 1)
    rows = rows_of(job, "sums")
    [stored, *_] = files_with(folder_of(job) / "_dstl" / "output", ADA)
    file = folder_of(job) / "_dstl" / "output" / stored
    name = f"part-00000-{'ab' * 16}.parquet"
    shutil.copy(file, file.with_name(name))
    shutil.copy(file, file.with_name(f".{name}.{'cd' * 16}.tmp"))
    assert job.erase([ADA]).swept == 2
    assert files_with(tmp_path, ADA) == []
    assert rows_of(job, "sums") == [row for row in rows if row["k"] != ADA]


def test_another_erasure_meanwhile_is_not_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(tmp_path)
    job.run(batch(1), 1)
    read, begun = ErasedRows._read, []

    def read_beside(rows: ErasedRows, file: Any) -> Any:
        """Reads a file, and another erasure comes before it is replaced."""
        values = read(rows, file)
        if (
            not begun
            and PipelineStore.in_folder(job.path).require_latest().facts.kind == "erasure"
            and values[1].any()
        ):
            begun.append(file)
            PipelineKeys(job.path, [BOB]).erase()
        return values

    monkeypatch.setattr(ErasedRows, "_read", read_beside)
    with pytest.raises(FencedError):
        job.erase([ADA])
    assert files_with(tmp_path / "jobs", BOB) == []
    job_of(tmp_path).erase([ADA])
    assert files_with(tmp_path, ADA) == files_with(tmp_path, BOB) == []


def test_files_of_a_savepoint_go_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(tmp_path)
    job.run(batch(1), 1)
    saved = job.savepoint(str(tmp_path / "saved"))

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(erasure, "collect_garbage", killed)
        with pytest.raises(Killed):
            job.erase([ADA], savepoints=[saved])
    assert files_with(tmp_path, ADA)
    job.erase([ADA], savepoints=[saved])
    assert files_with(tmp_path, ADA) == []
