"""Histograms and largest keys of a state, from the files of a snapshot. No Spark."""

import base64
import re
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from dstl_core import Snapshot
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import EpochFacts, KeyFacts
from dstl_core.codec.serializers import Types
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder
from dstl_core.state.columns.keyed_sections import KeyedSections
from dstl_dagster.metadata import rows_table
from dstl_dagster.pipelines import state_profile
from dstl_dagster.pipelines.state_profile import StateSample, key_count

pytestmark = pytest.mark.dagster

KEYS = [f"k{at:03}" for at in range(200)]
STATES = [
    StateMetaInfoSnapshot.key_value("n", KeyedStateType.VALUE, Types.LONG),
    StateMetaInfoSnapshot.key_value("ratio", KeyedStateType.VALUE, Types.DOUBLE),
    StateMetaInfoSnapshot.key_value("names", KeyedStateType.LIST, Types.LIST(Types.STRING)),
]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    """``n`` counts up from 0 to 199; ``ratio`` has no bar for three keys; two keys have names."""
    path = tmp_path_factory.mktemp("savepoint") / "sp"
    encoder = KeyedStateEncoder(Types.STRING, STATES, 128)
    columns = {
        "n": {"state_key": KEYS, "state_value": list(range(200))},
        "ratio": {
            "state_key": KEYS,
            "state_value": [float("nan"), *(at / 10 for at in range(1, 198)), -1.7e308, 1.7e308],
        },
        "names": {
            "state_key": ["k007"] * 40 + ["k011"] * 5,
            "list_value": ["a-long-name"] * 40 + ["a-long-name"] * 5,
        },
    }
    folder = SavepointFolder(path)
    with KeyedSections(encoder.header, encoder.key_groups, 128) as sections:
        for state, rows in columns.items():
            sections.add(encoder.encode(state, pa.table(rows)))
        handle = folder.add_keyed_stream(sections.stream())
    subtasks = (OperatorSubtaskState(0, managed_keyed_state=handle),)
    operator = OperatorState(OperatorID.for_uid("op"), 1, 128, subtasks, uid="op")
    folder.publish(CheckpointMetadata(3, 1, (operator,)), {})
    return Snapshot.load(path)


def texts_of(chart):
    [encoded] = re.findall(r"base64,([^)]+)\)", chart.value)
    svg = ElementTree.fromstring(base64.b64decode(encoded))
    return [each.text for each in svg.iter("{http://www.w3.org/2000/svg}text")]


def test_each_numeric_column_has_a_histogram(snapshot):
    sample = StateSample.of(snapshot, "op")
    without = CompletedCheckpoint(1, None, "0" * 64, 0, EpochFacts())
    assert sample.count() == key_count(snapshot, without, "op") == {"dagster/row_count": 200}
    keys = {"op": KeyFacts(count=123_456, states=("n",))}
    counted = CompletedCheckpoint(1, None, "0" * 64, 0, EpochFacts(keys=keys))
    assert key_count(snapshot, counted, "op") == {"dagster/row_count": 123_456}
    metadata = sample.histograms()
    assert metadata["dstl/profiled_keys"] == 200
    # Smallest value, largest bar, axis, largest value, what is counted: 20 bars of 10 keys each.
    assert texts_of(metadata["dstl/histogram/n"]) == ["0", "10", "0", "199", "200 keys by n"]
    # What is no number, or too large for the span of an axis, is in no bar.
    assert texts_of(metadata["dstl/histogram/ratio"])[-1] == "197 keys by ratio"
    assert "dstl/histogram/names" not in metadata
    assert all(len(each.value) < 1000 for name, each in metadata.items() if "histogram" in name)
    assert not any(key in str(metadata) for key in KEYS)


def test_the_largest_keys_are_a_table(snapshot):
    table = StateSample.of(snapshot, "op").largest()["dstl/largest_keys"]
    rows = [each.data for each in table.records]
    assert len(rows) == 10
    assert [row["state_key"] for row in rows[:2]] == ["k007", "k011"]
    assert rows[0]["bytes"] > rows[1]["bytes"] > rows[2]["bytes"]
    assert rows[0]["ratio"] == 0.7
    # The others have the same size: those with the largest number come first.
    assert [(row["state_key"], row["n"]) for row in rows[2:4]] == [("k199", 199), ("k198", 198)]


def test_a_large_state_is_sampled_and_its_keys_are_estimated(snapshot, monkeypatch):
    monkeypatch.setattr(state_profile, "PROFILED_KEYS", 50)
    sample = StateSample.of(snapshot, "op")
    # Whole key groups, so that none is taken for smaller than it is.
    assert 50 <= sample.rows.num_rows < 110
    [(name, estimated)] = sample.count().items()
    assert name == "dstl/estimated_keys"
    assert 120 < estimated < 280


def test_values_that_json_does_not_hold_are_text():
    rows = [{"a": float("nan"), "b": float("inf"), "c": 1.5, "d": b"x", "e": None, "f": True}]
    [row] = rows_table(rows).records
    expected = {"a": "nan", "b": "inf", "c": 1.5, "d": "b'x'", "e": None, "f": True}
    assert row.data == expected
