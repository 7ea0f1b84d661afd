"""SavepointReader: windows, their triggers, timers and states."""

import json

import pytest

from dstl_core.codec.serializers import Types
from dstl_core.codec.serializers.window_types import GlobalWindowSerializer
from dstl_core.errors import (
    NoSuchStateError,
    SavepointError,
)
from dstl_core.functions import WindowReaderFunction
from dstl_core.state.tables.descriptor import (
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.windows.windowing import (
    EventTimeSessionWindows,
    GlobalWindows,
    TumblingEventTimeWindows,
)
from tests.integration.spark.reading import CLICK, PAIR, Average, open_reader, truth

pytestmark = pytest.mark.spark


WINDOWS = "d-windows-hashmap"


def by_window(op, kind, state):
    def window(entry):
        return tuple(entry["ns"]) if isinstance(entry["ns"], list) else entry["ns"]

    return {(each["key"], window(each)): each["value"] for each in truth(WINDOWS, op, kind, state)}


def timers_by_window(op):
    times = {}
    for timer in truth(WINDOWS, op, "event-timer"):
        times.setdefault((timer["key"], tuple(timer["ns"])), []).append(timer["ts"])
    return times


class ClickReader(WindowReaderFunction):
    def read_window(self, key, ctx, elements):
        window = ctx.window()
        yield (
            key,
            window.start,
            window.end,
            len(elements),
            json.dumps(elements[0]),
            sorted(ctx.registered_event_time_timers()),
        )


CLICKS = "key string, start bigint, end bigint, n int, first string, timers array<bigint>"
TUMBLING = TumblingEventTimeWindows.of(60_000)


@pytest.mark.parametrize(
    ("op", "method", "kind", "options"),
    [
        ("d-tumble-agg", "aggregate", "aggregating", {"accumulator_type": PAIR}),
        ("d-tumble-reduce", "reduce", "reducing", {"reduce_type": CLICK}),
        ("d-sliding", "reduce", "reducing", {}),
        ("d-process", "process", "list", {"state_type": CLICK}),
    ],
)
def test_windows_with_their_own_timers(spark, op, method, kind, options):
    windows = open_reader(spark, WINDOWS).window(TUMBLING)
    frame = getattr(windows, method)(
        op, reader_function=ClickReader(), out_type=CLICKS, key_type=Types.STRING, **options
    )
    rows = frame.collect()
    contents = by_window(op, kind, "window-contents")
    assert {(row.key, (row.start, row.end)) for row in rows} == set(contents)
    for row in rows:
        value = contents[row.key, (row.start, row.end)]
        assert json.loads(row.first) == (value[0] if kind == "list" else value)
        assert row.n == (len(value) if kind == "list" else 1)
    expected = timers_by_window(op)
    assert {(r.key, (r.start, r.end)): r.timers for r in rows} == {
        place: sorted(expected.get(place, [])) for place in contents
    }


def test_aggregated_windows_give_the_result_of_the_accumulator(spark):
    rows = (
        open_reader(spark, WINDOWS)
        .window(TUMBLING)
        .aggregate("d-tumble-agg", Average(), ClickReader(), out_type=CLICKS)
        .collect()
    )
    contents = by_window("d-tumble-agg", "aggregating", "window-contents")
    assert {(r.key, (r.start, r.end)): json.loads(r.first) for r in rows} == {
        place: value[0] / value[1] for place, value in contents.items()
    }


def test_evictors_keep_elements_and_the_function_is_applied_here(spark):
    reader = open_reader(spark, WINDOWS).window(TUMBLING)
    rows = (
        reader.evictor()
        .reduce("d-evictor", lambda a, b: (a[0], a[1] + b[1], b[2]), ClickReader(), out_type=CLICKS)
        .collect()
    )
    contents = by_window("d-evictor", "list", "window-contents")
    sums = {place: sum(e["value"][1] for e in value) for place, value in contents.items()}
    assert {(r.key, (r.start, r.end)): json.loads(r.first)[1] for r in rows} == sums
    with pytest.raises(SavepointError, match="with an evictor; read them with evictor"):
        reader.process("d-evictor", ClickReader(), out_type=CLICKS)


class TriggerReader(WindowReaderFunction):
    def read_window(self, key, ctx, elements):
        count = ctx.trigger_state(ReducingStateDescriptor("count", sum, Types.LONG)).get()
        window = ctx.window()
        yield key, str(window if isinstance(window, str) else tuple(window)), count


@pytest.mark.parametrize("op", ["d-count-trigger", "d-count-window"])
def test_state_of_the_trigger(spark, op):
    reader = open_reader(spark, WINDOWS)
    rows = (
        reader.window()
        .reduce(op, None, TriggerReader(), out_type="key string, window string, n bigint")
        .collect()
    )
    counts = by_window(op, "reducing", "count")
    assert {(r.key, r.window): r.n for r in rows if r.n is not None} == {
        (key, str(window)): value for (key, window), value in counts.items()
    }


class StateReader(WindowReaderFunction):
    def read_window(self, key, ctx, elements):
        per_window = ctx.window_state(ValueStateDescriptor("per-window", Types.LONG)).value()
        per_key = ctx.global_state(ValueStateDescriptor("per-key", Types.LONG)).value()
        yield key, ctx.window().start, per_window, per_key


def test_state_per_window_and_per_key(spark):
    rows = (
        open_reader(spark, WINDOWS)
        .window(TUMBLING)
        .process(
            "d-window-state", StateReader(), out_type="key string, s bigint, w bigint, k bigint"
        )
        .collect()
    )
    per_window = by_window("d-window-state", "value", "per-window")
    per_key = {
        key: value for (key, _), value in by_window("d-window-state", "value", "per-key").items()
    }
    starts = {(key, window[0]): value for (key, window), value in per_window.items()}
    assert any(r.w is not None for r in rows)
    assert {(r.key, r.s): r.w for r in rows} == {
        (r.key, r.s): starts.get((r.key, r.s)) for r in rows
    }
    assert {r.key: r.k for r in rows} == {r.key: per_key.get(r.key) for r in rows}


def test_sessions_are_read_under_the_merged_window(spark):
    reader = open_reader(spark, WINDOWS).window(EventTimeSessionWindows.with_gap(10_000))
    rows = reader.aggregate("d-session").collect()
    merged = by_window("d-session", "list", "merging-window-set")
    contents = by_window("d-session", "aggregating", "window-contents")
    expected = {
        (key, tuple(actual)): contents[key, tuple(kept)]
        for (key, _), pairs in merged.items()
        for actual, kept in pairs
    }
    windows = {
        (r.state_key, (r.state_window.start, r.state_window.end)): list(r["window-contents"])
        for r in rows
    }
    assert windows == expected
    timers = timers_by_window("d-session")
    assert {
        (r.state_key, (r.state_window.start, r.state_window.end)): r.event_time_timers for r in rows
    } == {place: sorted(timers[place]) for place in expected}


def test_windows_of_another_kind_are_refused(spark):
    reader = open_reader(spark, WINDOWS)
    with pytest.raises(SavepointError, match=r"of another kind: expected aggregating .*, got red"):
        reader.window(TUMBLING).reduce("d-tumble-agg")
    with pytest.raises(SavepointError, match="window has another type: expected GlobalWindow"):
        reader.window(TUMBLING).reduce("d-count-window")
    with pytest.raises(NoSuchStateError, match="keeps no windows"):
        open_reader(spark, "a-hashmap-canonical").window().reduce("a-keyed")
    rows = reader.window(GlobalWindows.create()).reduce("d-count-window").collect()
    assert {row.state_window for row in rows} == {"global"}
    assert reader.window(GlobalWindowSerializer()).reduce("d-count-window").count() == len(rows)
