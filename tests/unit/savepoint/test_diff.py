"""Differences of snapshots, against those of their dumps."""

import json

import pyarrow as pa
import pytest

from dstl_core import Snapshot
from dstl_core.cli import main
from dstl_core.codec.serializers import TimerSerializer, Types, VoidNamespaceSerializer
from dstl_core.codec.serializers.structs import EnumSerializer
from dstl_core.codec.serializers.window_types import TimeWindowSerializer
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.compare import diff
from dstl_core.savepoint.compare.diff import count_changes, diff_snapshots
from dstl_core.savepoint.compare.structure_diff import structure_differences
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder
from dstl_core.state.columns.keyed_sections import KeyedSections
from tests.examples import thinned
from tests.golden_files import SNAPSHOTS, snapshot

VALUE = StateMetaInfoSnapshot.key_value("n", KeyedStateType.VALUE, Types.LONG)
TEXT = StateMetaInfoSnapshot.key_value("n", KeyedStateType.VALUE, Types.STRING)
LISTS = StateMetaInfoSnapshot.key_value("names", KeyedStateType.LIST, Types.LIST(Types.STRING))
COUNTS = StateMetaInfoSnapshot.key_value(
    "counts", KeyedStateType.MAP, Types.MAP(Types.STRING, Types.INT)
)
WINDOWED = StateMetaInfoSnapshot.key_value(
    "w", KeyedStateType.VALUE, Types.LONG, TimeWindowSerializer()
)
TIMERS = StateMetaInfoSnapshot.priority_queue(
    "_timer_state/event_user-timers", TimerSerializer(Types.STRING, VoidNamespaceSerializer())
)
STATES = [VALUE, LISTS, COUNTS, WINDOWED, TIMERS]


def write(path, columns, *, states=STATES, max_parallelism=128):
    """A savepoint of the operator ``op``; columns by state in flat form."""
    encoder = KeyedStateEncoder(Types.STRING, states, max_parallelism)
    folder = SavepointFolder(path)
    with KeyedSections(encoder.header, encoder.key_groups, max_parallelism) as sections:
        for state, rows in columns.items():
            sections.add(encoder.encode(state, pa.table(rows)))
        handle = folder.add_keyed_stream(sections.stream())
    subtasks = (OperatorSubtaskState(0, managed_keyed_state=handle),)
    operator = OperatorState(OperatorID.for_uid("op"), 1, max_parallelism, subtasks, uid="op")
    folder.publish(CheckpointMetadata(3, 1, (operator,)), {})
    return Snapshot.load(path)


def window(start):
    return {"start": start, "end": start + 10}


BEFORE = {
    "n": {"state_key": ["same", "changed", "gone"], "state_value": [1, 2, 3]},
    "names": {"state_key": ["a", "a", "b"], "list_value": ["x", "y", "z"]},
    "counts": {
        "state_key": ["a", "a", "b", "c"],
        "map_key": ["k", "l", "k", "k"],
        "map_value": [1, 2, 3, 4],
    },
    "w": {
        "state_key": ["a", "a"],
        "state_window": [window(0), window(10)],
        "state_value": [1, 2],
    },
    "_timer_state/event_user-timers": {"state_key": ["a", "b"], "timestamp": [5, 6]},
}
AFTER = {
    "n": {"state_key": ["new", "same", "changed"], "state_value": [9, 1, -2]},
    "names": {"state_key": ["a", "a", "b"], "list_value": ["y", "x", "z"]},
    "counts": {
        "state_key": ["c", "a", "a", "b"],
        "map_key": ["k", "l", "k", "other"],
        "map_value": [4, 2, 1, 3],
    },
    "w": {
        "state_key": ["a", "a"],
        "state_window": [window(0), window(20)],
        "state_value": [1, 2],
    },
    "_timer_state/event_user-timers": {"state_key": ["a", "b"], "timestamp": [5, 7]},
}
EXPECTED = {
    ("n", "new", None): ("added", None, 9),
    ("n", "gone", None): ("removed", 3, None),
    ("n", "changed", None): ("changed", 2, -2),
    ("names", "a", None): ("changed", ["x", "y"], ["y", "x"]),
    ("counts", "b", None): ("changed", [["k", 3]], [["other", 3]]),
    ("w", "a", (10, 20)): ("removed", 2, None),
    ("w", "a", (20, 30)): ("added", None, 2),
    ("user-timers", "b", 6): ("removed", None, None),
    ("user-timers", "b", 7): ("added", None, None),
}


