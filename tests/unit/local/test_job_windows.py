"""Windows as operators of a job: rows over several epochs against a plain aggregation."""

from collections import defaultdict

import pyarrow as pa
import pytest

from dstl_core import Snapshot
from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError, DstlError, SavepointError
from dstl_core.functions import ProcessWindowFunction, WindowFunction
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies
from dstl_core.savepoint.gc import collect_garbage
from dstl_core.state.windows.triggers import CountTrigger, PurgingTrigger
from dstl_core.state.windows.windowing import (
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    TumblingEventTimeWindows,
)
from dstl_core.stateful_job import StatefulJob
from dstl_core.testing import ManualClock
from tests.integration.spark import job_functions
from tests.integration.spark.job_functions import random_windowed_batch

pytestmark = pytest.mark.slow

OUTPUT = pa.schema(
    [("k", pa.string()), ("start", pa.int64()), ("end", pa.int64()), ("total", pa.int64())]
)
SCHEMA = "k string, v long, ts long"


class Sums(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        start, end = (0, 0) if window == "global" else window
        yield {"k": key, "start": start, "end": end, "total": sum(elements)}


def job_of(session, base, assigner, name="windows", options=None, **parts):
    parts = {"reduce": lambda a, b: a + b, "element": "v", "process": Sums(), **parts}
    function = WindowFunction(assigner, Types.LONG, **parts)
    operator = KeyedOperator(
        "w", "k", Types.STRING, function, OUTPUT, event_time="ts", out_of_orderness_ms=500
    )
    local = LocalCopies(str(base / "local"))
    return StatefulJob(session, name, str(base), operator, local_copies=local, **(options or {}))


def with_text(rows):
    table = rows.to_arrow()
    return table.append_column("t", pa.array(["late"] * len(table)))


def rows_of(result):
    return [(row.k, row.start, row.end, row.total) for row in result.output.collect()]


def in_time(batches):
    """The rows of each batch whose windows have not ended before it."""
    watermark = -(1 << 63)
    for rows in batches:
        yield [row for row in rows if row[2] // 1000 * 1000 + 999 > watermark]
        watermark = max([watermark, *(row[2] - 501 for row in rows)])


def check_report(job, watermark):
    """The report counts windows and timers from the watermark that the commit records."""
    [operator] = job.report().figures["operators"]
    states = [each for each in operator["contents"]["states"] if each["entries"]]
    [timers] = [each["timers"] for each in states if each["timers"]]
    [windows] = [each["windows"] for each in states if each["windows"]]
    for part in (timers, windows):
        assert (part["counts_from"], part["from_ms"]) == ("watermark", watermark)
        assert part["behind"] == 0
    assert windows["entries"] == sum(1 for _ in job.snapshot()["w"].window_entries()) > 0
    assert timers["count"] == windows["entries"]
    page = job.history()._repr_html_()
    assert page.count("<tr>") == len(job.history()) + 1
    assert page.startswith(f"<p>{len(job.history())} commits; bytes that each added")


def test_tumbling_windows_over_epochs_are_a_plain_aggregation(session, tmp_path):
    late_schema = pa.schema([("ts", pa.int64()), ("k", pa.string()), ("v", pa.int64())])
    parts = {"side_output_late_data": late_schema}
    job = job_of(session, tmp_path, TumblingEventTimeWindows.of(1000), **parts)
    batches = [random_windowed_batch(seed, 800 * seed) for seed in range(5)]
    seen, dropped, late = [], 0, []
    for number, rows in enumerate(batches):
        if number == 3:
            rescaled = {"parallelism": 5}
            job = job_of(
                session, tmp_path, TumblingEventTimeWindows.of(1000), options=rescaled, **parts
            )
        result = job.run(session.createDataFrame(rows, SCHEMA), number, order_by=["ts"])
        assert result.output.columns == OUTPUT.names
        seen += rows_of(result)
        dropped += result.facts.operators["w"].late_rows
        late += [(row.k, row.v, row.ts) for row in result.outputs["w.late"].collect()]
    check_report(job, max(row[2] for rows in batches for row in rows) - 501)
    path = job.stop_with_savepoint(str(tmp_path / "savepoint"), drain=True)
    drained = job.history()[-2]
    seen += [
        (row.k, row.start, row.end, row.total) for row in job.output_of(drained)["w"].collect()
    ]
    kept = [row for rows in in_time(batches) for row in rows]
    assert sorted(late + kept) == sorted(row for rows in batches for row in rows)
    assert dropped == len(late) > 0
    sums: dict[tuple[str, int], int] = defaultdict(int)
    for key, value, time in kept:
        sums[key, time // 1000 * 1000] += value
    assert sorted(seen) == sorted(
        (key, start, start + 1000, total) for (key, start), total in sums.items()
    )
    assert list(Snapshot.load(path)["w"].dump()) == []


def test_open_windows_are_committed_and_a_repeated_input_gives_their_output(session, tmp_path):
    job = job_of(session, tmp_path, EventTimeSessionWindows.with_gap(100))
    first = session.createDataFrame([("a", 1, 0), ("a", 2, 90), ("b", 4, 5000)], SCHEMA)
    result = job.run(first, 1, order_by=["ts"])
    assert rows_of(result) == [("a", 0, 190, 3)]
    assert result.facts.watermarks == {"w": 4499}
    open_windows = [
        (line["key"], line["ns"], line["value"])
        for line in job.snapshot()["w"].dump("window-contents")
    ]
    assert open_windows == [("b", [5000, 5100], 4)]
    again = job_of(session, tmp_path, EventTimeSessionWindows.with_gap(100))
    assert rows_of(again.run(first, 1, order_by=["ts"])) == [("a", 0, 190, 3)]
    # No row for b: its subtask runs all the same, since time has passed.
    second = session.createDataFrame([("a", 8, 9000), ("a", 16, 10)], SCHEMA)
    result = again.run(second, 2, order_by=["ts"])
    assert rows_of(result) == [("b", 5000, 5100, 4)]
    assert result.facts.operators["w"].late_rows == 1


def test_a_name_that_is_taken_is_refused_before_event_time_ends(session, tmp_path):
    job = job_of(session, tmp_path / "jobs", TumblingEventTimeWindows.of(1000))
    job.run(session.createDataFrame([("a", 1, 100)], SCHEMA), 1, order_by=["ts"])
    place = job.savepoint(str(tmp_path / "savepoint"))
    commits = len(job.history())
    with pytest.raises(SavepointError, match="Another snapshot is already there"):
        job.stop_with_savepoint(place, drain=True)
    assert len(job.history()) == commits
    assert len(list(job.snapshot()["w"].dump())) > 0, "the window is open"


@pytest.mark.parametrize("stopped", [False, True], ids=["failed stop", "resumed"])
def test_event_time_that_a_drain_has_ended_goes_on_after_it(session, tmp_path, stopped):
    job = job_of(session, tmp_path / "jobs", TumblingEventTimeWindows.of(1000))
    job.run(session.createDataFrame([("a", 1, 100), ("a", 2, 1900)], SCHEMA), 1, order_by=["ts"])
    if stopped:
        job.stop_with_savepoint(str(tmp_path / "savepoint"), drain=True)
        job.resume()
    else:
        (tmp_path / "savepoint" / "_dstl.json").mkdir(parents=True)  # where its notes belong
        with pytest.raises(DstlError):
            job.stop_with_savepoint(str(tmp_path / "savepoint"), drain=True)
    assert list(job.snapshot()["w"].dump()) == [], "the drain itself is committed"
    rows = session.createDataFrame([("a", 4, 1950), ("a", 8, 500), ("b", 16, 9000)], SCHEMA)
    result = job.run(rows, 2, order_by=["ts"])
    assert rows_of(result) == [("a", 1000, 2000, 4)]
    assert result.facts.operators["w"].late_rows == 1, "late by the rows before the drain"
    assert result.facts.watermarks == {"w": 8499}


def test_late_rows_are_counted_and_may_be_an_output_that_others_read(session, tmp_path):
    late_schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    windows = {"reduce": lambda a, b: a + b, "element": "v", "process": Sums()}
    counted = KeyedOperator(
        "counted",
        "k",
        Types.STRING,
        WindowFunction(TumblingEventTimeWindows.of(1000), Types.LONG, **windows),
        OUTPUT,
        event_time="ts",
    )
    on_time = KeyedOperator(
        "given",
        "k",
        Types.STRING,
        WindowFunction(
            TumblingEventTimeWindows.of(1000),
            Types.LONG,
            side_output_late_data=late_schema,
            **windows,
        ),
        OUTPUT,
        event_time="ts",
    )
    repaired = KeyedOperator(
        "repaired",
        "k",
        Types.STRING,
        job_functions.TotalsByRow(),
        job_functions.OUTPUT,
        source=lambda frames: with_text(frames["given.late"]),
        order_by=["v"],
    )
    job = StatefulJob(
        session, "late", str(tmp_path), counted, downstream=[on_time, repaired], num_retained=9
    )
    first = session.createDataFrame([("a", 1, 100), ("b", 2, 3000)], SCHEMA)
    result = job.run(first, 1, order_by=["ts"])
    assert result.outputs["given.late"].collect() == []
    assert "late rows" not in str(result)
    second = [("a", 4, 200), ("a", 8, 3500), ("b", 16, 300), ("b", 32, 9000)]
    result = job.run(session.createDataFrame(second, SCHEMA), 2, order_by=["ts"])
    for uid in ("counted", "given"):
        assert result.facts.operators[uid].late_rows == 2
    assert str(result).count(", 2 late rows") == 2
    assert sorted(result.outputs) == ["counted", "given", "given.late", "repaired"]
    late = result.outputs["given.late"]
    assert late.columns == ["k", "v"]
    assert sorted(map(tuple, late.collect())) == [("a", 4), ("b", 16)]
    assert sorted(map(tuple, result.output.collect())) == [("a", 4), ("b", 16)]
    # They are stored with the commit: the same after a repetition, and no garbage.
    assert collect_garbage(str(tmp_path), older_than_ms=0).garbage == []
    again = job.run(session.createDataFrame(second, SCHEMA), 2, order_by=["ts"])
    assert again.committed_before
    assert sorted(map(tuple, again.outputs["given.late"].collect())) == [("a", 4), ("b", 16)]


def test_count_windows_need_no_time(session, tmp_path):
    trigger = PurgingTrigger.of(CountTrigger.of(3))
    function = WindowFunction(
        GlobalWindows.create(),
        Types.LONG,
        element="v",
        process=Sums(),
        trigger=trigger,
    )
    operator = KeyedOperator("w", "k", Types.STRING, function, OUTPUT)
    job = StatefulJob(session, "counts", str(tmp_path), operator)
    totals = []
    for number in range(2):
        rows = [("a", 10 * number + each, 0) for each in range(4)]
        result = job.run(session.createDataFrame(rows, SCHEMA), number, order_by=["v"])
        totals += [row.total for row in result.output.collect()]
    assert totals == [0 + 1 + 2, 3 + 10 + 11]
    kept = {line["state"]: line["value"] for line in job.snapshot()["w"].dump()}
    assert kept == {"window-contents": [12, 13], "count": 2}


def test_windows_by_the_clock_fire_before_the_rows_of_the_next_epoch(session, tmp_path):
    clock = ManualClock(10_000)
    # The next row touches a session that is over: merged if its timer had not fired.
    assigner = ProcessingTimeSessionWindows.with_gap(1000)
    job = job_of(session, tmp_path, assigner, options={"clock": clock})
    rows = session.createDataFrame([("a", 1, 0), ("b", 2, 0)], SCHEMA)
    assert rows_of(job.run(rows, 1, order_by=["v"])) == []
    clock.advance(1000)
    rows = session.createDataFrame([("a", 4, 0)], SCHEMA)
    rows_fired = rows_of(job.run(rows, 2, order_by=["v"]))
    assert sorted(rows_fired) == [("a", 10_000, 11_000, 1), ("b", 10_000, 11_000, 2)]


def test_windows_in_event_time_need_its_column(session, tmp_path):
    function = WindowFunction(TumblingEventTimeWindows.of(10), Types.LONG, element="v")
    job = StatefulJob(
        session, "windows", str(tmp_path), KeyedOperator("w", "k", Types.STRING, function)
    )
    with pytest.raises(ConfigError, match="The windows of 'w' are in event time"):
        job.run(session.createDataFrame([("a", 1, 0)], SCHEMA), 1, order_by=["v"])
    assert job.latest() is None
