"""A driver of a job with an own serializer, from start to end.

``python -m tests.integration.spark.own_serializer BASE INPUT REGISTERED`` runs one epoch and prints
its output as one line of JSON. ``REGISTERED`` is ``yes`` if the job has the reader.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

import pyarrow as pa

from dstl_core import LocalEngine
from dstl_core.codec.serializers import BUILT_IN, Types, TypeSerializer
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies
from dstl_core.state.tables.descriptor import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.stateful_job import StatefulJob

SNAPSHOT = "com.example.MoneySnapshot"
OUTPUT = pa.schema([("k", pa.string()), ("shown", pa.string())])


@dataclass(frozen=True)
class Money:
    currency: str
    cents: int


@dataclass(frozen=True)
class MoneySerializer(TypeSerializer[Money]):
    """Stores cents before the currency. The snapshot has a byte that says how cents are stored."""

    width: int = 8
    snapshot_class = SNAPSHOT
    snapshot_version = 3

    @property
    def type_name(self):
        return "Money"

    def write_snapshot_payload(self, out):
        out.write_bytes(bytes([self.width]))

    def serialize(self, value, out):
        out.write_bytes(value.cents.to_bytes(self.width, "big", signed=True))
        Types.STRING.serialize(value.currency, out)

    def deserialize(self, data):
        cents = int.from_bytes(data.read_bytes(self.width, "cents"), "big", signed=True)
        return Money(Types.STRING.deserialize(data), cents)


def read_money(data, version, context):
    assert version == MoneySerializer.snapshot_version
    return MoneySerializer(data.read_bytes(1, "width")[0])


MONEY = MoneySerializer(5)
TOTAL = ValueStateDescriptor("total", MONEY)
LAST = ListStateDescriptor("all", MONEY)
LARGEST = MapStateDescriptor("by sign", "boolean", Types.NULLABLE(MONEY))


class Sums(KeyedProcessFunction):
    def open(self, runtime_context):
        self._total = runtime_context.get_state(TOTAL)
        self._all = runtime_context.get_list_state(LAST)
        self._by_sign = runtime_context.get_map_state(LARGEST)

    def process_element(self, value, ctx):
        before = self._total.value() or Money("EUR", 0)
        self._total.update(Money("EUR", before.cents + value["v"]))
        self._all.add(Money("EUR", value["v"]))
        self._by_sign.put(value["v"] > 0, Money("USD", value["v"]))
        signs = sorted((sign, each.cents) for sign, each in self._by_sign.items())
        cents = [each.cents for each in self._all.get()]
        yield {"k": value["k"], "shown": f"{self._total.value().cents} {cents} {signs}"}


def registered():
    serializers = BUILT_IN.copy()
    serializers.register(SNAPSHOT, read_money)
    return serializers


def job_of(engine, base, serializers):
    return StatefulJob(
        engine,
        "money",
        base,
        KeyedOperator("sums", "k", Types.STRING, Sums(), OUTPUT),
        parallelism=1,
        max_parallelism=4,
        local_copies=LocalCopies(f"{base}/local"),
        serializers=serializers,
    )


def rows_of(number):
    return [(f"key {at % 3}", number * 100 + at - 102) for at in range(7)]


def main():
    """Without Spark, which has no part in what a process finds."""
    base, number, is_registered = sys.argv[1:]
    job = job_of(LocalEngine(), base, registered() if is_registered == "yes" else BUILT_IN)
    keys, values = zip(*rows_of(int(number)), strict=True)
    result = job.run(pa.table({"k": keys, "v": values}), int(number), order_by=["v"])
    shown = [[row["k"], row["shown"]] for row in result.output.to_arrow().to_pylist()]
    sys.stdout.write(json.dumps(shown) + "\n")


if __name__ == "__main__":
    main()