def by_place(differences):
    places = {}
    for difference in differences:
        line = difference.to_json()
        if "ts" in line:
            place = line["service"], line["key"], line["ts"]
        else:
            ns = line["ns"]
            place = line["state"], line["key"], tuple(ns) if isinstance(ns, list) else ns
        assert place not in places
        places[place] = line["change"], line.get("before"), line.get("after")
    return places


@pytest.mark.slow
@pytest.mark.parametrize("max_parallelism", [128, 300])
def test_added_removed_and_changed(tmp_path, max_parallelism):
    one = write(tmp_path / "a", BEFORE)
    two = write(tmp_path / "b", AFTER, max_parallelism=max_parallelism)
    assert by_place(diff_snapshots(one, two)) == EXPECTED


def test_two_processes_find_the_same_differences(tmp_path, monkeypatch):
    """With steps so small that both have some."""
    monkeypatch.setattr(diff, "BYTES_AT_ONCE", 64)
    one, two = write(tmp_path / "a", BEFORE), write(tmp_path / "b", AFTER)
    differences = list(diff_snapshots(one, two, jobs=2))
    assert differences == list(diff_snapshots(one, two))
    assert by_place(differences) == EXPECTED
    [old], [new] = one.operators, two.operators
    assert count_changes(old, new, jobs=2) == count_changes(old, new)


def test_a_state_that_only_one_has(tmp_path):
    only = {"n": BEFORE["n"]}
    one = write(tmp_path / "a", only)
    two = write(tmp_path / "b", only | {"names": BEFORE["names"]}, states=[VALUE, LISTS])
    assert by_place(diff_snapshots(one, two)) == {
        ("names", "a", None): ("added", None, ["x", "y"]),
        ("names", "b", None): ("added", None, ["z"]),
    }


def test_another_type_of_a_state(tmp_path):
    one = write(tmp_path / "a", {"n": {"state_key": ["k"], "state_value": [1]}}, states=[VALUE])
    two = write(tmp_path / "b", {"n": {"state_key": ["k"], "state_value": ["1"]}}, states=[TEXT])
    assert by_place(diff_snapshots(one, two)) == {("n", "k", None): ("changed", 1, "1")}


@pytest.mark.slow
@pytest.mark.parametrize("fixture", thinned(SNAPSHOTS, 3), ids=str)
def test_a_snapshot_does_not_differ_from_itself(fixture):
    differences = list(
        diff_snapshots(Snapshot.load(fixture.snapshot), Snapshot.load(fixture.snapshot))
    )
    assert differences == []


