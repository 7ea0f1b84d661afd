"""What the commands print is what the schemas in docs/formats say; changelog and verify."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dstl_core import Snapshot
from dstl_core.checkpoint.store.metadata_file import publish_metadata_file
from dstl_core.codec.keyed_canonical import write_canonical_stream, write_section
from dstl_core.codec.serializers import Types
from dstl_core.codec.state_meta import KeyedBackendHeader, KeyedStateType, StateMetaInfoSnapshot
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import ByteStreamStateHandle, KeyGroupsSavepointStateHandle
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.access.column_lines import ColumnLines
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from tests.command_line import run
from tests.golden_files import GOLDEN, SNAPSHOTS, Fixture, as_lines, snapshot
from tests.kernel_sizes import NEVER, kernels_from
from tests.unit.codec.java_bytes import i64

FORMATS = Path(__file__).parents[2] / "docs" / "formats"

Run = Callable[..., tuple[int, str, str]]


def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((FORMATS / f"{name}.schema.json").read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


__all__ = ["run"]
DUMP = validator("dump")


# ------------------------------------------------------------------------------------ schemas


def test_every_schema_refuses_something_else() -> None:
    for path in FORMATS.iterdir():
        check = validator(path.name.removesuffix(".schema.json"))
        assert not check.is_valid({"op": "x"})
        assert not check.is_valid([])


@pytest.mark.slow
@pytest.mark.parametrize("fixture", SNAPSHOTS, ids=str)
def test_what_flink_wrote_is_printed_by_the_schemas_and_has_no_problems(
    run: Run, fixture: Fixture
) -> None:
    path = str(fixture.snapshot)
    code, dumped, _ = run("dump", path, "--opaque")
    assert code == 0
    for line in some_of_each_state(dumped):
        DUMP.validate(line)
    validator("inspect").validate(json.loads(run("inspect", path, "--json")[1]))
    changelog = validator("changelog")
    code, changes, err = run("changelog", path)
    assert (code, err) == (0, "") or "has no changelog" in err
    for line in some_of_each_state(changes):
        changelog.validate(line)
    code, out, err = run("verify", path, "--json")
    report = json.loads(out)
    validator("verify").validate(report)
    assert (code, err, report["findings"]) == (0, "", [])
    keyed = [entry for entry in fixture.truth if not entry["kind"].startswith("op-")]
    unknown = [entry for entry in keyed if entry["op"] == "k-pojo"]
    assert report["keys_checked"] == len(keyed) + len(fixture.unreadable) - len(unknown)
    notes = "\n".join(report["notes"])
    assert bool(notes) == bool(unknown or fixture.unreadable)
    assert all(f"state {entry['state']!r}" in notes for entry in fixture.unreadable)
    assert report["entries"] == len(dumped.splitlines())


def some_of_each_state(out: str, most: int = 20) -> list[dict[str, Any]]:
    """The first lines of each operator, state and kind: their form is that of all others."""
    return some_of_each(map(json.loads, out.splitlines()), most)


def some_of_each(every: Iterable[dict[str, Any]], most: int = 20) -> list[dict[str, Any]]:
    seen: Counter[tuple[object, ...]] = Counter()
    lines = []
    for line in every:
        place = tuple(
            str(line.get(name)) for name in ("op", "state", "kind", "operation", "change")
        )
        seen[place] += 1
        if seen[place] <= most:
            lines.append(line)
    return lines


@pytest.mark.slow
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("a-hashmap-canonical", "f-two-ops-hashmap"),
        ("a-hashmap-canonical", "e-ttl-hashmap"),
        ("c-opstate-hashmap", "d-windows-hashmap"),
        ("d-windows-hashmap", "b-types-hashmap"),
        ("o-windows-more-changelog", "x-kryo-hashmap"),
    ],
)
def test_output_of_diff_is_valid(run: Run, a: str, b: str) -> None:
    code, out, err = run("diff", str(snapshot(a)), str(snapshot(b)), "--json")
    assert (code, err) == (1, "")
    check = validator("diff")
    lines = some_of_each_state(out)
    assert lines
    for line in lines:
        check.validate(line)


def test_a_changed_value_is_valid(run: Run, tmp_path: Path) -> None:
    other = (RIGHT[0], i64(2))
    a = publish(tmp_path / "a", subtask(0, {81: [RIGHT]}, ALL))
    b = publish(tmp_path / "b", subtask(0, {81: [other]}, ALL))
    _, out, _ = run("diff", a, b, "--json")
    line = json.loads(out)
    validator("diff").validate(line)
    assert (line["change"], line["before"], line["after"]) == ("changed", 1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("fixture", SNAPSHOTS, ids=str)
def test_columns_print_and_check_the_same(
    run: Run, monkeypatch: pytest.MonkeyPatch, fixture: Fixture
) -> None:
    path = str(fixture.snapshot)
    kernels_from(monkeypatch, NEVER)
    dumped, checked = run("dump", path), run("verify", path, "--json")
    kernels_from(monkeypatch, 0)
    assert run("verify", path, "--json") == checked
    code, out, err = run("dump", path)
    assert (code, err) == (dumped[0], dumped[2])
    # A replayed log leaves the entries of a key group in an order of its own.
    assert sorted(out.splitlines()) == sorted(dumped[1].splitlines())


@pytest.mark.parametrize(
    "name",
    ["a-hashmap-canonical", "a-hashmap-native", "a-hashmap-changelog-multi", "o-finished-keyed"],
)
def test_plain_types_are_printed_by_columns(name: str) -> None:
    for operator in Snapshot.load(snapshot(name)).operators:
        lines = ColumnLines(operator, None)
        for handle, key_groups in operator.entries().keyed_ranges():
            assert lines.lines(handle, key_groups) is not None


@pytest.mark.slow
@pytest.mark.parametrize("fixture", SNAPSHOTS, ids=str)
def test_truth_is_valid_too(fixture: Fixture) -> None:
    for entry in some_of_each(fixture.truth):
        DUMP.validate(entry)


# ---------------------------------------------------------------------------------- changelog


def replayed(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The values, reducing results and lists that remain after the changes, found from the printed
    lines alone.
    """
    kinds = {"cnt": "value", "red": "reducing", "agg": "aggregating", "names": "list", "m": "map"}
    state: dict[tuple[str, str], Any] = {}
    groups: dict[str, int] = {}
    for line in lines:
        name, operation, value = line["state"], line["operation"], line["value"]
        if name not in kinds or operation == "METADATA":
            continue
        place = (name, line["key"])
        groups[line["key"]] = line["kg"]
        if operation in ("SET", "SET_INTERNAL"):
            state[place] = value
        elif operation == "ADD_ELEMENT":
            state.setdefault(place, []).append(value)
        elif operation == "ADD_OR_UPDATE_ELEMENT":
            state.setdefault(place, {})[value[0]] = value[1]
        elif operation == "REMOVE_ELEMENT":
            state.get(place, {}).pop(value, None)
        else:
            assert operation == "CLEAR"
            state.pop(place, None)
    return [
        {
            "op": "a-keyed",
            "kind": kinds[name],
            "state": name,
            "key": key,
            "kg": groups[key],
            "ns": None,
            "value": sorted(map(list, value.items())) if name == "m" else value,
        }
        for (name, key), value in state.items()
        if value != {}
    ]


