"""What is read as columns and written from them is the same state."""

import json
import tracemalloc
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from dstl_core import Snapshot
from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_canonical import read_section
from dstl_core.codec.serializers import TimerSerializer, Types, VoidNamespaceSerializer
from dstl_core.codec.serializers.window_types import TimeWindowSerializer
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import ColumnValueError, ConfigError, DuplicateKeyError
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import compute_key_group_range_for_operator_index
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder
from dstl_core.state.columns.keyed_sections import KeyedSections
from tests.examples import thinned
from tests.unit.savepoint.test_keyed_reader import READABLE


def written(path, encoder, sections, parallelism=1):
    """A savepoint of one operator ``op``."""
    folder = SavepointFolder(path)
    subtasks = []
    for index in range(parallelism):
        own = compute_key_group_range_for_operator_index(
            encoder.max_parallelism, parallelism, index
        )
        handle = folder.add_keyed_stream(sections.stream(own))
        subtasks.append(OperatorSubtaskState(index, managed_keyed_state=handle))
    operator = OperatorState(
        OperatorID.for_uid("op"), parallelism, encoder.max_parallelism, tuple(subtasks), uid="op"
    )
    folder.publish(CheckpointMetadata(3, 1, (operator,)), {})
    sections.close()
    return Snapshot.load(path)["op"]


def lines(entries):
    return Counter(json.dumps(entry.to_line() | {"op": ""}, sort_keys=True) for entry in entries)


@pytest.mark.slow
@pytest.mark.parametrize(("fixture", "label"), thinned(READABLE, 3, 0), ids=str)
def test_written_again_from_flat_columns(fixture, label, tmp_path):
    compressed = len(label) % 2 == 0
    operator = Snapshot.load(fixture.snapshot)[label]
    encoder = KeyedStateEncoder(
        operator.key_type.serializer,
        [info.meta.as_key_value() for info in operator.states],
        operator.max_parallelism,
        types=EXACT_OPTIONS,
        compressed=compressed,
    )
    # The Java hash of a POJO is its class's own, so the key groups have to be told.
    told = ("key_group",) if "Pojo" in type(operator.key_type.serializer).__name__ else ()
    sections = KeyedSections(encoder.header, encoder.key_groups, encoder.max_parallelism, memory=0)
    for info in operator.states:
        columns = (*encoder.schema(info.name).names, *told)
        for batch in operator.flat(info.name, types=EXACT_OPTIONS, columns=columns).read():
            sections.add(encoder.encode(info.name, batch))
    parallelism = min(3, operator.max_parallelism)
    again = written(tmp_path / "s", encoder, sections, parallelism)
    assert lines(again.keyed_entries()) == lines(operator.keyed_entries())
    managed = [t for t in operator.timer_entries() if operator.states]
    if any(info.kind.endswith("timer") for info in operator.states):
        assert lines(again.timer_entries()) == lines(managed)


@pytest.mark.slow
@pytest.mark.parametrize(("fixture", "label"), thinned(READABLE, 3, 1), ids=str)
def test_written_again_from_one_row_per_key(fixture, label, tmp_path):
    operator = Snapshot.load(fixture.snapshot)[label]
    states = {
        info.name: info.meta
        for info in operator.states
        if info.name in operator.keyed(types=EXACT_OPTIONS).schema.names
    }
    if not states:
        return
    encoder = KeyedStateEncoder(
        operator.key_type.serializer,
        [meta.as_key_value() for meta in states.values()],
        operator.max_parallelism,
        types=EXACT_OPTIONS,
    )
    columns = ("state_key", "key_group", *states)
    sections = KeyedSections(encoder.header, encoder.key_groups, encoder.max_parallelism)
    for batch in operator.keyed(types=EXACT_OPTIONS, columns=columns).read():
        for runs in encoder.encode_keyed(batch):
            sections.add(runs)
    again = written(tmp_path / "s", encoder, sections)
    kept = (each for each in operator.keyed_entries() if each.state in states)
    assert lines(again.keyed_entries()) == lines(kept)


# ------------------------------------------------------------------------------ by hand


VOID = VoidNamespaceSerializer()
VALUE = StateMetaInfoSnapshot.key_value("n", KeyedStateType.VALUE, Types.LONG)
LISTS = StateMetaInfoSnapshot.key_value("names", KeyedStateType.LIST, Types.LIST(Types.STRING))
COUNTS = StateMetaInfoSnapshot.key_value(
    "counts", KeyedStateType.MAP, Types.MAP(Types.STRING, Types.INT)
)
WINDOWED = StateMetaInfoSnapshot.key_value(
    "window-contents", KeyedStateType.VALUE, Types.LONG, TimeWindowSerializer()
)
TIMERS = StateMetaInfoSnapshot.priority_queue(
    "_timer_state/event_user-timers", TimerSerializer(Types.STRING, VOID)
)
STATES = [VALUE, LISTS, COUNTS, WINDOWED, TIMERS]


