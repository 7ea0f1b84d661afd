"""States move between operators, whatever form they are stored in; nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dstl_core import Snapshot
from dstl_core.codec.serializers import TimerSerializer, Types, VoidNamespaceSerializer
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import NoSuchOperatorError, NoSuchStateError, SavepointError
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.ids import OperatorID, OperatorIdentifier
from dstl_core.savepoint.edit.savepoint_edit import edit_savepoint
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder
from dstl_core.state.columns.keyed_sections import KeyedSections
from tests.golden_files import as_lines, snapshot

UID = OperatorIdentifier.for_uid
EVENT_TIMERS = "_timer_state/event_user-timers"
FORMS = [
    "a-hashmap-canonical",
    "a-hashmap-canonical-compressed",
    "a-hashmap-native",
    "a-rocksdb-native-incremental",
    "a-hashmap-changelog-materialized",
]


def golden(name: str) -> Snapshot:
    return Snapshot.load(snapshot(name))


def of_operator(loaded: Snapshot, name: str, as_: str = "") -> list[dict[str, Any]]:
    return [{**line, "op": as_ or line["op"]} for line in loaded[name].dump()]


def in_any_union_order(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts of a union have no order."""
    return [
        {**line, "value": sorted(line["value"])} if line["kind"] == "op-union" else line
        for line in lines
    ]


def is_moved(line: dict[str, Any]) -> bool:
    return line.get("state") in ("cnt", "names") or line["kind"] == "event-timer"


@pytest.mark.slow
@pytest.mark.parametrize("max_parallelism", [None, 17])
@pytest.mark.parametrize("name", FORMS)
def test_keyed_states_of_an_operator_are_split_and_merged(
    tmp_path: Path, name: str, max_parallelism: int | None
) -> None:
    source = golden(name)
    before = of_operator(source, "a-keyed")
    moved, left = filter(is_moved, before), [each for each in before if not is_moved(each)]
    edit = edit_savepoint(source).split_operator(
        UID("a-keyed"), UID("apart"), ["cnt", "names", EVENT_TIMERS]
    )
    if max_parallelism is not None:
        edit = edit.with_max_parallelism(max_parallelism)
    split = Snapshot.load(edit.write(tmp_path / "split"))

    without_groups = as_lines({**line, "kg": 0} for line in left)
    assert as_lines({**e, "kg": 0} for e in of_operator(split, "a-keyed")) == without_groups
    assert as_lines({**e, "kg": 0} for e in of_operator(split, "apart", "a-keyed")) == as_lines(
        {**line, "kg": 0} for line in moved
    )
    assert split["apart"].parallelism == source["a-keyed"].parallelism
    assert split["apart"].max_parallelism == (max_parallelism or 128)

    back = (
        edit_savepoint(split)
        .merge_operators(UID("apart"), UID("a-keyed"))
        .with_max_parallelism(128)
    )
    merged = Snapshot.load(back.write(tmp_path / "merged"))
    assert as_lines(of_operator(merged, "a-keyed")) == as_lines(before)
    assert "apart" not in [each.label for each in merged.operators]


def test_operator_states_are_split_and_merged(tmp_path: Path) -> None:
    source = golden("c-opstate-hashmap")
    edit = edit_savepoint(source).split_operator(UID("c-list"), UID("apart"), ["offs"])
    split = Snapshot.load(edit.write(tmp_path / "split"))
    assert [info.name for info in split["apart"].operator_states] == ["offs"]
    assert sorted(split["apart"].union("offs")) == sorted(source["c-list"].union("offs"))
    assert "offs" not in [info.name for info in split["c-list"].operator_states]

    back = edit_savepoint(split).merge_operators(UID("apart"), UID("c-list"))
    back = back.merge_operators(UID("c-broadcast"), UID("c-list"))
    merged = Snapshot.load(back.write(tmp_path / "merged"))
    every = of_operator(source, "c-list") + of_operator(source, "c-broadcast", "c-list")
    assert as_lines(in_any_union_order(of_operator(merged, "c-list"))) == as_lines(
        in_any_union_order(every)
    )


def test_elements_are_spread_over_another_number_of_subtasks(tmp_path: Path) -> None:
    """A list of four subtasks, merged into an operator with fewer."""
    source = golden("o-opstate-p4")
    wide = next(each for each in source.operators if each.parallelism == 4 and each.operator_states)
    lists = [info.name for info in wide.operator_states if info.kind == "op-list"]
    narrow = next(
        operator
        for operator in source.operators
        if operator.parallelism != 4 and not operator.operator_states and not operator.keyed_handles
    )
    edit = edit_savepoint(source).merge_operators(
        OperatorIdentifier(wide.operator_id), OperatorIdentifier(narrow.operator_id)
    )
    merged = Snapshot.load(edit.write(tmp_path / "merged")).operator(
        OperatorIdentifier(narrow.operator_id)
    )
    assert lists
    assert merged.parallelism == narrow.parallelism
    for name in lists:
        assert merged.list(name) == wide.list(name)


def test_a_changed_operator_is_whole_in_the_result(tmp_path: Path) -> None:
    """The source may go: nothing of the result points at it."""
    source = golden("a-hashmap-canonical-files")
    edit = edit_savepoint(source).split_operator(UID("a-keyed"), UID("apart"), ["cnt"])
    edit = edit.change_operator_identifier(UID("apart"), UID("renamed"))
    out = edit.write(tmp_path / "out")
    assert edit.plan()[-1]["action"] == "split"
    moved = (tmp_path / "out").rename(tmp_path / "elsewhere")
    assert len(list(Snapshot.load(moved)["renamed"].dump("cnt"))) == len(
        list(source["a-keyed"].dump("cnt"))
    )
    assert out.endswith("out")


