"""What tests of reading share: savepoints by real Flink, and what Flink restored from them."""

from dstl_core.codec.serializers import Types
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.spark.savepoints.savepoint_reader import SavepointReader
from tests.golden_files import GOLDEN, Fixture, snapshot

UID = OperatorIdentifier.for_uid
PAIR = Types.TUPLE(Types.LONG, Types.LONG)
CLICK = Types.TUPLE(Types.STRING, Types.LONG, Types.LONG)


def open_reader(spark, name):
    return SavepointReader.read(spark, str(snapshot(name)))


def truth(name, op, kind, state=None):
    return [
        entry
        for entry in Fixture(GOLDEN / name).truth
        if entry["op"] == op and entry["kind"] == kind and state in (None, entry.get("state"))
    ]


class Average:
    def create_accumulator(self):
        return (0, 0)

    def add(self, value, accumulator):
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return (a[0] + b[0], a[1] + b[1])
