"""SavepointWriter: operator and keyed state by bootstrap functions, read back."""

import pytest

from dstl_core.codec.serializers import Types
from dstl_core.errors import UserFunctionError
from dstl_core.functions import (
    BroadcastStateBootstrapFunction,
    KeyedStateBootstrapFunction,
    StateBootstrapFunction,
)
from dstl_core.state.tables.descriptor import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from tests.integration.spark.writing import Mean, bootstrap_with, entries, stored_timers, write

pytestmark = pytest.mark.spark


class Numbers(StateBootstrapFunction):
    def initialize_state(self, context):
        store = context.operator_state_store
        self.state = store.get_list_state(ListStateDescriptor("state", Types.INT))
        self.union = store.get_union_list_state(ListStateDescriptor("union", Types.STRING))

    def process_element(self, value):
        self.state.add(value["n"])
        self.union.add(str(value["n"]))


def test_list_and_union_state_by_a_function(spark, tmp_path):
    frame = spark.createDataFrame([(1,), (2,), (3,)], "n int")
    for parallelism in (1, 3):
        rows = bootstrap_with(frame).set_parallelism(parallelism).transform(Numbers())
        operator = write(spark, tmp_path / str(parallelism), "op", rows)
        assert sorted(operator.list("state")) == [1, 2, 3]
        assert sorted(operator.union("union")) == ["1", "2", "3"]
        assert operator.parallelism == parallelism


RATES = MapStateDescriptor("currency-rates", Types.STRING, Types.DOUBLE)


class Rates(BroadcastStateBootstrapFunction):
    def process_element(self, value, ctx):
        ctx.get_broadcast_state(RATES).put(value["currency"], value["rate"])


def test_broadcast_state(spark, tmp_path):
    frame = spark.createDataFrame([("USD", 1.0), ("EUR", 1.3)], "currency string, rate double")
    by_function = write(spark, tmp_path / "f", "op", bootstrap_with(frame).transform(Rates()))
    columns = bootstrap_with(frame).transform_columns(
        broadcast_state={"currency-rates": ("currency", "rate")}
    )
    by_columns = write(spark, tmp_path / "c", "op", columns)
    for operator in (by_function, by_columns):
        assert dict(operator.broadcast("currency-rates")) == {"USD": 1.0, "EUR": 1.3}


class AccountBootstrapper(KeyedStateBootstrapFunction):
    uses_timers = True

    def open(self, runtime_context):
        total = ValueStateDescriptor("total", Types.DOUBLE)
        self.total = runtime_context.get_state(total)
        self.names = runtime_context.get_list_state(ListStateDescriptor("names", Types.STRING))
        self.by_name = runtime_context.get_map_state(
            MapStateDescriptor("by-name", Types.STRING, Types.LONG)
        )
        self.most = runtime_context.get_reducing_state(
            ReducingStateDescriptor("most", max, Types.DOUBLE)
        )
        self.mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), Types.TUPLE(Types.DOUBLE, Types.LONG))
        )
        ttl = ValueStateDescriptor("fresh", Types.LONG)
        self.fresh = runtime_context.get_state(ttl.enable_time_to_live(StateTtlConfig(60_000)))

    def process_element(self, value, ctx):
        self.total.update(value["amount"])
        self.names.add(value["name"])
        self.by_name.put(value["name"], value["ts"])
        self.most.add(value["amount"])
        self.mean.add(value["amount"])
        self.fresh.update(value["ts"])
        ctx.timer_service().register_event_time_timer(value["ts"])
        ctx.timer_service().register_processing_time_timer(1)
        assert ctx.get_current_key() == value["id"]


def test_every_kind_of_keyed_state_by_a_function(spark, tmp_path, accounts):
    rows = bootstrap_with(accounts).key_by("id").transform(AccountBootstrapper(), order_by=["ts"])
    operator = write(spark, tmp_path / "sp", "op", rows)
    own = {key: [n for n in range(40) if n % 7 == key] for key in range(7)}

    def values(kind, state):
        return {line["key"]: line["value"] for line in entries(operator, kind, state)}

    assert values("value", "total") == {key: float(max(ns)) for key, ns in own.items()}
    assert values("list", "names") == {key: [f"n{n % 3}" for n in ns] for key, ns in own.items()}
    latest = {key: {f"n{n % 3}": n * 1000 for n in ns} for key, ns in own.items()}
    assert values("map", "by-name") == {
        key: [[name, ts] for name, ts in sorted(pairs.items())] for key, pairs in latest.items()
    }
    assert values("reducing", "most") == {key: float(max(ns)) for key, ns in own.items()}
    assert values("aggregating", "mean") == {
        key: [float(sum(ns)), len(ns)] for key, ns in own.items()
    }
    assert {key: v["v"] for key, v in values("value", "fresh").items()} == {
        key: max(ns) * 1000 for key, ns in own.items()
    }
    timers = {}
    for line in entries(operator, "event-timer"):
        timers.setdefault(line["key"], set()).add(line["ts"])
    assert timers == {key: {n * 1000 for n in ns} for key, ns in own.items()}
    assert stored_timers(operator, "processing") == [(key, 1) for key in sorted(own)]


class Bad(KeyedStateBootstrapFunction):
    def process_element(self, value, ctx):
        raise ValueError("mine")


def test_an_error_of_a_function_names_it_and_publishes_nothing(spark, tmp_path, accounts):
    with pytest.raises(UserFunctionError, match=r"Bad.process_element raised ValueError: mine"):
        write(spark, tmp_path / "sp", "op", bootstrap_with(accounts).key_by("id").transform(Bad()))
    assert not (tmp_path / "sp" / "_metadata").exists()