def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    source = golden("f-two-ops-hashmap")
    edit = edit_savepoint(source)
    one, other = (
        OperatorIdentifier(operator.operator_id)
        for operator in source.operators
        if operator.keyed_handles
    )
    third = next(
        OperatorIdentifier(operator.operator_id)
        for operator in source.operators
        if not operator.keyed_handles
    )
    with pytest.raises(NoSuchStateError, match="'nothing' is not in operator"):
        edit.split_operator(one, UID("new"), ["nothing"])
    with pytest.raises(SavepointError, match="already contains"):
        edit.split_operator(one, other, ["cnt"])
    with pytest.raises(SavepointError, match="No state"):
        edit.split_operator(one, UID("new"), [])
    with pytest.raises(NoSuchOperatorError):
        edit.merge_operators(one, UID("nobody"))
    apart = edit.split_operator(one, UID("new"), ["cnt"])
    with pytest.raises(SavepointError, match=r"State 'cnt' of operator .* is moved twice"):
        apart.split_operator(one, UID("another"), ["names", "cnt"])
    with pytest.raises(SavepointError, match="is merged twice"):
        edit.merge_operators(one, other).merge_operators(one, third)
    with pytest.raises(SavepointError, match="with itself"):
        edit.merge_operators(one, one)
    with pytest.raises(SavepointError, match="both have a state 'agg'"):
        edit.merge_operators(one, other).write(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_timers_of_one_service_become_one_queue(tmp_path: Path) -> None:
    source = golden("f-two-ops-hashmap")
    one, other = (
        OperatorIdentifier(operator.operator_id)
        for operator in source.operators
        if operator.keyed_handles
    )
    names = ["agg", "cnt", "m", "names", "red"]
    edit = (
        edit_savepoint(source).split_operator(one, UID("apart"), names).merge_operators(one, other)
    )
    merged = Snapshot.load(edit.write(tmp_path / "out"))
    timers = [
        {**line, "op": ""}
        for source_operator in (one, other)
        for line in source.operator(source_operator).dump()
        if "ts" in line and line["kind"].endswith("timer")
    ]
    timers_written = [
        line for line in merged.operator(other).dump() if line["kind"].endswith("timer")
    ]
    assert {str(line) for line in ({**each, "op": ""} for each in timers_written)} == {
        str(line) for line in timers
    }
    assert len(list(merged["apart"].dump())) == sum(
        not line["kind"].endswith("timer") for line in source.operator(one).dump()
    )


def test_an_operator_that_states_were_moved_to_is_not_removed() -> None:
    source = golden(FORMS[0])
    split = edit_savepoint(source).split_operator(UID("a-keyed"), UID("apart"), ["cnt"])
    with pytest.raises(SavepointError, match="after states were moved to it"):
        split.remove_operator(UID("apart"))


@pytest.mark.parametrize("first", ["split", "remove"])
def test_of_an_operator_that_is_removed_the_states_that_were_moved_stay(
    tmp_path: Path, first: str
) -> None:
    edit = edit_savepoint(golden(FORMS[0]))
    if first == "remove":
        edit = edit.remove_operator(UID("a-keyed"))
    edit = edit.split_operator(UID("a-keyed"), UID("apart"), ["cnt"])
    if first == "split":
        edit = edit.remove_operator(UID("a-keyed"))
    expected = [
        line
        for line in of_operator(golden(FORMS[0]), "a-keyed", "apart")
        if line.get("state") == "cnt"
    ]
    edited = Snapshot.load(edit.write(tmp_path / "out"))
    assert {each.label for each in edited.operators} == {"apart", "sink", "src"}
    assert as_lines(edited["apart"].dump()) == as_lines(expected)


def test_a_plan_keeps_no_operator_that_is_merged_into_another() -> None:
    edit = edit_savepoint(golden(FORMS[0])).merge_operators(UID("src"), UID("sink"))
    steps = [(line["operator"], line["action"]) for line in edit.plan()]
    assert sorted(steps) == [
        ("a-keyed", "keep"),
        ("sink", "keep"),
        ("src", "merge"),
    ]


def test_equal_timers_of_two_operators_become_one(tmp_path: Path) -> None:
    service = StateMetaInfoSnapshot.priority_queue(
        EVENT_TIMERS, TimerSerializer(Types.STRING, VoidNamespaceSerializer())
    )
    encoder = KeyedStateEncoder(Types.STRING, [service], 128)
    folder = SavepointFolder(tmp_path / "in")
    operators = []
    for uid, times in (("one", [5, 6]), ("other", [6, 7])):
        rows = pa.table({"state_key": ["k"], EVENT_TIMERS: pa.array([times])})
        with KeyedSections(encoder.header, encoder.key_groups, 128) as sections:
            for runs in encoder.encode_keyed(rows):
                sections.add(runs)
            handle = folder.add_keyed_stream(sections.stream())
        subtask = OperatorSubtaskState(0, managed_keyed_state=handle)
        operators.append(OperatorState(OperatorID.for_uid(uid), 1, 128, (subtask,), uid=uid))
    folder.publish(CheckpointMetadata(3, 1, tuple(operators)), {})

    edit = edit_savepoint(Snapshot.load(tmp_path / "in")).merge_operators(UID("other"), UID("one"))
    merged = Snapshot.load(edit.write(tmp_path / "out"))["one"]
    stored = [row for batch in merged.flat(EVENT_TIMERS).read() for row in batch.to_pylist()]
    assert sorted(row["timestamp"] for row in stored) == [5, 6, 7]
