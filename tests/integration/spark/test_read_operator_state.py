"""SavepointReader: list, union and broadcast state; names, types, serializers of your own."""

import pyarrow as pa
import pytest

from dstl_core.codec.serializers import BUILT_IN, Types, TypeSerializer
from dstl_core.errors import (
    NoSuchOperatorError,
    NoSuchStateError,
    SavepointError,
    StateFileNotFoundError,
)
from dstl_core.functions import (
    KeyedStateBootstrapFunction,
    KeyedStateReaderFunction,
    StateBootstrapFunction,
)
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.spark.savepoints.savepoint_reader import SavepointReader
from dstl_core.state.tables.descriptor import (
    ListStateDescriptor,
    ValueStateDescriptor,
)
from tests.integration.spark.reading import UID, open_reader, truth

pytestmark = pytest.mark.spark


def test_list_state_is_every_element_of_every_subtask(spark):
    reader = open_reader(spark, "c-opstate-hashmap")
    for state, type_info in (("txt", Types.STRING), ("buf", Types.LONG)):
        rows = reader.read_list_state(UID("c-list"), state, type_info).collect()
        expected = {
            element["subtask"]: element["value"]
            for element in truth("c-opstate-hashmap", "c-list", "op-list", state)
        }
        by_subtask = {}
        for row in sorted(rows, key=lambda row: (row.subtask, row.list_index)):
            by_subtask.setdefault(row.subtask, []).append(row.list_value)
        assert by_subtask == expected


def test_union_state_is_one_copy(spark):
    reader = open_reader(spark, "c-opstate-hashmap")
    rows = reader.read_union_state("c-list", "offs").collect()
    [entry] = truth("c-opstate-hashmap", "c-list", "op-union", "offs")
    assert sorted(list(row.list_value) for row in rows) == sorted(entry["value"])


def test_broadcast_state_is_one_copy_of_the_map(spark):
    reader = open_reader(spark, "c-opstate-hashmap")
    rows = reader.read_broadcast_state("c-broadcast", "rules", Types.STRING, Types.LONG).collect()
    [entry] = truth("c-opstate-hashmap", "c-broadcast", "op-broadcast", "rules")
    assert {row.map_key: row.map_value for row in rows} == dict(entry["value"])


def test_a_declared_type_that_differs_is_an_error_that_shows_both(spark):
    reader = open_reader(spark, "c-opstate-hashmap")
    with pytest.raises(SavepointError, match=r"expected Long .from the snapshot., got String"):
        reader.read_list_state("c-list", "buf", Types.STRING)
    with pytest.raises(SavepointError, match=r"expected String .*, got Long"):
        reader.read_broadcast_state("c-broadcast", "rules", Types.LONG, Types.LONG)


def test_a_wrong_name_lists_the_right_ones(spark):
    reader = open_reader(spark, "c-opstate-hashmap")
    with pytest.raises(NoSuchStateError, match=r"no list state 'txtt'; it has: .*'txt' .list."):
        reader.read_list_state("c-list", "txtt")
    with pytest.raises(NoSuchStateError, match="no broadcast state 'buf'"):
        reader.read_broadcast_state("c-list", "buf")
    with pytest.raises(NoSuchOperatorError, match="c-broadcast"):
        reader.read_list_state("nobody", "txt")


def test_operators_by_uid_hash_and_name(spark):
    reader = open_reader(spark, "c-opstate-hashmap")
    by_hash = OperatorIdentifier.for_uid_hash(UID("c-list").operator_id.hex)
    names = [UID("c-list"), by_hash, "uid:c-list", f"hash:{by_hash}"]
    counts = {reader.read_list_state(each, "buf").count() for each in names}
    assert counts == {50}


def test_a_missing_snapshot_is_an_error_at_once(spark, tmp_path):
    with pytest.raises(StateFileNotFoundError, match="There is no snapshot"):
        SavepointReader.read(spark, str(tmp_path))


class Fahrenheit(TypeSerializer):
    """A type of the user's own: an int that is stored as a short text."""

    snapshot_class = "com.acme.FahrenheitSerializerSnapshot"
    type_name = "Fahrenheit"
    arrow_type = pa.int32()

    def serialize(self, value, out):
        out.write_utf(f"{value}F")

    def deserialize(self, data):
        return int(data.read_utf("degrees").removesuffix("F"))

    def __eq__(self, other):
        return type(other).__name__ == "Fahrenheit"

    def __hash__(self):
        return 1


class Degrees(StateBootstrapFunction):
    def initialize_state(self, context):
        store = context.operator_state_store
        self.all = store.get_list_state(ListStateDescriptor("all", Fahrenheit()))
        self.union = store.get_union_list_state(ListStateDescriptor("union", Fahrenheit()))

    def process_element(self, value):
        self.all.add(value["n"])
        self.union.add(value["n"])


class Latest(KeyedStateBootstrapFunction):
    def open(self, runtime_context):
        self.state = runtime_context.get_state(ValueStateDescriptor("latest", Fahrenheit()))

    def process_element(self, value, ctx):
        self.state.update(value["n"])


class ReadLatest(KeyedStateReaderFunction):
    def open(self, runtime_context):
        self.state = runtime_context.get_state(ValueStateDescriptor("latest", Fahrenheit()))

    def read_key(self, key, ctx):
        yield key, self.state.value()


def test_a_serializer_of_your_own(spark, tmp_path):
    frame = spark.createDataFrame([("a", 451), ("b", -40)], "k string, n int")
    rows = OperatorTransformation.bootstrap_with(frame)
    path = (
        SavepointWriter.new_savepoint(spark)
        .with_operator(UID("degrees"), rows.transform(Degrees()))
        .with_operator(UID("latest"), rows.key_by("k").transform(Latest()))
        .write(str(tmp_path / "sp"))
    )
    registry = BUILT_IN.copy()
    registry.register(Fahrenheit.snapshot_class, lambda data, version, context: Fahrenheit())
    reader = SavepointReader.read(spark, path, serializers=registry)
    for own_frame in (
        reader.read_list_state("degrees", "all", Fahrenheit()),
        reader.read_union_state("degrees", "union"),
    ):
        assert sorted(row.list_value for row in own_frame.collect()) == [-40, 451]
    keyed = reader.read_keyed_state("latest", ReadLatest(), out_type="k string, n int")
    assert {row.k: row.n for row in keyed.collect()} == {"a": 451, "b": -40}
    with pytest.raises(SavepointError, match=r"expected Fahrenheit .*, got Long"):
        reader.read_list_state("degrees", "all", Types.LONG)
    unknown = SavepointReader.read(spark, path)
    with pytest.raises(SavepointError, match="FahrenheitSerializerSnapshot"):
        unknown.read_list_state("degrees", "all")