def test_null_and_empty_are_no_entries(tmp_path):
    encoder = KeyedStateEncoder(Types.STRING, STATES, 128)
    sections = KeyedSections(encoder.header, encoder.key_groups, 128)
    rows = pa.table(
        {
            "state_key": ["a", "b", "c"],
            "n": [1, None, 3],
            "names": pa.array([["x", "y"], [], None], pa.list_(pa.string())),
            "counts": pa.array(
                [[("k", 1), ("null", None)], [], None], pa.map_(pa.string(), pa.int32())
            ),
            "_timer_state/event_user-timers": pa.array([[5, -5], None, []], pa.list_(pa.int64())),
        }
    )
    for runs in encoder.encode_keyed(rows):
        sections.add(runs)
    operator = written(tmp_path / "s", encoder, sections)
    values = {(entry.key, entry.state): entry.value for entry in operator.keyed_entries()}
    assert values == {
        ("a", "n"): 1,
        ("c", "n"): 3,
        ("a", "names"): ["x", "y"],
        ("a", "counts"): [("k", 1), ("null", None)],
    }
    assert sorted(timer.timestamp for timer in operator.timer_entries()) == [-5, 5]


def test_elements_of_a_list_over_several_batches_are_one_list(tmp_path):
    encoder = KeyedStateEncoder(Types.STRING, STATES, 128)
    sections = KeyedSections(encoder.header, encoder.key_groups, 128)
    for keys, values in ((["a", "b", "a"], ["1", "x", "2"]), (["a"], ["3"])):
        rows = pa.table({"state_key": keys, "list_value": values})
        sections.add(encoder.encode("names", rows))
    sections.add(encoder.encode("n", pa.table({"state_key": ["a"], "state_value": [7]})))
    operator = written(tmp_path / "s", encoder, sections)
    by_key = {(entry.key, entry.state): entry.value for entry in operator.keyed_entries()}
    assert by_key == {("a", "names"): ["1", "2", "3"], ("b", "names"): ["x"], ("a", "n"): 7}


def test_list_index_gives_the_order(tmp_path):
    encoder = KeyedStateEncoder(Types.STRING, STATES, 128)
    sections = KeyedSections(encoder.header, encoder.key_groups, 128)
    rows = pa.table(
        {"state_key": ["a", "a", "a"], "list_index": [2, 0, 1], "list_value": ["c", "a", "b"]}
    )
    sections.add(encoder.encode("names", rows))
    operator = written(tmp_path / "s", encoder, sections)
    assert [entry.value for entry in operator.keyed_entries()] == [["a", "b", "c"]]


@pytest.mark.parametrize(
    ("state", "columns"),
    [
        ("n", {"state_key": ["a", "a"], "state_value": [1, 2]}),
        ("counts", {"state_key": ["a", "a"], "map_key": ["k", "k"], "map_value": [1, 2]}),
        (
            "window-contents",
            {
                "state_key": ["a", "a"],
                "state_window": [{"start": 0, "end": 5}, {"start": 0, "end": 5}],
                "state_value": [1, 2],
            },
        ),
    ],
)
def test_a_key_that_comes_twice_is_refused(state, columns):
    encoder = KeyedStateEncoder(Types.STRING, STATES, 128)
    sections = KeyedSections(encoder.header, encoder.key_groups, 128)
    whole = pa.table(columns)
    for at in range(2):
        sections.add(encoder.encode(state, whole.slice(at, 1)))
    with pytest.raises(DuplicateKeyError, match=state):
        list(sections.stream())


@pytest.mark.parametrize("compressed", [False, True])
def test_equal_timers_are_one_timer(tmp_path, compressed):
    """As in Flink, whose queues are sets; the state beside them is not touched."""
    encoder = KeyedStateEncoder(Types.STRING, STATES, 128, compressed=compressed)
    sections = KeyedSections(encoder.header, encoder.key_groups, 128, memory=0)
    times = pa.list_(pa.int64())
    for keys, moments in ((["a", "b"], [[5, -5, 5], [5]]), (["a", "c"], [[5, 6], [1]])):
        rows = pa.table({"state_key": keys, TIMERS.name: pa.array(moments, times)})
        for runs in encoder.encode_keyed(rows):
            sections.add(runs)
    numbers = pa.table({"state_key": ["a", "b"], "state_value": [1, 2]})
    sections.add(encoder.encode("n", numbers))
    operator = written(tmp_path / "s", encoder, sections)
    stored = [row for batch in operator.flat(TIMERS.name).read() for row in batch.to_pylist()]
    assert sorted((row["state_key"], row["timestamp"]) for row in stored) == [
        ("a", -5),
        ("a", 5),
        ("a", 6),
        ("b", 5),
        ("c", 1),
    ]
    assert {each.key: each.value for each in operator.keyed_entries()} == {"a": 1, "b": 2}


