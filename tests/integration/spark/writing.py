"""What tests of writing share."""

from dstl_core import Snapshot
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.savepoint.verify.verify import verify_snapshot

UID = OperatorIdentifier.for_uid
bootstrap_with = OperatorTransformation.bootstrap_with


def write(spark, path, uid, transformation, **options):
    writer = SavepointWriter.new_savepoint(spark, options.pop("max_parallelism", 128), 2)
    writer = writer.with_format(options.pop("form", "canonical"))
    out = writer.with_operator(UID(uid), transformation).write(str(path), **options)
    snapshot = Snapshot.load(out)
    assert verify_snapshot(snapshot).findings == []
    return snapshot[uid]


def entries(operator, kind, state=None):
    return [
        line
        for line in operator.dump()
        if line["kind"] == kind and state in (None, line.get("state"))
    ]


def stored_timers(operator, domain="event"):
    """``(key, time)`` of every timer as it is stored, were it stored twice."""
    batches = operator.flat(f"_timer_state/{domain}_user-timers").read()
    return sorted((row["state_key"], row["timestamp"]) for b in batches for row in b.to_pylist())


class Mean:
    def create_accumulator(self):
        return (0.0, 0)

    def add(self, value, accumulator):
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return (a[0] + b[0], a[1] + b[1])
