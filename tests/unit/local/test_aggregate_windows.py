"""Windows of declared aggregates keep the state of windows by row, and say what they refuse."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from dstl_core import (
    AggregateOperator,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedOperator,
    Snapshot,
    StatefulJob,
    Types,
    aggregates,
    windows,
)
from dstl_core.codec.serializers.structs import Row
from dstl_core.errors import ConfigError, RestoreError
from dstl_core.functions import ProcessWindowFunction, WindowFunction
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.savepoint.gc import collect_garbage
from dstl_core.storage.location import SIDECAR_FILE_NAME
from tests.integration.spark.job_functions import random_windowed_batch

pytestmark = pytest.mark.slow


class Pair:
    """The number of values and their sum, row by row."""

    def create_accumulator(self):
        return Row(0, (0, None))

    def add(self, value, accumulator):
        count, total = accumulator.fields
        return Row(0, (count + 1, value + (total or 0)))

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        (count, total), (more, other) = a.fields, b.fields
        return Row(0, (count + more, total + other))


class Shown(ProcessWindowFunction):
    schema = pa.schema(
        [
            ("k", pa.string()),
            ("window_start", pa.int64()),
            ("window_end", pa.int64()),
            ("n", pa.int64()),
            ("total", pa.int64()),
        ]
    )

    def process(self, key, context, elements):
        [pair] = elements
        values = (key, *context.window(), *pair.fields)
        yield dict(zip(self.schema.names, values, strict=True))


@pytest.mark.parametrize(
    "backend, assigner, lateness",
    [
        (HashMapStateBackend(), windows.TumblingEventTimeWindows.of(1000), 900),
        (EmbeddedRocksDBStateBackend(), windows.SlidingEventTimeWindows.of(1000, 500), 350),
        (HashMapStateBackend(), windows.EventTimeSessionWindows.with_gap(90), 400),
        (EmbeddedRocksDBStateBackend(), windows.EventTimeSessionWindows.with_gap(150), 700),
    ],
)
def test_windows_keep_what_windows_by_row_keep_and_give_the_same(
    session, tmp_path, backend, assigner, lateness
):
    by_row = KeyedOperator(
        "w",
        "k",
        "string",
        WindowFunction(
            assigner,
            Types.ROW(Types.LONG, Types.LONG),
            aggregate=Pair(),
            process=Shown(),
            element="v",
            allowed_lateness=lateness,
            side_output_late_data="ts bigint, v bigint",
        ),
        Shown.schema,
        event_time="ts",
        out_of_orderness_ms=500,
    )
    by_column = AggregateOperator(
        "w",
        "k",
        {"n": aggregates.count(), "total": aggregates.sum("v")},
        schema="k string, v bigint, ts bigint",
        window=assigner,
        event_time="ts",
        out_of_orderness_ms=500,
        allowed_lateness=lateness,
        side_output_late_data="ts bigint, v bigint",
    )
    assert by_column.output_schema.names == Shown.schema.names
    jobs = [
        StatefulJob(
            session,
            name,
            str(tmp_path),
            operator,
            state_backend=backend,
            parallelism=3,
            local_copies=LocalCopies(str(tmp_path / name)),
        )
        for name, operator in (("row", by_row), ("column", by_column))
    ]
    late = fired_late = 0
    for seed in range(4):
        rows = random_windowed_batch(seed, 800 * seed)
        back = [(*row, -row[2]) for row in rows]
        outputs, kept = [], []
        for job in jobs:
            frame = session.createDataFrame(back, "k string, v bigint, ts bigint, back bigint")
            # A row that is late by itself is late by row, too, if no later row is there before it.
            done = job.run(frame, seed, order_by=["back"])
            outputs.append([tuple(row) for row in done.outputs["w"].collect()])
            too_late = sorted(tuple(row) for row in done.outputs["w.late"].collect())
            assert len(too_late) == done.facts.operators["w"].late_rows
            kept.append((too_late, dumped(job.latest_path())))
        assert kept[0] == kept[1]
        # By row, a window that has ended fires for each row; by column, once for the batch.
        fired_late += len(outputs[0]) - len(whole(outputs[0]))
        assert sorted(outputs[1]) == whole(outputs[0])
        late += len(kept[0][0])
    assert late > 0 and fired_late > 0


def dumped(path):
    """The entries of a snapshot; the contents of a session by the session, as it may be stored
    under any window that began it.
    """
    lines = list(Snapshot.load(path)["w"].dump())
    sessions = {
        (line["key"], tuple(kept)): window
        for line in lines
        if line.get("state") == "merging-window-set"
        for window, kept in line["value"]
    }
    for line in lines:
        if line.get("state") == "window-contents" and sessions:
            line["ns"] = sessions.pop((line["key"], tuple(line["ns"])))
    assert not sessions
    return sorted(str(line) for line in lines if line.get("state") != "merging-window-set")


def whole(fired):
    """What fired last for each window; sessions that fired again when they had grown are gone."""
    last = {row[:3]: row for row in sorted(fired, key=lambda row: row[3])}
    return sorted(
        row
        for (key, start, end), row in last.items()
        if not any(
            other != (key, start, end) and other[0] == key and other[1] <= start and end <= other[2]
            for other in last
        )
    )


def test_windows_that_cannot_be_declared_are_refused():
    def declared(**options):
        options = {"window": windows.TumblingEventTimeWindows.of(10), "event_time": "t", **options}
        return AggregateOperator("u", "k", {"n": aggregates.count()}, "string", **options)

    for options, message in (
        ({"window": windows.ProcessingTimeSessionWindows.with_gap(5)}, "got ProcessingTimeSess"),
        ({"window": windows.TumblingProcessingTimeWindows.of(5)}, "use a KeyedOperator with"),
        ({"window": windows.SlidingEventTimeWindows.of(5, 6)}, "a slide of at most 5 ms"),
        ({"event_time": None}, "give event_time"),
        ({"allowed_lateness": -1}, "expected a duration of at least 0 ms as .*, got -1"),
        ({"allowed_lateness": "1 x"}, "The allowed lateness of operator 'u' .*, got '1 x'"),
        ({"out_of_orderness_ms": -5}, "The out-of-orderness of operator 'u' .*, got -5"),
        ({"window": None}, "has no windows"),
        (
            {"window": None, "event_time": None, "side_output_late_data": "t bigint"},
            "side_output_late_data are for windows",
        ),
        ({"side_output_late_data": True}, "has no columns; declare them, or give True"),
        ({"side_output_late_data": "t bignt"}, "side_output_late_data of .*'bignt'"),
    ):
        with pytest.raises(ConfigError, match=message):
            declared(**options)
    with pytest.raises(ConfigError, match="two columns 'window_end'"):
        AggregateOperator(
            "u",
            "k",
            {"window_end": aggregates.count()},
            "string",
            window=windows.TumblingEventTimeWindows.of(10),
            event_time="t",
        )
    assert declared(output=False).output_schema is None
    texts = declared(out_of_orderness_ms="2 s", allowed_lateness=dt.timedelta(seconds=3))
    assert texts == declared(out_of_orderness_ms=2000, allowed_lateness=3000)
    assert texts.function.allowed_lateness == 3000
    assert declared().columns == ["k", "t"]


NESTED = (
    "k string, j bigint, t timestamp, d decimal(9,2), n array<int>, m map<string,bigint>, "
    "s struct<a: double, b: binary>"
)


@pytest.mark.parametrize(
    "window, key",
    [
        (windows.TumblingEventTimeWindows.of(10), "k"),
        (windows.SlidingEventTimeWindows.of(10, 4), "j"),
        (windows.EventTimeSessionWindows.with_gap(10), "k"),
        (windows.EventTimeSessionWindows.with_gap(10), "j"),
    ],
)
def test_late_rows_are_an_output_that_others_read_and_that_a_repetition_gives(
    session, tmp_path, window, key
):
    operator = AggregateOperator(
        "u",
        key,
        {"n": aggregates.count()},
        schema=NESTED,
        window=window,
        event_time="t",
        side_output_late_data=True,
    )
    again = AggregateOperator(
        "again",
        "k",
        {"n": aggregates.count()},
        "string",
        source=lambda frames: frames["u.late"],
        output=True,
    )
    job = StatefulJob(session, "job", str(tmp_path), operator, downstream=[again], num_retained=9)

    def rows(*late_rows):
        input_rows = [
            (k, ord(k), dt.datetime.fromtimestamp(ms / 1000, dt.UTC), *others, at)
            for at, (k, ms, *others) in enumerate(late_rows)
        ]
        return session.createDataFrame(input_rows, f"{NESTED}, more int")

    parts = (Decimal("1.25"), [3, None], {"y": 1, "x": 2}, (0.5, b"b"))
    nothing = (None, None, None, None)
    done = job.run(rows(("a", 1, *nothing), ("b", 199, *nothing)), 1)
    assert done.outputs["u.late"].collect() == []
    # Equal rows stay as many as they are.
    late = [("a", 3, *parts), ("a", 3, *parts), ("b", 4, *nothing)]
    second = rows(*late, ("a", 197, *parts), ("c", 250, *nothing))
    done = job.run(second, 2)
    assert sorted(done.outputs) == ["again", "u", "u.late"]
    assert done.outputs["u.late"].schema == session.createDataFrame([], NESTED).schema

    def given(result):
        return sorted(
            (
                (k, round(time.timestamp() * 1000), *others, m and dict(m), s and tuple(s.values()))
                for k, _, time, *others, m, s in result.outputs["u.late"].collect()
            ),
            key=str,
        )

    assert given(done) == sorted(late, key=str)
    assert done.facts.operators["u"].late_rows == len(late)
    assert sorted(map(tuple, done.outputs["again"].collect())) == [("a", 2), ("b", 1)]
    assert collect_garbage(str(tmp_path), older_than_ms=0).garbage == []
    repeated = job.run(second, 2)
    assert repeated.committed_before and given(repeated) == given(done)


def test_late_rows_that_do_not_fit_their_declaration_are_refused_before_anything_runs(
    session, tmp_path
):
    def job_with(late):
        operator = AggregateOperator(
            "u",
            "k",
            {"n": aggregates.count()},
            "bigint",
            window=windows.TumblingEventTimeWindows.of(10),
            event_time="t",
            side_output_late_data=late,
        )
        return StatefulJob(session, "job", str(tmp_path), operator)

    def rows(*late_rows):
        return session.createDataFrame(late_rows, "k bigint, v string, t bigint")

    for late, message in (
        ("k bigint, w string", "no column 'w' in the input of 'u', which side_output_late_data"),
        ("v bigint", "'v' is string, and side_output_late_data of 'u' declares it as bigint"),
        ({"t": "timestamp"}, "'t' is bigint, .* as timestamp"),
        ({"t": list[int]}, "'t' is bigint, .* as array<bigint>"),
    ):
        with pytest.raises(ConfigError, match=message):
            job_with(late).run(rows((1, "x", 5)), 1)
    job = job_with("v string, k int, t double")
    job.run(rows((1, "x", 5), (1, "y", 95)), 1)
    commits = len(job.history())
    with pytest.raises(ConfigError, match=r"The late column 'k' .*a value does not fit"):
        job.run(rows((1 << 40, "x", 5)), 2)
    with pytest.raises(ConfigError, match="A row has no timestamp"):
        job.run(rows((1, "x", 5), (2, "x", None)), 2)
    assert len(job.history()) == commits
    done = job.run(rows((7, "x", 5), (7, None, 6), (7, "z", 98)), 2)
    late = done.outputs["u.late"].collect()
    assert len(late) == 2 and set(map(tuple, late)) == {(None, 7, 6.0), ("x", 7, 5.0)}


def counting(session, name, folder, window):
    operator = AggregateOperator(
        "u",
        "k",
        {"n": aggregates.count()},
        schema="k bigint, t bigint",
        window=window,
        event_time="t",
    )
    return StatefulJob(session, name, str(folder), operator)


def test_open_windows_of_another_kind_are_refused_until_all_have_fired(session, tmp_path):
    def job_with(window):
        return counting(session, "job", tmp_path, window)

    def rows(time):
        return session.createDataFrame([(1, time)], "k bigint, t bigint")

    sessions = windows.EventTimeSessionWindows.with_gap(10)
    tumbling = windows.TumblingEventTimeWindows.of(10)
    job_with(sessions).run(rows(5), 1)
    with pytest.raises(ConfigError, match=r"window=EventTimeSessionWindows\(gap=10\), got"):
        job_with(tumbling).run(rows(7), 2)
    assert job_with(sessions).run(rows(7), 2, watermark_ms=99).output.collect() == [(1, 5, 17, 2)]
    job_with(tumbling).run(rows(105), 3)
    for other in (sessions, windows.TumblingEventTimeWindows.of(20)):
        with pytest.raises(ConfigError, match="keep it until all its windows have fired"):
            job_with(other).run(rows(107), 4)


def test_a_savepoint_without_definitions_with_open_windows_of_another_kind_is_refused(
    session, tmp_path
):
    def job_with(name, window):
        return counting(session, name, tmp_path / "jobs", window)

    kinds = {
        "session windows": windows.EventTimeSessionWindows.with_gap(10),
        "windows that are no sessions": windows.TumblingEventTimeWindows.of(10),
    }
    rows = session.createDataFrame([(1, 5)], "k bigint, t bigint")
    for number, (kind, window) in enumerate(kinds.items()):
        job = job_with(f"of {number}", window)
        job.run(rows, 1)
        savepoint = Path(job.savepoint(str(tmp_path / f"savepoint {number}")).removeprefix("file:"))
        (savepoint / SIDECAR_FILE_NAME).unlink()  # as in a savepoint of Flink
        other = job_with(f"other {number}", [*kinds.values()][1 - number])
        with pytest.raises(RestoreError, match=f"'u' has open {kind}, which "):
            other.start(str(savepoint))


def test_a_row_without_a_time_or_with_a_sum_that_does_not_fit_commits_nothing(session, tmp_path):
    operator = AggregateOperator(
        "u",
        "k",
        {"total": aggregates.sum("v")},
        schema="k bigint, v bigint, t bigint",
        window=windows.TumblingEventTimeWindows.of(10),
        event_time="t",
    )
    job = StatefulJob(session, "job", str(tmp_path), operator)
    for rows, message in (
        ([(1, 1, 5), (1, 2, None)], "A row has no timestamp"),
        ([(1, (1 << 63) - 1, 5), (1, 1, 6)], "The sum of state 'total'"),
    ):
        with pytest.raises(ConfigError, match=message):
            job.run(session.createDataFrame(rows, "k bigint, v bigint, t bigint"), 1)
    with pytest.raises(ConfigError, match="The event_time column 't'"):
        job.run(session.createDataFrame([(1, 1, "x")], "k bigint, v bigint, t string"), 1)
    assert job.latest() is None or job.latest().facts.input is None
    job.run(session.createDataFrame([(1, 1, 5)], "k bigint, v bigint, t bigint"), 1)
    without = AggregateOperator("u", "k", {"total": aggregates.sum("v", "bigint")}, "bigint")
    job = StatefulJob(session, "job", str(tmp_path), without)
    with pytest.raises(ConfigError, match="The rows of operator 'u' would reach state"):
        job.run(session.createDataFrame([(1, 1)], "k bigint, v bigint"), 2)


@pytest.mark.parametrize(
    "assigner",
    [
        windows.TumblingEventTimeWindows.of(10, 3),
        windows.SlidingEventTimeWindows.of(10, 4),
        windows.EventTimeSessionWindows.with_gap(10),
    ],
    ids=repr,
)
def test_times_at_the_ends_of_64_bits_have_windows_or_are_refused(session, tmp_path, assigner):
    schema = "k bigint, v bigint, t bigint"
    operator = AggregateOperator(
        "u",
        "k",
        {"total": aggregates.sum("v")},
        schema=schema,
        window=assigner,
        event_time="t",
    )
    first, last, most = -(1 << 63) + 1, (1 << 63) - 11, (1 << 63) - 1
    if not assigner.is_merging:
        last -= assigner.slide
        first = -last
    job = StatefulJob(session, "job", str(tmp_path), operator)
    for time in (-most - 1, first - 1, last + 1, most):
        with pytest.raises(ConfigError, match=f"expected {first} to {last} milliseconds"):
            job.run(session.createDataFrame([(1, 1, 5), (1, 1, time)], schema), 1)
    assert job.latest() is None or job.latest().facts.input is None
    done = job.run(session.createDataFrame([(1, 1, first), (2, 1, last)], schema), 1)
    windows_of_rows = {
        (row.k, row.window_start, row.window_end) for row in done.outputs["u"].collect()
    }
    windows_of_rows |= {
        (line["key"], *line["ns"])
        for line in Snapshot.load(job.latest_path())["u"].dump()
        if line.get("state") == "window-contents"
    }
    if assigner.is_merging:
        expected = {(1, first, first + 10), (2, last, last + 10)}
    else:
        expected = {
            (key, start, start + 10)
            for key, time in ((1, first), (2, last))
            for start in range(time - 9, time + 1)
            if (start - assigner.offset) % assigner.slide == 0
        }
    assert windows_of_rows == expected