SAME_STATE = [
    "a-hashmap-canonical-compressed",
    "a-hashmap-checkpoint",
    "a-hashmap-native",
    "a-hashmap-changelog-multi",
    "a-rocksdb-canonical",
    "a-rocksdb-native-incremental",
    "a-rocksdb-p2-max4096",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", SAME_STATE)
def test_forms_backends_and_numbers_of_key_groups_change_no_entry(name):
    one, two = Snapshot.load(snapshot("a-hashmap-canonical")), Snapshot.load(snapshot(name))
    assert list(diff_snapshots(one, two)) == []
    changed = [each.to_json() for each in structure_differences(one, two)]
    if name == "a-rocksdb-p2-max4096":
        line = {"change": "changed", "what": "max_parallelism", "before": 128, "after": 4096}
        assert changed == [line | {"op": uid} for uid in ("a-keyed", "sink", "src")]
    else:
        assert changed == []


KEPT = StateMetaInfoSnapshot.key_value("kept", KeyedStateType.VALUE, Types.LONG)
ROWS = {"kept": {"state_key": ["k"], "state_value": [1]}}


def structure(tmp_path, ours, theirs, **options):
    one = write(tmp_path / "a", ROWS, states=[*ours, KEPT])
    two = write(tmp_path / "b", ROWS, states=[*theirs, KEPT], **options)
    return list(map(str, structure_differences(one, two)))


def test_states_and_types_that_differ_without_an_entry(tmp_path):
    assert structure(tmp_path, [VALUE, LISTS], [TEXT, COUNTS]) == [
        "op value n: type changed from Long to String",
        "op list names: state removed",
        "op map counts: state added",
    ]


def test_kind_namespace_and_max_parallelism_that_differ(tmp_path):
    kind = StateMetaInfoSnapshot.key_value("names", KeyedStateType.VALUE, Types.STRING)
    windows = StateMetaInfoSnapshot.key_value("w", KeyedStateType.VALUE, Types.LONG)
    assert structure(tmp_path, [LISTS, WINDOWED], [kind, windows], max_parallelism=64) == [
        "op: max parallelism changed from 128 to 64",
        "op value names: kind changed from list to value",
        "op value w: namespace type changed from TimeWindow to VoidNamespace",
    ]


def test_the_inside_of_a_type_that_keeps_its_name(tmp_path):
    stored = EnumSerializer("com.example.Level", ("LOW", "HIGH"))
    wanted = EnumSerializer("com.example.Level", ("LOW",))
    ours, theirs = (
        StateMetaInfoSnapshot.key_value("level", KeyedStateType.VALUE, stored_type)
        for stored_type in (stored, wanted)
    )
    assert structure(tmp_path, [ours], [theirs]) == [
        "op value level: type changed from Enum<com.example.Level> to Enum<com.example.Level> "
        "(com.example.Level lost constants: HIGH)"
    ]


def test_operators_that_only_one_has():
    one, other = (
        Snapshot.load(snapshot(name)) for name in ("a-hashmap-canonical", "e-ttl-hashmap")
    )
    assert [str(each) for each in structure_differences(one, other)] == [
        "a-keyed: operator removed",
        "sink: operator removed",
        "fa0672e2433c3ac5b9cad4aacd42ca2b: operator added",
        "e-ttl: operator added",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("fixture", thinned(SNAPSHOTS, 3), ids=str)
def test_everything_is_new_in_another_job(fixture, tmp_path):
    empty = write(tmp_path / "a", {}, states=[])
    full = Snapshot.load(fixture.snapshot)
    differences = list(diff_snapshots(empty, full))
    assert {each.change for each in differences} <= {"added"}
    readable = sum(1 for operator in full.operators for _ in operator.dump())
    assert len(differences) >= readable > 0


class TestCommandLine:
    def run(self, capsys, *arguments):
        with pytest.raises(SystemExit) as ended:
            main(["diff", *map(str, arguments)])
        return ended.value.code, capsys.readouterr().out

    def test_text(self, tmp_path, capsys):
        write(tmp_path / "a", BEFORE)
        write(tmp_path / "b", AFTER)
        code, out = self.run(capsys, tmp_path / "a", tmp_path / "b")
        assert code == 1
        lines = out.splitlines()
        first = lines.index("op value n: 1 added, 1 removed, 1 changed")
        assert lines[first : first + 4] == [
            "op value n: 1 added, 1 removed, 1 changed",
            '  + "new"',
            '  - "gone"',
            '  ~ "changed"',
        ]

    def test_json(self, tmp_path, capsys):
        write(tmp_path / "a", BEFORE)
        write(tmp_path / "b", AFTER)
        code, out = self.run(capsys, tmp_path / "a", tmp_path / "b", "--json")
        lines = [json.loads(line) for line in out.splitlines()]
        assert code == 1
        assert len(lines) == len(EXPECTED)
        assert {
            "change": "changed",
            "op": "op",
            "kind": "value",
            "state": "n",
            "key": "changed",
            "kg": 51,
            "ns": None,
            "before": 2,
            "after": -2,
        } in [line | {"kg": 51} for line in lines]

    def test_a_type_that_changed_without_an_entry(self, tmp_path, capsys):
        write(tmp_path / "a", ROWS, states=[VALUE, KEPT])
        write(tmp_path / "b", ROWS, states=[TEXT, KEPT])
        code, out = self.run(capsys, tmp_path / "a", tmp_path / "b")
        assert (code, out) == (1, "op value n: type changed from Long to String\n")
        code, out = self.run(capsys, tmp_path / "a", tmp_path / "b", "--json")
        assert code == 1
        assert json.loads(out) == {
            "change": "changed",
            "op": "op",
            "what": "type",
            "kind": "value",
            "state": "n",
            "before": "Long",
            "after": "String",
        }

    def test_equal(self, tmp_path, capsys):
        write(tmp_path / "a", BEFORE)
        code, out = self.run(capsys, tmp_path / "a", tmp_path / "a")
        assert (code, out) == (0, "no differences\n")

    def test_nothing_there(self, tmp_path, capsys):
        code, _ = self.run(capsys, tmp_path / "a", tmp_path / "b")
        assert code == 2


def test_progress_is_told_up_to_the_end():
    one, other = (
        Snapshot.load(snapshot(name)) for name in ("a-hashmap-native", "f-two-ops-hashmap")
    )
    told = []
    for _ in diff_snapshots(one, other, told.append):
        pass
    assert sum(told) == sum(each.state.state_size for s in (one, other) for each in s.operators)
    assert len(told) == 3, "one range of each operator, and the rest"
    assert min(told) > 0
