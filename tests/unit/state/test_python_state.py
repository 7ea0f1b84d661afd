"""State declared with types of Python: functions see Python's values, files hold Flink's."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from dstl_core.codec.declared_type import declared_type
from dstl_core.codec.python_values import function_type
from dstl_core.codec.serializers import Types
from dstl_core.codec.serializers.dates import Instant, LocalDate
from dstl_core.errors import ConfigError
from dstl_core.functions import KeyedProcessFunction, ProcessWindowFunction, WindowFunction
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.operators.process_operator import KeyedProcessOperator
from dstl_core.operators.window_operator import WindowOperator
from dstl_core.state.backends.backend import HashMapKeyedStateBackend
from dstl_core.state.backends.operator_backend import DefaultOperatorStateBackend
from dstl_core.state.backends.timers import InternalTimerService
from dstl_core.state.tables.descriptor import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.ttl import StateTtlConfig
from dstl_core.state.windows.evictors import CountEvictor
from dstl_core.state.windows.windowing import TumblingEventTimeWindows
from dstl_core.testing import ManualClock

NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)
LATER = NOON + dt.timedelta(microseconds=1)


@dataclass
class Balance:
    total: Decimal
    since: dt.date | None = None


class Bounds:
    """The first and the last day."""

    def create_accumulator(self) -> Any:
        return (dt.date.max, dt.date.min)

    def add(self, value: Any, accumulator: Any) -> Any:
        return (min(value, accumulator[0]), max(value, accumulator[1]))

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[1] - accumulator[0]

    def merge(self, left: Any, right: Any) -> Any:
        return (min(left[0], right[0]), max(left[1], right[1]))


class States:
    """The states of one key on a backend."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000)
        self.state = KeyedState(KeyGroupRange(0, 127), 128)
        self.backend = HashMapKeyedStateBackend(self.state, Types.STRING, clock=self.clock)
        self.backend.set_current_key("a")

    def __call__(self, descriptor: StateDescriptor) -> Any:
        from dstl_core.codec.serializers import VoidNamespaceSerializer

        return self.backend.get_or_create_keyed_state(VoidNamespaceSerializer(), descriptor)

    def stored(self, name: str) -> Any:
        """What is stored under the key, as Flink's values."""
        table = self.state.tables[name, False]
        for group in table.groups.values():
            for scope, stored in group.items():
                return table.decode(scope, stored)[2]
        return None


def test_value_state_of_a_dataclass() -> None:
    states = States()
    balance = states(ValueStateDescriptor("balance", Balance))
    assert balance.value() is None
    balance.update(Balance(Decimal("12.50"), dt.date(2026, 1, 2)))
    assert balance.value() == Balance(Decimal("12.50"), dt.date(2026, 1, 2))
    assert states.stored("balance").fields == ((1250, 2), LocalDate(2026, 1, 2))
    balance.update(None)
    assert balance.value() is None


def test_the_same_state_declared_as_flinks_own_has_flinks_values() -> None:
    states = States()
    states(ValueStateDescriptor("seen", "timestamp")).update(NOON)
    exact = states(ValueStateDescriptor("seen", Types.INSTANT))
    assert exact.value() == Instant(int(NOON.timestamp()), 0)
    exact.update(Instant(0, 1))
    with pytest.raises(ConfigError, match=r"declare the type as Types\.INSTANT"):
        states(ValueStateDescriptor("seen", "timestamp")).value()


@pytest.mark.parametrize("ttl", [None, StateTtlConfig(1_000)], ids=["plain", "ttl"])
def test_list_and_map_state(ttl: StateTtlConfig | None) -> None:
    states = States()
    days = states(ListStateDescriptor("days", dt.date, ttl=ttl))
    days.add(dt.date(2026, 1, 2))
    days.add_all([dt.date(2026, 1, 3)])
    assert days.get() == [dt.date(2026, 1, 2), dt.date(2026, 1, 3)]
    days.update([dt.date(2026, 1, 4)])
    assert days.get() == [dt.date(2026, 1, 4)]
    by_day = states(MapStateDescriptor("by day", dt.date, Decimal, ttl=ttl))
    by_day.put(dt.date(2026, 1, 2), Decimal("1.0"))
    by_day.put_all({dt.date(2026, 1, 3): Decimal("2.5")})
    assert by_day.get(dt.date(2026, 1, 3)) == Decimal("2.5")
    assert by_day.contains(dt.date(2026, 1, 2))
    assert dict(by_day.items()) == {
        dt.date(2026, 1, 2): Decimal("1.0"),
        dt.date(2026, 1, 3): Decimal("2.5"),
    }
    by_day.remove(dt.date(2026, 1, 2))
    assert list(by_day.keys()) == [dt.date(2026, 1, 3)]


