"""An aggregate whose definition changes between epochs never adds to state that means something
else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dstl_core import (
    AggregateOperator,
    KeyedOperator,
    LocalEngine,
    StatefulJob,
    ValueStateDescriptor,
    aggregates,
)
from dstl_core.errors import ConfigError
from dstl_core.functions import RichMapFunction
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.state.windows.windowing import TumblingEventTimeWindows

SCHEMA = "k string, v double, w double, ok boolean, fine boolean, ts bigint"
ROWS = pa.table(
    {
        "k": ["a", "a", "a", "b"],
        "v": [0.5, 3.0, 7.0, 5.0],
        "w": [1.0, 2.0, 3.0, 4.0],
        "ok": [True, True, False, True],
        "fine": [True, False, True, False],
        "ts": [1, 2, 3, 4],
    }
)
CHANGED = {
    "another aggregate": (aggregates.sum("v"), aggregates.max("v")),
    "another column": (aggregates.sum("v"), aggregates.sum("w")),
    "a count of a column": (aggregates.count(), aggregates.count("v")),
    "and, or": (aggregates.bool_and("ok"), aggregates.bool_or("ok")),
    "another flag": (aggregates.bool_or("ok"), aggregates.bool_or("fine")),
    "another order": (aggregates.max_by("ok", "v"), aggregates.max_by("ok", "w")),
    "least, largest": (aggregates.min_by("ok", "v"), aggregates.max_by("ok", "v")),
    "another limit": (aggregates.top("v", 2), aggregates.top("v", 3)),
    "another half-life": (
        aggregates.decayed_sum("v", 1000, "ts"),
        aggregates.decayed_sum("v", 2000, "ts"),
    ),
    "other bounds": (aggregates.histogram("v", [1, 5]), aggregates.histogram("v", [1, 6])),
}
KEPT = {
    "a sketch of another size": (
        aggregates.approx_count_distinct("v"),
        aggregates.approx_count_distinct("v", 10),
    ),
    "quantiles of another size": (
        aggregates.quantiles("v", [0.5]),
        aggregates.quantiles("v", [0.5], k=300),
    ),
    "the same states": (aggregates.variance("v"), aggregates.stddev("v")),
    "the same states of two columns": (
        aggregates.covar_samp("v", "w"),
        aggregates.corr("v", "w"),
    ),
    "an order as a list": (aggregates.last("v", "ts"), aggregates.last("v", ["ts"])),
    "orders as a tuple": (aggregates.last("v", ["ts", "w"]), aggregates.last("v", ("ts", "w"))),
    "more values": (aggregates.value_counts("ts", 5), aggregates.value_counts("ts", 9)),
    "other probabilities": (aggregates.quantiles("v", [0.5]), aggregates.quantiles("v", [0.9])),
    "equal bounds": (aggregates.histogram("v", [0, 5]), aggregates.histogram("v", (-0.0, 5.0))),
    "a type that was that of the schema": (aggregates.max("v"), aggregates.max("v", "double")),
}
JobOf = Callable[..., StatefulJob]


@pytest.fixture
def job_of(tmp_path: Path) -> JobOf:
    def make(aggregate: Any, name: str = "job", **options: Any) -> StatefulJob:
        operator = AggregateOperator("u", "k", {"h": aggregate}, schema=SCHEMA, **options)
        copies = LocalCopies(str(tmp_path / "local"))
        jobs = str(tmp_path / "jobs")
        return StatefulJob(LocalEngine(), name, jobs, operator, local_copies=copies, num_retained=9)

    return make


def histograms(job: StatefulJob) -> dict[str, Any]:
    return {line["key"]: line["value"] for line in job.snapshot()["u"].dump("h")}


@pytest.mark.parametrize("change", CHANGED)
def test_another_definition_is_refused_before_anything_is_written(
    job_of: JobOf, change: str
) -> None:
    one, other = CHANGED[change]
    job = job_of(one)
    job.run(ROWS, 1)
    latest = job.latest()
    wrong = (
        f"The aggregate 'h' of operator 'u' was changed, and its state cannot be converted: "
        f"expected {one.definition}, got {other.definition}; keep the definition, give the new "
        f"aggregate another name, or begin it anew with migrate(start_empty=['h']). A column that "
        f"has a new name can get its old one in the batch."
    )
    with pytest.raises(ConfigError, match=re.escape(wrong)):
        job_of(other).run(ROWS, 2)
    assert job.latest() == latest
    job.run(ROWS, 2)


@pytest.mark.parametrize("change", KEPT)
def test_a_definition_that_means_the_same_goes_on(job_of: JobOf, change: str) -> None:
    one, other = KEPT[change]
    job_of(one).run(ROWS, 1)
    job_of(other).run(ROWS, 2)


def test_the_definition_is_that_of_the_commit_an_epoch_begins_with(job_of: JobOf) -> None:
    job_of(aggregates.histogram("v", [1, 5])).run(ROWS, 1)
    job = job_of(aggregates.histogram("v", [1.0, 5.0]))
    job.run(ROWS, 2)
    expected = {"a": [2, 2, 2], "b": [0, 0, 2]}
    assert histograms(job) == expected
    wrong = r"expected histogram\(column='v', bounds=\(1\.0, 5\.0\)\), got"
    other = job_of(aggregates.histogram("v", [1, 6]))
    for call in (other.run, other.persist):
        with pytest.raises(ConfigError, match=wrong):
            call(ROWS, 3)
    job.materialize()
    with pytest.raises(ConfigError, match=wrong):
        other.run(ROWS, 3)
    assert histograms(other) == expected
    other.run(ROWS, 1, rewind=True)
    assert histograms(other) == {"a": [1, 1, 1], "b": [0, 1, 0]}
    with pytest.raises(ConfigError, match=r"bounds=\(1\.0, 6\.0\)\), got"):
        job.run(ROWS, 2)


def test_windows_with_another_definition_are_refused(job_of: JobOf) -> None:
    windows = {"window": TumblingEventTimeWindows.of(1000), "event_time": "ts"}
    job_of(aggregates.sum("v"), **windows).run(ROWS, 1)
    with pytest.raises(ConfigError, match=r"'h' of operator 'u' was changed.* windows have fired"):
        job_of(aggregates.max("v"), **windows).run(ROWS, 2)


def test_the_definitions_of_a_savepoint_are_known_after_its_first_epoch(
    job_of: JobOf, tmp_path: Path
) -> None:
    job = job_of(aggregates.histogram("v", [1, 5]))
    job.run(ROWS, 1)
    savepoint = job.savepoint(str(tmp_path / "savepoint"))
    started = job_of(aggregates.histogram("v", [1, 5]), "started")
    started.start(savepoint)
    started.run(ROWS, 1)
    assert histograms(started) == {"a": [2, 2, 2], "b": [0, 0, 2]}
    with pytest.raises(ConfigError, match="The aggregate 'h' of operator 'u' was changed"):
        job_of(aggregates.histogram("v", [2, 5]), "started").run(ROWS, 2)


@pytest.mark.parametrize("form", ["savepoint", "checkpoint"])
def test_a_start_from_state_of_another_definition_is_refused(
    job_of: JobOf, tmp_path: Path, form: str
) -> None:
    first = job_of(aggregates.max("v"))
    first.run(ROWS, 1)
    path = first.latest_path() if form == "checkpoint" else first.savepoint(str(tmp_path / "s"))
    other = job_of(aggregates.min("v"), "other")
    wrong = (
        "The aggregate 'h' of operator 'u' was changed, and its state cannot be converted: "
        "expected max(column='v'), got min(column='v'); keep the definition, give the new "
        "aggregate another name, or begin it anew with dstl migrate of the savepoint."
    )
    with pytest.raises(ConfigError, match=re.escape(wrong)):
        other.start(path)
    assert other.latest() is None
    same = job_of(aggregates.max("v"), "same")
    same.start(path)
    # The definition counts before the first epoch, too.
    with pytest.raises(ConfigError, match="was changed"):
        job_of(aggregates.min("v"), "same").run(ROWS, 1)
    same.run(ROWS, 1)


SELECTORS = {
    "another key column": ({"key_by": "k"}, {"key_by": "other"}, "key_by='k', got key_by='other'"),
    "larger windows": (
        {"window": TumblingEventTimeWindows.of(1000), "event_time": "ts"},
        {"window": TumblingEventTimeWindows.of(2000), "event_time": "ts"},
        "size=1000, slide=1000",
    ),
    "another time": (
        {"window": TumblingEventTimeWindows.of(1000), "event_time": "ts"},
        {"window": TumblingEventTimeWindows.of(1000), "event_time": "other_ts"},
        "event_time='other_ts'",
    ),
}


def selecting(tmp_path: Path, name: str = "job", **options: Any) -> StatefulJob:
    operator = AggregateOperator(
        "u",
        options.pop("key_by", "k"),
        {"total": aggregates.sum("v")},
        schema=f"{SCHEMA}, other string, other_ts bigint",
        **options,
    )
    copies = LocalCopies(str(tmp_path / "local"))
    return StatefulJob(
        LocalEngine(), name, str(tmp_path / "jobs"), operator, local_copies=copies, num_retained=9
    )


TWO_KEYS = ROWS.append_column("other", pa.array(["a", "b", "b", "c"])).append_column(
    "other_ts", pa.array([1, 2, 3, 4], pa.int64())
)


@pytest.mark.parametrize("change", SELECTORS)
def test_rows_never_reach_the_state_of_another_key_or_window(tmp_path: Path, change: str) -> None:
    before, after, wrong = SELECTORS[change]
    first = selecting(tmp_path, **before)
    first.run(TWO_KEYS, 1)
    other = selecting(tmp_path, **after)
    for call in (
        lambda: other.run(TWO_KEYS, 2),
        lambda: other.persist(TWO_KEYS, 2),
        other.migrate,
        lambda: other.migrate(start_empty=["total"]),
        lambda: selecting(tmp_path, "started", **after).start(first.latest_path()),
    ):
        with pytest.raises(ConfigError, match="The rows of operator 'u' would reach") as error:
            call()
        assert wrong in error.value.message
    first.run(TWO_KEYS, 2)


class Counting(RichMapFunction):
    order_insensitive = True

    def open(self, context: Any) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", "bigint"))

    def map(self, row: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)


def test_another_key_of_a_function_is_refused_too(tmp_path: Path) -> None:
    def job_of(key_by: str, event_time: str | None = None) -> StatefulJob:
        operator = KeyedOperator("u", key_by, "string", Counting(), event_time=event_time)
        return StatefulJob(LocalEngine(), "job", str(tmp_path / "jobs"), operator)

    job_of("k").run(TWO_KEYS, 1)
    with pytest.raises(ConfigError, match="expected key_by='k', got key_by='other'"):
        job_of("other").run(TWO_KEYS, 2)
    job_of("k", "ts").run(TWO_KEYS, 2)  # its state does not depend on the column of times
