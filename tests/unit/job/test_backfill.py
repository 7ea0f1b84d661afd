"""``migrate(backfill=)`` gives an added aggregate the values that it would have had."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from dstl_core import AggregateOperator, LocalEngine, StatefulJob, aggregates
from dstl_core.errors import ConfigError, InputChangedError
from dstl_core.job.coordination.job_backfill import check_backfill
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.windows import TumblingEventTimeWindows
from tests.unit.job.test_job_migration import Killed, kill_at

SCHEMA = "k string, v bigint, w double, item string, t bigint"
OLD = {"n": aggregates.count(), "m": aggregates.max("v")}
ADDED = {
    "least": aggregates.min("v"),
    "total": aggregates.sum("v"),
    "mean": aggregates.avg("w"),
    "latest": aggregates.max_by("item", "t"),
}
JobOf = Callable[..., StatefulJob]
SQL = {
    "n": "count(*)",
    "m": "max(v)",
    "least": "min(v)",
    "total": "sum(v)::bigint",
    "mean_sum": "sum(w)",
    "mean_count": "count(w)",
    "latest": "max_by(item, t)",
    "latest_order": "max(t) FILTER (item IS NOT NULL)",
}


def batch(number: int) -> pa.Table:
    """Rows of which some values are null; a few keys, and one of each batch alone."""
    rng = random.Random(number)
    rows = [(f"key-{rng.randint(0, 9)}", rng.randint(-99, 99)) for _ in range(40)]
    rows += [(f"own-{number}", number), (f"null-{number}", None)]
    return pa.table(
        {
            "k": [key for key, _ in rows],
            "v": pa.array([None if rng.random() < 0.2 else value for _, value in rows], pa.int64()),
            "w": [rng.randint(0, 64) / 4 for _ in rows],
            "item": [f"item-{rng.randint(0, 99)}" for _ in rows],
            "t": [number * 1000 + at for at in rng.sample(range(1000), len(rows))],
        }
    )


def expected(states: Mapping[str, Any], batches: Mapping[int, pa.Table]) -> dict[str, Any]:
    """The states by DuckDB, over all batches."""
    rows = pa.concat_tables(batches.values())  # noqa: F841  # DuckDB reads it
    names = [name for name in SQL if name.split("_")[0] in states]
    columns = ", ".join(f"{SQL[name]} AS {name}" for name in names)
    table = duckdb.sql(f"SELECT k, {columns} FROM rows GROUP BY k").to_arrow_table().to_pylist()
    return {name: {row["k"]: row[name] for row in table if row[name] is not None} for name in names}


def values_of(job: StatefulJob) -> dict[str, dict[str, Any]]:
    operator = job.snapshot()["u"]
    return {
        state.name: {line["key"]: line["value"] for line in operator.dump(state.name)}
        for state in operator.states
    }


@pytest.fixture
def job_of(tmp_path: Path) -> JobOf:
    def make(states: Mapping[str, Any], name: str = "job", **options: Any) -> StatefulJob:
        operator = AggregateOperator("u", "k", states, schema=SCHEMA, **options)
        copies = LocalCopies(str(tmp_path / "local"))
        return StatefulJob(
            LocalEngine(),
            name,
            str(tmp_path / "jobs"),
            operator,
            local_copies=copies,
            num_retained=9,
        )

    return make


def test_an_added_aggregate_has_what_it_would_have_had(job_of: JobOf) -> None:
    batches = {number: batch(number) for number in (1, 2, 3)}
    old = job_of(OLD)
    for number, rows in batches.items():
        old.run(rows, number)
    before, old_values = old.history(), values_of(old)
    states = {**OLD, **ADDED}
    job = job_of(states)
    change: dict[str, Any] = {"backfill": list(ADDED), "batches": batches.__getitem__}
    commit = job.migrate(**change)
    assert commit is not None
    assert values_of(job) == expected(states, batches)
    assert {name: values_of(job)[name] for name in OLD} == old_values
    assert list(job.history())[:-1] == list(before)
    assert commit.facts.keys["u"].count == len(values_of(job)["n"])
    assert verify_snapshot(job.snapshot()).findings == []
    assert not list(Path(job.path.removeprefix("file:")).rglob("migration"))
    assert job.migrate(**change) == commit

    batches[4] = batch(4)
    job.run(batches[4], 4)
    assert job.migrate(**change) == job.latest()
    assert values_of(job) == expected(states, batches)

    # A day before the change is restated: the inputs before it are applied again.
    batches[2] = batch(20)
    job.migrate(**change, before_input=2)
    assert values_of(job) == expected(states, {1: batches[1]})
    for number in (2, 3, 4):
        job.run(batches[number], number, rewind=number == 2)
    assert values_of(job) == expected(states, batches)
    assert job.migrate(**change) == job.latest()


def test_it_may_come_later_and_under_a_name_that_meant_something_else(job_of: JobOf) -> None:
    batches = {number: batch(number) for number in (1, 2, 3)}
    job_of(OLD).run(batches[1], 1)
    states = {**OLD, "total": ADDED["total"]}
    job = job_of(states)
    job.migrate()
    job.run(batches[2], 2)
    assert values_of(job)["total"] == expected(states, {2: batches[2]})["total"]
    job.migrate(backfill=["total"], batches=batches.__getitem__)
    assert values_of(job) == expected(states, batches | {3: batches[3].slice(0, 0)})

    job = job_of({"n": OLD["n"], "m": ADDED["least"]})
    job.migrate(drop=["total"], backfill=["m"], batches=batches.__getitem__)
    job.run(batches[3], 3)
    assert job.migrate(drop=["total"], backfill=["m"], batches=batches.get) == job.latest()
    least = expected({"least": None}, batches)["least"]
    assert values_of(job) == {"n": expected({"n": None}, batches)["n"], "m": least}


def test_an_aggregate_from_the_first_input_on_needs_no_backfill(job_of: JobOf) -> None:
    job = job_of(OLD)
    for number in (1, 2):
        job.run(batch(number), number)
        assert job.migrate(backfill=["m"], batches={}.__getitem__) == job.latest()
    assert [commit.facts.kind for commit in job.history()] == ["start", "epoch", "epoch"]


def test_what_cannot_be_computed_again_is_refused(job_of: JobOf, tmp_path: Path) -> None:
    batches = {number: batch(number) for number in (1, 2)}
    for number, rows in batches.items():
        job_of(OLD).run(rows, number)
    latest = job_of(OLD).latest()
    job = job_of({**OLD, **ADDED})

    def refused(error: type[Exception], text: str, **change: Any) -> None:
        with pytest.raises(error, match=text):
            job.migrate(**{"backfill": ["least"], "batches": batches.get, **change})
        assert job.latest() == latest

    refused(ConfigError, "'lest' cannot be backfilled: expected an aggregate", backfill=["lest"])
    refused(ConfigError, "applies 2 inputs again, and nothing gives their rows", batches=None)
    refused(ConfigError, "stands twice", start_empty=["least"])
    other = {**batches, 2: batch(3)}
    refused(InputChangedError, "input 2 has other rows .*40 rows|have other", batches=other.get)

    second = job_of(OLD, "second")
    second.start(job_of(OLD).savepoint(str(tmp_path / "savepoint")))
    second = job_of({**OLD, **ADDED}, "second")
    with pytest.raises(ConfigError, match="started from the savepoint"):
        second.migrate(backfill=["least"], batches=batches.get)
    apart = {"least": aggregates.min("v")}
    first = AggregateOperator("first", "k", apart, schema=SCHEMA, output=True)
    reads_first = AggregateOperator(
        "u",
        "k",
        {"least": aggregates.min("least")},
        schema="k string, least bigint",
        source="first",
    )
    with pytest.raises(ConfigError, match="operator 'u' reads another operator"):
        check_backfill([reads_first, first], ["least"])
    windows = {"window": TumblingEventTimeWindows.of(60_000), "event_time": "t"}
    with pytest.raises(ConfigError, match="'n' cannot be backfilled: the operator 'u' has windows"):
        windowed = job_of(OLD, "windowed", **windows)
        windowed.run(batches[1], 1)
        windowed.migrate(backfill=["n"], batches=batches.get)


@pytest.mark.soak
def test_a_kill_before_a_storage_operation_leaves_the_state_of_before(
    job_of: JobOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = {number: batch(number) for number in (1, 2)}
    for number, rows in batches.items():
        job_of(OLD).run(rows, number)
    shutil.copytree(tmp_path / "jobs", tmp_path / "start")
    states = {**OLD, "total": ADDED["total"]}
    change: dict[str, Any] = {"backfill": ["total"], "batches": batches.__getitem__}
    kills = 0
    for at in itertools.count(0, 11):
        shutil.rmtree(tmp_path / "jobs")
        shutil.copytree(tmp_path / "start", tmp_path / "jobs")
        with monkeypatch.context() as patch:
            kill_at(patch, at)
            with contextlib.suppress(Killed):
                job_of(states).migrate(**change)
                break
        kills += 1
        job = job_of(states)
        job.migrate(**change)
        assert values_of(job) == expected(states, batches), at
        assert verify_snapshot(job.snapshot()).findings == []
    assert kills > 9