@pytest.mark.parametrize(
    "name",
    [
        "a-hashmap-changelog-checkpoint-files",
        "a-hashmap-changelog-compressed",
        "a-hashmap-changelog-multi",
    ],
)
def test_the_printed_changes_add_up_to_what_flink_restored(run: Run, name: str) -> None:
    code, out, err = run("changelog", str(snapshot(name)))
    assert (code, err) == (0, "")
    lines = [json.loads(line) for line in out.splitlines()]
    [fixture] = [each for each in SNAPSHOTS if each.name == name]
    expected = [entry for entry in fixture.truth if "timer" not in entry["kind"]]
    assert as_lines(replayed(lines)) == as_lines(expected)
    # Sequence numbers rise within a subtask, metadata comes before its first use.
    for subtask in {line["subtask"] for line in lines}:
        own = [line for line in lines if line["subtask"] == subtask]
        assert [line["sqn"] for line in own] == sorted(line["sqn"] for line in own)
        described: set[str] = set()
        for line in own:
            if line["operation"] == "METADATA":
                described.add(line["state"])
            assert line["state"] in described


def test_timers_in_the_changelog(run: Run) -> None:
    path = str(snapshot("a-hashmap-changelog-multi"))
    service = "_timer_state/event_user-timers"
    code, out, _ = run("changelog", path, "--op", "a-keyed", "--state", service)
    assert code == 0
    timers: Counter[str] = Counter()
    for line in map(json.loads, out.splitlines()):
        assert line["state"] == service
        if line["operation"] == "ADD_ELEMENT":
            timers.update(json.dumps(timer) for timer in line["value"])
    [fixture] = [each for each in SNAPSHOTS if each.name == "a-hashmap-changelog-multi"]
    assert set(timers) == {
        json.dumps({"ts": entry["ts"], "key": entry["key"], "ns": None})
        for entry in fixture.truth
        if entry["kind"] == "event-timer"
    }


