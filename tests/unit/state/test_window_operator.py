"""Windows of an operator: what fires when, and what is kept. Every expectation is by hand."""

import datetime as dt

import pytest

from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError, UserFunctionError
from dstl_core.functions import ProcessWindowFunction, WindowFunction
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.operators.window_operator import WindowOperator
from dstl_core.state.backends.backend import HashMapKeyedStateBackend
from dstl_core.state.tables.descriptor import ReducingStateDescriptor, ValueStateDescriptor
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.windows.evictors import CountEvictor, DeltaEvictor, Evictor, TimeEvictor
from dstl_core.state.windows.triggers import CountTrigger, EventTimeTrigger, PurgingTrigger
from dstl_core.state.windows.windowing import (
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from dstl_core.testing import ManualClock
from tests.stateful_job import SumAndCount

PAIR = Types.TUPLE(Types.LONG, Types.LONG)
TUMBLING = TumblingEventTimeWindows.of(10)


@pytest.mark.parametrize("time", ["10 x", 1.5, None, True, 1 << 63])
def test_times_of_windows_are_whole_milliseconds(time):
    message = f"of a window is wrong: expected .*whole milliseconds.* got {time!r}"
    for make in (
        TumblingEventTimeWindows.of,
        EventTimeSessionWindows.with_gap,
        EventTimeSessionWindows,
        lambda slide: SlidingEventTimeWindows.of(10, slide),
        lambda slide: SlidingEventTimeWindows(10, slide),
        lambda offset: TumblingEventTimeWindows.of(10, offset),
    ):
        with pytest.raises(ConfigError, match=message):
            make(time)


def test_times_of_windows_are_durations_in_every_form():
    hour, minute = dt.timedelta(hours=1), dt.timedelta(minutes=1)
    for kind in (TumblingEventTimeWindows, TumblingProcessingTimeWindows):
        assert kind.of("1 h", -minute) == kind.of(hour, -60_000) == kind.of(3_600_000, -60_000)
    for kind in (SlidingEventTimeWindows, SlidingProcessingTimeWindows):
        assert kind.of("1 h", "PT5M", minute) == kind.of(hour, 300_000, 60_000)
    for kind in (EventTimeSessionWindows, ProcessingTimeSessionWindows):
        assert kind.with_gap("30 min") == kind.with_gap(dt.timedelta(minutes=30))
        assert kind.with_gap("30 min").gap == 1_800_000


def add(a, b):
    return a + b


class Show(ProcessWindowFunction):
    """Gives key, window and elements."""

    def process(self, key, context, elements):
        window = context.window()
        return [(key, *(window if isinstance(window, tuple) else ()), *elements)]


class Windows:
    """A window operator, whose rows are ``(key, value, timestamp)``."""

    def __init__(self, assigner, type=Types.LONG, **parts):
        self.clock = ManualClock(1_000)
        self.state = KeyedState(KeyGroupRange(0, 127), 128)
        backend = HashMapKeyedStateBackend(self.state, Types.STRING, clock=self.clock)
        parts = {"process": Show(), "element": lambda row: row[1], **parts}
        self.operator = WindowOperator(
            WindowFunction(assigner, type, **parts), backend, self.clock, lambda row: row[0]
        )

    def add(self, *rows):
        return [out for row in rows for out in self.operator.process(row, row[2])]

    def watermark(self, time):
        return sorted(self.operator.advance_watermark(time))

    def kept(self, name="window-contents"):
        """``{(key, namespace): value}`` of a state."""
        table = self.state.tables[name, False]
        return {
            (key, tuple(namespace) if isinstance(namespace, tuple) else namespace): value
            for group in table.groups.values()
            for key, namespace, value in (
                table.decode(scope, stored) for scope, stored in group.items()
            )
        }

    def timers(self, domain="event"):
        table = self.state.tables[f"_timer_state/{domain}_window-timers", True]
        timers = [table.decode(each, None)[2] for group in table.groups.values() for each in group]
        return sorted((timer.timestamp, timer.key, timer.namespace) for timer in timers)

    def is_empty(self):
        return not any(
            group for table in self.state.tables.values() for group in table.groups.values()
        )


def test_tumbling_windows_fire_at_their_end_and_leave_nothing():
    windows = Windows(TUMBLING, reduce=add)
    assert windows.add(("a", 1, 0), ("a", 2, 9), ("a", 4, 10), ("b", 8, 5)) == []
    assert windows.kept() == {("a", (0, 10)): 3, ("a", (10, 20)): 4, ("b", (0, 10)): 8}
    assert windows.timers() == [(9, "a", (0, 10)), (9, "b", (0, 10)), (19, "a", (10, 20))]
    assert windows.watermark(8) == []
    assert windows.watermark(9) == [("a", 0, 10, 3), ("b", 0, 10, 8)]
    assert windows.kept() == {("a", (10, 20)): 4}
    assert windows.watermark(100) == [("a", 10, 20, 4)]
    assert windows.is_empty()


def test_sliding_windows_aggregate_each_element_several_times():
    windows = Windows(SlidingEventTimeWindows.of(10, 5), PAIR, aggregate=SumAndCount())
    windows.add(("a", 3, 7), ("a", 9, 11))
    assert windows.kept() == {
        ("a", (0, 10)): (3, 1),
        ("a", (5, 15)): (12, 2),
        ("a", (10, 20)): (9, 1),
    }
    assert windows.watermark(14) == [("a", 0, 10, 3.0), ("a", 5, 15, 6.0)]
    assert windows.watermark(19) == [("a", 10, 20, 9.0)]
    assert windows.is_empty()


def test_sessions_merge_and_their_contents_stay_where_they_were_put():
    windows = Windows(EventTimeSessionWindows.with_gap(10), Types.LONG)
    windows.add(("a", 1, 0), ("a", 2, 30))
    assert windows.kept() == {("a", (0, 10)): [1], ("a", (30, 40)): [2]}
    windows.add(("a", 3, 15))  # touches neither
    windows.add(("a", 4, 22))  # touches [15, 25) and [30, 40)
    assert windows.kept("merging-window-set") == {
        ("a", None): [((0, 10), (0, 10)), ((15, 40), (30, 40))]
    }
    assert windows.kept() == {("a", (0, 10)): [1], ("a", (30, 40)): [2, 3, 4]}
    assert windows.timers() == [(9, "a", (0, 10)), (39, "a", (15, 40))]
    windows.add(("a", 5, 10))  # touches both: one session is left
    assert windows.kept() == {("a", (0, 10)): [1, 2, 3, 4, 5]}
    assert windows.timers() == [(39, "a", (0, 40))]
    assert windows.watermark(39) == [("a", 0, 40, 1, 2, 3, 4, 5)]
    assert windows.is_empty()


def test_an_element_inside_a_session_changes_no_window():
    windows = Windows(EventTimeSessionWindows.with_gap(10), reduce=add)
    windows.add(("a", 1, 0), ("a", 2, 8), ("a", 4, 3))
    assert windows.kept("merging-window-set") == {("a", None): [((0, 18), (0, 10))]}
    assert windows.kept() == {("a", (0, 10)): 7}
    assert windows.timers() == [(17, "a", (0, 18))]


def test_late_elements_fire_again_until_the_window_is_gone_and_then_are_dropped():
    windows = Windows(TUMBLING, reduce=add, allowed_lateness=5)
    windows.add(("a", 1, 3))
    assert windows.timers() == [(9, "a", (0, 10)), (14, "a", (0, 10))]
    assert windows.watermark(12) == [("a", 0, 10, 1)]
    assert windows.add(("a", 2, 4)) == [("a", 0, 10, 3)]
    assert windows.timers() == [(14, "a", (0, 10))]
    assert windows.watermark(14) == []
    assert windows.is_empty()
    assert windows.add(("a", 8, 5)) == []
    assert windows.is_empty()
    assert windows.operator.late_rows == 1


def test_an_element_that_is_late_for_some_windows_only_is_not_counted():
    windows = Windows(SlidingEventTimeWindows.of(10, 5), reduce=add)
    windows.watermark(9)
    windows.add(("a", 1, 7))
    assert windows.kept() == {("a", (5, 15)): 1}
    assert windows.operator.late_rows == 0


def test_a_late_element_that_extends_a_live_session_is_not_late():
    windows = Windows(EventTimeSessionWindows.with_gap(10), reduce=add)
    windows.add(("a", 1, 20))
    windows.watermark(19)
    assert windows.add(("a", 2, 5), ("a", 4, 10)) == []
    assert windows.operator.late_rows == 1  # [5, 15) touches nothing
    assert windows.kept("merging-window-set") == {("a", None): [((10, 30), (20, 30))]}
    assert windows.watermark(29) == [("a", 10, 30, 5)]


def test_count_windows_are_global_windows_that_purge():
    windows = Windows(
        GlobalWindows.create(), reduce=add, trigger=PurgingTrigger.of(CountTrigger.of(3))
    )
    rows = [("a", number, None) for number in range(7)]
    assert windows.add(*rows) == [("a", 0 + 1 + 2), ("a", 3 + 4 + 5)]
    assert windows.kept() == {("a", "global"): 6}
    assert windows.kept("count") == {("a", "global"): 1}
    assert windows.timers() == []


def test_nothing_is_late_for_the_global_window():
    windows = Windows(GlobalWindows.create(), reduce=add, trigger=CountTrigger.of(2))
    assert windows.add(("a", 1, 5)) == []
    assert windows.watermark((1 << 63) - 1) == []
    assert windows.add(("a", 2, 6)) == [("a", 3)]
    assert windows.operator.late_rows == 0


def test_a_count_trigger_fires_early_and_keeps_the_window_until_its_end():
    windows = Windows(TUMBLING, reduce=add, trigger=CountTrigger.of(2))
    assert windows.add(("a", 1, 1), ("a", 2, 2), ("a", 4, 3)) == [("a", 0, 10, 3)]
    assert windows.timers() == [(9, "a", (0, 10))]
    assert windows.watermark(9) == []  # the end of its life, no reason to fire
    assert windows.is_empty()


def test_counts_of_sessions_that_merge_are_added():
    windows = Windows(EventTimeSessionWindows.with_gap(10), reduce=add, trigger=CountTrigger.of(4))
    windows.add(("a", 1, 0), ("a", 2, 20), ("a", 4, 21))
    assert windows.kept("count") == {("a", (0, 10)): 1, ("a", (20, 31)): 2}
    assert windows.add(("a", 8, 10)) == [("a", 0, 31, 15)]
    assert windows.kept("count") == {}


def test_a_purged_window_gives_what_came_since():
    windows = Windows(
        TUMBLING,
        reduce=add,
        trigger=PurgingTrigger.of(EventTimeTrigger.create()),
        allowed_lateness=5,
    )
    windows.add(("a", 1, 3))
    assert windows.watermark(9) == [("a", 0, 10, 1)]
    assert windows.kept() == {}
    assert windows.add(("a", 2, 4)) == [("a", 0, 10, 2)]


def test_windows_by_the_clock_need_no_timestamps():
    windows = Windows(TumblingProcessingTimeWindows.of(100), reduce=add)
    windows.add(("a", 1, None), ("a", 2, None))
    assert windows.timers("processing") == [(1099, "a", (1000, 1100))]
    assert windows.operator.advance_processing_time() == []
    windows.clock.advance(99)
    assert windows.watermark(10_000) == []
    assert windows.operator.advance_processing_time() == [("a", 1000, 1100, 3)]
    assert windows.is_empty()


def test_sessions_by_the_clock():
    windows = Windows(ProcessingTimeSessionWindows.with_gap(100), reduce=add)
    windows.add(("a", 1, None))
    windows.clock.advance(50)
    windows.add(("a", 2, None))
    assert windows.timers("processing") == [(1149, "a", (1000, 1150))]
    windows.clock.advance(100)
    assert windows.operator.advance_processing_time() == [("a", 1000, 1150, 3)]
    assert windows.is_empty()


@pytest.mark.parametrize(
    ("evictor", "seen", "left"),
    [
        (CountEvictor.of(2), [3, 4], [3, 4]),
        (CountEvictor.of(2, do_evict_after=True), [1, 2, 3, 4], [3, 4]),
        (TimeEvictor.of(4), [3, 4], [3, 4]),
        (DeltaEvictor.of(3, lambda element, last: last - element), [2, 3, 4], [2, 3, 4]),
        (Evictor(), [1, 2, 3, 4], [1, 2, 3, 4]),
    ],
)
def test_evictors_take_elements_from_what_is_seen_and_from_what_stays(evictor, seen, left):
    windows = Windows(TUMBLING, evictor=evictor, trigger=CountTrigger.of(4))
    rows = [("a", 1, 0), ("a", 2, 2), ("a", 3, 4), ("a", 4, 6)]
    assert windows.add(*rows) == [("a", 0, 10, *seen)]
    times = {1: 0, 2: 2, 3: 4, 4: 6}
    assert windows.kept() == {("a", (0, 10)): [(each, times[each]) for each in left]}


def test_functions_reduce_what_an_evictor_leaves():
    rows = [("a", 1, 0), ("a", 2, 2), ("a", 4, 4)]
    parts = {"evictor": CountEvictor.of(2), "trigger": CountTrigger.of(3)}
    assert Windows(TUMBLING, reduce=add, **parts).add(*rows) == [("a", 0, 10, 6)]
    windows = Windows(TUMBLING, aggregate=SumAndCount(), **parts)
    assert windows.add(*rows) == [("a", 0, 10, 3.0)]


class Firings(ProcessWindowFunction):
    """Counts how often a window and a key have fired."""

    def open(self, runtime_context):
        self.total = runtime_context.get_reducing_state(
            ReducingStateDescriptor("total", add, Types.LONG)
        )

    def process(self, key, context, elements):
        count = context.window_state().get_state(ValueStateDescriptor("firings", Types.LONG))
        count.update((count.value() or 0) + 1)
        self.total.add(1)
        yield (key, *context.window(), count.value(), self.total.get(), context.current_watermark())

    def clear(self, context):
        context.window_state().get_state(ValueStateDescriptor("firings", Types.LONG)).clear()


def test_a_process_function_has_state_per_window_and_per_key():
    windows = Windows(TUMBLING, process=Firings(), allowed_lateness=100)
    windows.add(("a", 1, 3), ("a", 1, 13))
    assert windows.watermark(20) == [("a", 0, 10, 1, 1, 20), ("a", 10, 20, 1, 2, 20)]
    assert windows.add(("a", 1, 4)) == [("a", 0, 10, 2, 3, 20)]
    assert windows.kept("firings") == {("a", (0, 10)): 2, ("a", (10, 20)): 1}
    windows.watermark(109)
    assert windows.kept("firings") == {("a", (10, 20)): 1}
    assert windows.kept("total") == {("a", None): 3}


def test_state_per_window_is_refused_where_windows_merge():
    windows = Windows(EventTimeSessionWindows.with_gap(5), process=Firings())
    windows.add(("a", 1, 3))
    with pytest.raises(UserFunctionError, match="use global_state"):
        windows.watermark(100)


def test_without_a_process_function_the_contents_are_the_output():
    windows = Windows(TUMBLING, reduce=add, process=None)
    windows.add(("a", 1, 3), ("a", 2, 4))
    assert windows.watermark(9) == [3]


def test_windows_in_event_time_refuse_rows_without_time():
    with pytest.raises(ConfigError, match="A row has no timestamp"):
        Windows(TUMBLING, reduce=add).add(("a", 1, None))


@pytest.mark.parametrize(
    ("assigner", "last"),
    [
        (TUMBLING, (1 << 63) - 21),
        (SlidingEventTimeWindows.of(10, 4), (1 << 63) - 15),
        (EventTimeSessionWindows.with_gap(10), (1 << 63) - 11),
    ],
)
def test_times_whose_windows_have_no_bounds_of_64_bits_are_refused(assigner, last):
    windows = Windows(assigner, reduce=add)
    windows.add(("a", 1, last))
    with pytest.raises(ConfigError, match=f" to {last} milliseconds; correct the row"):
        windows.add(("a", 1, last + 1))
    with pytest.raises(ConfigError, match="whose windows cannot be stored"):
        windows.add(("a", 1, -(1 << 63)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: TumblingEventTimeWindows.of(0),
        lambda: EventTimeSessionWindows.with_gap(0),
        lambda: CountTrigger.of(0),
        lambda: WindowFunction(TUMBLING, Types.LONG, allowed_lateness=-1),
        lambda: WindowFunction(TUMBLING, Types.LONG, add, SumAndCount()),
    ],
)
def test_what_makes_no_sense_is_refused(make):
    with pytest.raises(ConfigError):
        make()


def test_a_window_before_time_zero_and_with_an_offset():
    windows = Windows(TumblingEventTimeWindows.of(10, 3), reduce=add)
    windows.add(("a", 1, -8), ("a", 2, 2), ("a", 4, 3))
    assert windows.kept() == {("a", (-17, -7)): 1, ("a", (-7, 3)): 2, ("a", (3, 13)): 4}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"assigner": "1 h"}, "The assigner of a window is wrong: .* WindowAssigner, got '1 h'"),
        ({"assigner": TumblingEventTimeWindows}, "The assigner of a window is wrong"),
        ({"trigger": CountTrigger}, "The trigger of a window is wrong: .* Trigger, got <class"),
        ({"process": Show}, "expected an object of the class ProcessWindowFunction, got <class"),
        ({"evictor": 5}, "The evictor of a window is wrong: expected an object of the class Ev"),
        ({"reduce": "add"}, "expected a function of two elements, got 'add'"),
        ({"aggregate": max}, "The aggregate of a window is wrong: expected an AggregateFunction"),
        ({"element": 5}, "expected the name of a column, or a function, got 5"),
        ({"allowed_lateness": -1}, "expected a duration of at least 0 ms .*, got -1"),
    ],
)
def test_an_argument_of_another_kind_is_refused_when_a_window_is_declared(arguments, said):
    with pytest.raises(ConfigError, match=said):
        WindowFunction(**{"assigner": TUMBLING, "type": "bigint", **arguments})
