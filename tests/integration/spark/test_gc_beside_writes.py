"""``gc --delete`` runs all the time beside writes, and deletes nothing that a snapshot names."""

import threading

import pytest

from dstl_core import Snapshot, edit_savepoint
from dstl_core.codec.serializers import Types
from dstl_core.errors import DstlError
from dstl_core.functions import KeyedStateBootstrapFunction
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.savepoint.gc import collect_garbage
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from tests.job_files import make_old

pytestmark = pytest.mark.spark
UID = OperatorIdentifier.for_uid
KEYS = 3000


class Fill(KeyedStateBootstrapFunction):
    def open(self, runtime_context):
        self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG))

    def process_element(self, value, ctx):
        self.n.update(value["n"])


class Collector(threading.Thread):
    """Collects until it is told to stop; an error ends it."""

    def __init__(self, base):
        super().__init__()
        self.base, self.stop, self.deleted, self.rounds = base, threading.Event(), 0, 0
        self.error = None

    def run(self):
        try:
            while not self.stop.is_set():
                self.deleted += collect_garbage(str(self.base), delete=True).deleted
                self.rounds += 1
        except DstlError as error:
            self.error = error


def test_gc_in_a_loop_beside_running_writes(spark, tmp_path):
    collector = Collector(tmp_path)
    collector.start()
    expected = {}
    try:
        for number in range(4):
            rows = spark.range(0, KEYS, 1, 2).selectExpr(
                "concat('a-rather-long-key-', id) AS k", f"id + {number} AS n"
            )
            keyed = OperatorTransformation.bootstrap_with(rows).key_by("k")
            made = keyed.transform(Fill()) if number % 2 else keyed.transform_columns()
            writer = SavepointWriter.new_savepoint(spark, 128, 2).with_operator(UID("op"), made)
            writer.write(str(tmp_path / "same"), mode="overwrite")
            writer.write(str(tmp_path / f"own-{number}"))
            expected["same"] = expected[f"own-{number}"] = number
            make_old(tmp_path)
            # In place: the files stay, the metadata is another.
            edit = edit_savepoint(Snapshot.load(tmp_path / "same"))
            edit = edit.change_operator_identifier(UID("op"), UID("op2"))
            edit.write(tmp_path / "same", mode="overwrite")
            copied = edit_savepoint(Snapshot.load(tmp_path / f"own-{number}")).with_max_parallelism(
                256
            )
            copied.write(tmp_path / f"copy-{number}")
            expected[f"copy-{number}"] = number
            make_old(tmp_path)
    finally:
        collector.stop.set()
        collector.join()
    assert collector.error is None
    assert collector.rounds > 4
    assert collector.deleted + collect_garbage(str(tmp_path), delete=True).deleted >= 3 * 2
    for name, number in expected.items():
        written = Snapshot.load(tmp_path / name)
        assert verify_snapshot(written).findings == []
        [operator] = written.operators
        assert {line["key"]: line["value"] for line in operator.dump()} == {
            f"a-rather-long-key-{position}": position + number for position in range(KEYS)
        }
    assert collect_garbage(str(tmp_path)).garbage == []