def test_a_snapshot_without_a_changelog(run: Run) -> None:
    code, out, err = run("changelog", str(snapshot("a-hashmap-canonical")))
    assert (code, out) == (0, "")
    assert " has no changelog: " in err


# ------------------------------------------------------------------------------------- verify


def test_the_text_of_verify_says_that_there_are_no_problems(run: Run) -> None:
    assert "no problems" in run("verify", str(snapshot("a-hashmap-canonical")))[1]


def test_values_of_classes_are_checked_with_the_jar_and_noted_without_it(run: Run) -> None:
    job = GOLDEN / "upgrade-jobs" / "registered"
    [path] = job.glob("savepoint-*")
    code, out, _ = run("verify", str(path))
    assert code == 0
    assert "state 'parts': values are not checked (Class registered." in out
    assert "give the job's jar (--jar)" in out
    checked = run("verify", str(path), "--jar", str(job / "job.jar"))
    assert (checked[0], checked[2]) == (0, "")
    assert "note:" not in checked[1]
    assert checked[1].splitlines()[-1] == out.splitlines()[-1]


VALUE = StateMetaInfoSnapshot.key_value("count", KeyedStateType.VALUE, Types.LONG)


def publish(folder: Path, *subtasks: OperatorSubtaskState, parallelism: int = 1) -> str:
    operator = OperatorState(OperatorID.for_uid("op"), parallelism, 128, subtasks, uid="op")
    location = Location.parse(folder)
    metadata = CheckpointMetadata(3, 1, (operator,))
    publish_metadata_file(open_file_io(location), location, metadata, {})
    return str(folder)


def subtask(
    index: int, records: dict[int, list[tuple[bytes, bytes]]], groups: KeyGroupRange
) -> OperatorSubtaskState:
    header = KeyedBackendHeader(Types.STRING, (VALUE,))
    sections = {group: write_section([(0, each)]) for group, each in records.items()}
    raw, offsets = write_canonical_stream(header, groups, sections)
    handle = KeyGroupsSavepointStateHandle(offsets, ByteStreamStateHandle(f"h{index}", raw))
    return OperatorSubtaskState(index, managed_keyed_state=handle)


ALL = KeyGroupRange(0, 127)
RIGHT = (b"\x51\x02a\0", i64(1))  # "a" belongs into key group 81


def found(run: Run, path: str) -> list[str]:
    code, out, _ = run("verify", path, "--json")
    report = json.loads(out)
    assert code == (1 if report["findings"] else 0)
    assert report["ok"] == (not report["findings"])
    validator("verify").validate(report)
    return [finding["problem"] for finding in report["findings"]]