def test_the_same_key_in_another_window_is_fine():
    encoder = KeyedStateEncoder(Types.STRING, STATES, 128)
    sections = KeyedSections(encoder.header, encoder.key_groups, 128)
    rows = pa.table(
        {
            "state_key": ["a", "a"],
            "state_window": [{"start": 0, "end": 5}, {"start": 5, "end": 10}],
            "state_value": [1, 2],
        }
    )
    sections.add(encoder.encode("window-contents", rows))
    assert len(list(sections.stream())) == 2


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"state_key": ["a", None], "state_value": [1, 2]}, ConfigError, "key is null \\(row 1"),
        ({"state_key": ["a"]}, ColumnValueError, "'state_value' is missing"),
        ({"state_value": [1]}, ColumnValueError, "'state_key' is missing"),
        ({"state_key": ["a"], "state_value": ["x"]}, ColumnValueError, "expected int64"),
        (
            {"state_key": ["a"], "state_value": [1], "key_group": [128]},
            ConfigError,
            "key group 128",
        ),
    ],
)
def test_what_cannot_be_written_is_refused(columns, error, message):
    encoder = KeyedStateEncoder(Types.STRING, STATES, 128)
    with pytest.raises(error, match=message):
        encoder.encode("n", pa.table(columns))


def test_slices_of_columns_are_written_as_they_are(tmp_path):
    encoder = KeyedStateEncoder(Types.STRING, STATES, 128)
    whole = pa.table(
        {
            "state_key": [f"key-{each}" for each in range(100)],
            "names": [[str(each)] * (each % 4) for each in range(100)],
            "n": pa.array([None if each % 3 else each for each in range(100)], pa.int64()),
            "counts": pa.array(
                [[("k", each), (str(each), None)] for each in range(100)],
                pa.map_(pa.string(), pa.int32()),
            ),
        }
    )
    sections = KeyedSections(encoder.header, encoder.key_groups, 128)
    for start, size in ((0, 13), (13, 1), (14, 50), (64, 36)):
        for runs in encoder.encode_keyed(whole.slice(start, size)):
            sections.add(runs)
    operator = written(tmp_path / "s", encoder, sections)
    rows = [row for batch in operator.keyed().read() for row in batch.to_pylist()]
    expected = whole.to_pylist()
    for row in expected:
        row["names"] = row["names"] or None
        row["counts"] = [tuple(pair) for pair in row["counts"]]
    for row in rows:
        row["counts"] = sorted(map(tuple, row["counts"]), key=lambda pair: pair[0] != "k")
        row.pop("window-contents", None)
    assert sorted(rows, key=lambda row: row["state_key"]) == sorted(
        expected, key=lambda row: row["state_key"]
    )


def test_every_key_group_is_in_memory_or_in_the_file(tmp_path):
    rng = np.random.default_rng(3)
    values = rng.integers(-(2**62), 2**62, 5000)
    encoder = KeyedStateEncoder(Types.LONG, [VALUE], 64)
    sections = KeyedSections(encoder.header, encoder.key_groups, 64, memory=10_000)
    for start in range(0, 5000, 700):
        part = values[start : start + 700]
        rows = pa.table({"state_key": part, "state_value": part * 2})
        sections.add(encoder.encode("n", rows))
    operator = written(tmp_path / "s", encoder, sections, parallelism=2)
    values_by_key = {entry.key: entry.value for entry in operator.keyed_entries()}
    assert values_by_key == {int(each): int(each * 2) for each in values}


def test_memory_does_not_grow_with_the_number_of_runs():
    """Each batch gives each key group a run of one record: a run costs its place in the file."""
    total, batches = 300, 300
    encoder = KeyedStateEncoder(Types.LONG, [VALUE], total)
    groups = pa.array(range(total), pa.int32())
    with KeyedSections(encoder.header, encoder.key_groups, total, memory=1 << 20) as sections:
        tracemalloc.start()
        for first in range(batches):
            keys = pa.array(range(first * total, (first + 1) * total), pa.int64())
            rows = {"state_key": keys, "state_value": keys, "key_group": groups}
            sections.add(encoder.encode("n", pa.table(rows)))
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held / (total * batches) < 25  # without a temporary file, each takes 400
        section = sections.raw_section(7)
    assert [int.from_bytes(each.value, "big") for each in read_section(DataInput(section), 1)] == [
        first * total + 7 for first in range(batches)
    ]