def test_reducing_aggregating_and_folding_state() -> None:
    states = States()
    latest = states(ReducingStateDescriptor("latest", max, "timestamp"))
    latest.add(NOON)
    latest.add(LATER)
    assert latest.get() == LATER
    span = states(AggregatingStateDescriptor("span", Bounds(), tuple[dt.date, dt.date]))
    span.add(dt.date(2026, 1, 2))
    span.add(dt.date(2026, 1, 5))
    assert span.get() == dt.timedelta(days=3)
    total = states(FoldingStateDescriptor("total", Decimal(0), lambda a, b: a + b, Decimal))
    total.add(Decimal("0.1"))
    total.add(Decimal("0.2"))
    assert total.get() == Decimal("0.3")


def test_a_dict_is_a_value() -> None:
    states = States()
    counts = states(ValueStateDescriptor("counts", dict[str, int]))
    counts.update({"x": 1})
    assert counts.value() == {"x": 1}
    assert states.stored("counts") == [("x", 1)]


def test_operator_state() -> None:
    backend = DefaultOperatorStateBackend()
    days = backend.get_list_state(ListStateDescriptor("days", dt.date))
    days.add(dt.date(2026, 1, 2))
    assert days.get() == [dt.date(2026, 1, 2)]
    rates = backend.get_broadcast_state(MapStateDescriptor("rates", str, Decimal))
    rates.put("EUR", Decimal("1.05"))
    assert dict(rates.items()) == {"EUR": Decimal("1.05")}
    assert backend.get_list_state(ListStateDescriptor("days", Types.LOCAL_DATE)).get() == [
        LocalDate(2026, 1, 2)
    ]


def test_a_time_to_live_keeps_the_form() -> None:
    config = StateTtlConfig(1_000)
    descriptor = ValueStateDescriptor("seen", "timestamp").enable_time_to_live(config)
    states = States()
    state = states(descriptor)
    state.update(NOON)
    assert state.value() == NOON


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ValueStateDescriptor("n", 5), "The state 'n' has a wrong type: .*got 5"),
        (lambda: ListStateDescriptor("n", "strng"), "The state 'n' has a wrong type: .*'strng'"),
        (lambda: MapStateDescriptor("n", str, object), "The state 'n' .*got object"),
        (lambda: ValueStateDescriptor(Types.LONG, "n"), "A state needs a name, got LongSerializer"),
        (lambda: ValueStateDescriptor("", int), "A state needs a name, got ''"),
    ],
)
def test_a_wrong_descriptor_is_one_sentence_at_once(
    make: Callable[[], StateDescriptor], said: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{said}"):
        make()


# ------------------------------------------------------------------------------------ keys


def seen_day() -> Any:
    return function_type(declared_type("date", "The key"))


class Keys(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(10)
        yield ("row", ctx.get_current_key())

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ("timer", ctx.get_current_key())


def test_a_function_gets_its_key_as_python_has_it() -> None:
    clock, state = ManualClock(0), KeyedState(KeyGroupRange(0, 127), 128)
    backend = HashMapKeyedStateBackend(state, Types.LOCAL_DATE, clock=clock)
    operator = KeyedProcessOperator(
        Keys(),
        backend,
        lambda row: LocalDate(2026, 1, row),
        subtask_index=0,
        parallelism=1,
        timers=InternalTimerService(backend, clock),
        key_type=seen_day(),
    )
    assert operator.process(2) == [("row", dt.date(2026, 1, 2))]
    assert operator.advance_watermark(10) == [("timer", dt.date(2026, 1, 2))]


class Show(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield (key, *elements)


@pytest.mark.parametrize("evictor", [None, CountEvictor.of(1)], ids=["all", "the last"])
def test_the_elements_of_windows_are_as_python_has_them(evictor: Any) -> None:
    clock, state = ManualClock(0), KeyedState(KeyGroupRange(0, 127), 128)
    backend = HashMapKeyedStateBackend(state, Types.LOCAL_DATE, clock=clock)
    function = WindowFunction(
        TumblingEventTimeWindows.of(10),
        "timestamp",
        process=Show(),
        element=lambda row: row,
        evictor=evictor,
    )
    operator = WindowOperator(
        function, backend, clock, lambda row: LocalDate(2026, 1, 2), key_type=seen_day()
    )
    operator.process(NOON, 1)
    operator.process(LATER, 2)
    shown = [NOON, LATER] if evictor is None else [LATER]
    assert operator.advance_watermark(10) == [(dt.date(2026, 1, 2), *shown)]


def test_late_rows_have_columns_in_any_form() -> None:
    windows = TumblingEventTimeWindows.of(10)
    late = WindowFunction(windows, int, side_output_late_data="k string, v bigint")
    assert late.side_output_late_data.names == ["k", "v"]
    with pytest.raises(ConfigError, match=r"^side_output_late_data is wrong: .*'strng'"):
        WindowFunction(windows, int, side_output_late_data="k strng")
    assert WindowFunction(windows, int, allowed_lateness="2 s").allowed_lateness == 2000
    with pytest.raises(
        ConfigError, match=r"^The allowed lateness of windows is wrong: .*got '2 x'"
    ):
        WindowFunction(windows, int, allowed_lateness="2 x")
    with pytest.raises(ConfigError, match=r"^The element of a window has a wrong type: .*got 5"):
        WindowFunction(windows, 5)