def test_a_key_in_a_wrong_key_group(run: Run, tmp_path: Path) -> None:
    path = publish(tmp_path / "s", subtask(0, {5: [(b"\5\2a\0", i64(1))], 81: [RIGHT]}, ALL))
    assert found(run, path) == [
        "a key is in key group 5 but belongs to 81; Flink would never find it"
    ]
    code, out, _ = run("verify", path)
    assert code == 1
    assert "operator 'op', subtask 0, state 'count': a key is in key group 5" in out
    assert "1 problems: 1 operators, 0 files, 2 entries, 2 keys" in out


def test_many_findings_of_a_kind_are_counted(run: Run, tmp_path: Path) -> None:
    wrong = [(b"\5\3a" + bytes((code, 0)), i64(1)) for code in range(0x61, 0x6B)]
    problems = found(run, publish(tmp_path / "s", subtask(0, {5: wrong}, ALL)))
    assert len(problems) == 6
    # One of the ten, "ac", does belong into key group 5.
    assert problems[-1] == "wrong key group: 9 in all"


def test_a_damaged_value_is_found_and_the_rest_is_checked(run: Run, tmp_path: Path) -> None:
    records = {81: [RIGHT], 35: [(b"\x23\x06hello\0", b"\1")]}
    [problem] = found(run, publish(tmp_path / "s", subtask(0, records, ALL)))
    assert problem.startswith("The data ends too early: expected 8 more bytes, got 1, field Long")


def test_a_damaged_key_group_hides_no_other(run: Run, tmp_path: Path) -> None:
    good = subtask(0, {81: [RIGHT], 35: [(b"\x23\x06hello\0", i64(1))]}, ALL)
    handle = good.managed_keyed_state
    assert isinstance(handle, KeyGroupsSavepointStateHandle)
    assert isinstance(handle.stream, ByteStreamStateHandle)
    raw = bytearray(handle.stream.data)
    raw[handle.offsets.offsets[35]] = 9
    stream = ByteStreamStateHandle("h", bytes(raw))
    bad = replace(good, managed_keyed_state=replace(handle, stream=stream))
    path = publish(tmp_path / "s", bad)
    [problem] = found(run, path)
    assert problem.startswith("A state id is not in the header")
    assert json.loads(run("verify", path, "--json")[1])["entries"] == 1


def test_wrong_layouts(run: Run, tmp_path: Path) -> None:
    half = KeyGroupRange(0, 63)
    path = publish(
        tmp_path / "s",
        subtask(0, {}, half),
        subtask(1, {}, half),
        subtask(1, {}, KeyGroupRange(64, 127)),
        OperatorSubtaskState(7),
        parallelism=2,
    )
    assert found(run, path) == [
        "keyed state has the wrong key groups: expected [64, 127], got [0, 63]",
        "a subtask occurs twice",
        "the index of a subtask is outside 0..1",
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        # A moved checkpoint's file is missing at its old place and at its new one.
        (lambda path: path.unlink(), "is "),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "the size of a file differs from"),
        (
            lambda path: path.write_bytes(path.read_bytes() + b"x"),
            "the size of a file differs from",
        ),
    ],
    ids=["missing", "shorter", "longer"],
)
@pytest.mark.parametrize("name", ["a-hashmap-canonical-files", "a-rocksdb-checkpoint-incremental"])
def test_files_that_are_not_what_their_handles_say(
    run: Run, tmp_path: Path, name: str, change: Any, problem: str
) -> None:
    shutil.copytree(snapshot(name).parents[1 if "checkpoint" in name else 0], tmp_path / "copy")
    [metadata] = (tmp_path / "copy").rglob("_metadata")
    if "checkpoint" in name:
        files = sorted((metadata.parents[1] / "shared").iterdir())
    else:
        files = sorted(path for path in metadata.parent.iterdir() if path != metadata)
    change(files[0])
    problems = found(run, str(metadata.parent))
    assert any(problem in each and files[0].name in each for each in problems), problems


def test_values_that_only_java_can_read_are_no_problem(run: Run) -> None:
    path = str(snapshot("x-kryo-hashmap"))
    assert found(run, path) == []
    assert Snapshot.load(path)["with-kryo"].unreadable()
