"""Timers that RocksDB leaves on the heap: raw keyed state of checkpoints, queues of savepoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, edit_savepoint, rewrite_savepoint
from dstl_core.checkpoint.store.metadata_file import publish_metadata_file
from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.serializers import (
    AnySerializer,
    Types,
    VoidNamespaceSerializer,
    serialize_to_bytes,
)
from dstl_core.codec.serializers.base import write_snapshot
from dstl_core.codec.serializers.window_types import TimeWindow, TimeWindowSerializer
from dstl_core.errors import SavepointError
from dstl_core.functions import KeyedStateReaderFunction
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsStateHandle,
)
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.model.key_group import KeyGroupRange, assign_to_key_group
from dstl_core.savepoint.compare.diff import diff_snapshots
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.read import entry_reader, keyed_copy, stored_records, timer_queues
from dstl_core.savepoint.read.function_reader import read_keys
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.read.snapshot_tables import open_table
from dstl_core.savepoint.read.table_base import TableOptions
from dstl_core.savepoint.read.timer_queues import with_timer_queues
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from tests.command_line import run
from tests.golden_files import as_lines, snapshot
from tests.kernel_sizes import NEVER, kernels_from
from tests.unit.codec.java_bytes import i32, i64, utf

__all__ = ["run"]
CHECKPOINT = "a-rocksdb-heaptimers-checkpoint"
SAVEPOINT = "a-rocksdb-heaptimers-canonical"
EVENT_TIMERS = "_timer_state/event_user-timers"
PROCESSING_TIMERS = "_timer_state/processing_user-timers"
QUEUES = (EVENT_TIMERS, PROCESSING_TIMERS)


GROUP_OF_A = assign_to_key_group(Types.STRING.java_hash("a"), 128)


def golden(name: str) -> Snapshot:
    return Snapshot.load(snapshot(name))


def lines(loaded: Snapshot, uid: str = "a-keyed") -> Iterator[dict[str, Any]]:
    return loaded[uid].dump()


def of_any_key_group(entries: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return ({**each, "kg": 0} for each in entries)


def test_they_become_what_flinks_own_savepoint_of_the_job_has(tmp_path: Path) -> None:
    rewrite_savepoint(golden(CHECKPOINT), tmp_path / "out")
    written, expected = Snapshot.load(tmp_path / "out"), golden(SAVEPOINT)
    assert [each.meta for each in written["a-keyed"].states] == [
        state.meta for state in expected["a-keyed"].states
    ]
    assert (
        as_lines(lines(written)) == as_lines(lines(expected)) == as_lines(lines(golden(CHECKPOINT)))
    )
    assert sum(each["kind"].endswith("timer") for each in lines(written)) == 217
    assert {each.raw_keyed_state for each in written["a-keyed"].state.subtasks} == {None}
    assert written["a-keyed"].form() == "canonical"


def test_they_stay_on_the_heap_in_native_form(tmp_path: Path, run: Any) -> None:
    """A job with timers on the heap finds none in RocksDB's files, and Flink says no word."""
    source = str(snapshot(CHECKPOINT))
    code, printed, error = run("rewrite", source, str(tmp_path), "--format=native", "--dry-run")
    assert (code, error) == (0, "")
    assert "the timers of a-keyed stay on the heap, and restore in both places" in printed


def copied(out: Path) -> None:
    edit_savepoint(golden(CHECKPOINT)).with_format("native").with_files("copy").write(out)


def rescaled(out: Path) -> None:
    rewrite_savepoint(golden(CHECKPOINT), out, max_parallelism=17, format="native")


def purged(out: Path) -> None:
    gone = {"a-keyed": ["key-24"]}
    rewrite_savepoint(golden(CHECKPOINT), out, erase_keys=gone, format="native", files="copy")


def purged_in_its_form(out: Path) -> None:
    rewrite_savepoint(golden(CHECKPOINT), out, erase_keys={"a-keyed": ["key-24"]}, files="copy")
    assert Snapshot.load(out)["a-keyed"].form() == "rocksdb files"


def divided(out: Path) -> None:
    split = {("a-keyed", "by-event"): [EVENT_TIMERS]}
    rewrite_savepoint(golden(CHECKPOINT), out, split=split, format="native")


def merged(out: Path) -> None:
    divided(out.with_name("parts"))
    source = Snapshot.load(out.with_name("parts"))
    rewrite_savepoint(source, out, merge={"by-event": "a-keyed"}, format="native")


def upgraded(out: Path) -> None:
    place = Location.parse(out.with_name("of Flink 1"))
    metadata = replace(golden(CHECKPOINT).metadata, version=4)
    publish_metadata_file(open_file_io(place), place, metadata, {})
    source = Snapshot.load(place.path, allow_roots=[snapshot(CHECKPOINT)])
    SavepointUpgrade(source, format="native", files="canonical").write(out)


def migrated(out: Path) -> None:
    declared = Migration.of({"migration": 1, "operators": {}})
    SavepointMigration(declared, golden(CHECKPOINT), format="native", recompute=1).write(out)


@pytest.mark.slow
@pytest.mark.parametrize(
    "write", [copied, rescaled, purged, purged_in_its_form, divided, merged, upgraded, migrated]
)
def test_every_native_writer_leaves_them_on_the_heap(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    write(tmp_path / "out")
    written = Snapshot.load(tmp_path / "out")
    operators = [own for own in written.operators if own.label in ("a-keyed", "by-event")]
    queues = {info.name for own in operators for info in own.states} & {*QUEUES}
    dumped = [{**line, "op": "a-keyed"} for own in operators for line in lines(written, own.label)]
    left = [
        line
        for line in lines(golden(SAVEPOINT))
        if write not in (purged, purged_in_its_form) or line["key"] != "key-24"
    ]
    assert queues == set()
    assert as_lines(of_any_key_group(dumped)) == as_lines(of_any_key_group(left))
    assert verify_snapshot(written).findings == []


@pytest.mark.parametrize("other", [SAVEPOINT, CHECKPOINT, "rewritten"])
def test_both_forms_of_them_compare_equal(tmp_path: Path, other: str) -> None:
    source = golden(CHECKPOINT)
    if other == "rewritten":
        compared = Snapshot.load(rewrite_savepoint(source, tmp_path / "out"))
    else:
        compared = golden(other)
    assert list(diff_snapshots(source, compared)) == []


def test_they_go_where_the_keys_go(tmp_path: Path) -> None:
    rewrite_savepoint(golden(CHECKPOINT), tmp_path / "out", max_parallelism=17)
    dumped = list(lines(Snapshot.load(tmp_path / "out")))
    assert as_lines(of_any_key_group(dumped)) == as_lines(
        of_any_key_group(lines(golden(SAVEPOINT)))
    )
    assert {each["kg"] for each in dumped if "timer" in each["kind"]} <= set(range(17))


def test_they_can_be_split_off_like_any_state(tmp_path: Path) -> None:
    split = {("a-keyed", "by-event"): [EVENT_TIMERS]}
    rewrite_savepoint(golden(CHECKPOINT), tmp_path / "out", split=split)
    edited = Snapshot.load(tmp_path / "out")
    assert [each.name for each in edited["by-event"].states] == [EVENT_TIMERS]
    assert PROCESSING_TIMERS in [each.name for each in edited["a-keyed"].states]
    both = [*lines(edited), *({**each, "op": "a-keyed"} for each in lines(edited, "by-event"))]
    assert as_lines(both) == as_lines(lines(golden(SAVEPOINT)))


class Times(KeyedStateReaderFunction):
    """The timers of every key."""

    def read_key(self, key: Any, context: Any) -> Iterator[Any]:
        yield (
            key,
            context.registered_event_time_timers(),
            context.registered_processing_time_timers(),
        )


def test_they_are_states_of_an_operator_whose_states_were_read_before() -> None:
    operator = golden(CHECKPOINT)["a-keyed"]
    before = {state.name for state in operator.states}
    after = {state.name for state in with_timer_queues(operator).states}
    assert after - before == {EVENT_TIMERS, PROCESSING_TIMERS}


def test_a_reader_function_is_given_them() -> None:
    every = KeyGroupRange(0, 127)
    read, expected = (
        sorted(
            (key, sorted(event), sorted(processing))
            for key, event, processing in read_keys(golden(name)["a-keyed"], every, Times())
        )
        for name in (CHECKPOINT, SAVEPOINT)
    )
    assert read == expected
    assert any(event and processing for _, event, processing in read)


def rows_of(name: str, **options: Any) -> list[str]:
    """One row per key, with the timers of each, over two ranges of key groups."""
    table = open_table(golden(name)["a-keyed"], "keyed", None, TableOptions(**options))
    batches = [batch for split in ((0, 40), (41, 127)) for batch in table.read(split)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    for row in rows:
        for unordered in {"m", "event_time_timers", "processing_time_timers"} & row.keys():
            row[unordered] = sorted(row[unordered] or ())
    return sorted(map(repr, rows))


@pytest.mark.slow
@pytest.mark.parametrize("keys", [None, ("key-24", "key-10", "nobody")])
@pytest.mark.parametrize("at_once", [16 << 20, 1000])
def test_they_are_columns_of_their_keys(
    monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...] | None, at_once: int
) -> None:
    monkeypatch.setattr(keyed_copy, "BYTES_AT_ONCE", at_once)
    rows, expected = (rows_of(name, keys=keys) for name in (CHECKPOINT, SAVEPOINT))
    assert rows == expected
    assert len(rows) == (36 if keys is None else 2)
    assert all("'event_time_timers': [" in row for row in rows)
    without = rows_of(CHECKPOINT, keys=keys, timers=False)
    assert not any("timers" in row for row in without)


def test_a_service_of_them_is_a_flat_table() -> None:
    rows, expected = (
        sorted(
            repr(row)
            for batch in golden(name)["a-keyed"].flat(EVENT_TIMERS).read()
            for row in batch.to_pylist()
        )
        for name in (CHECKPOINT, SAVEPOINT)
    )
    assert rows == expected
    assert len(rows) > 100
    table = open_table(golden(CHECKPOINT)["a-keyed"], None, EVENT_TIMERS, TableOptions())
    assert sum(batch.num_rows for batch in table.read((0, 127))) == len(rows)


# ---------------------------------------------------------------------------------- by columns


def queues_of(operator: OperatorSnapshot) -> list[tuple[bytes, KeyGroupRangeOffsets]]:
    """The stream of each subtask with timers, and its offsets."""
    queues = with_timer_queues(operator).timer_queues
    return [(own.stream.data, own.offsets) for own in queues]


def with_kernels(read: Callable[[], Any], size: int = 0) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        kernels_from(patch, size)
        return read()


def both_ways(operator: OperatorSnapshot) -> tuple[Any, Any]:
    """The queues of an operator, or why there are none: by kernels and record by record."""

    def queues() -> Any:
        try:
            return queues_of(operator)
        except SavepointError as error:
            return str(error)

    return with_kernels(queues), with_kernels(queues, NEVER)


def test_kernels_give_the_same_bytes() -> None:
    by_kernels, by_records = both_ways(golden(CHECKPOINT)["a-keyed"])
    assert by_kernels == by_records
    assert sum(len(stream) for stream, _ in by_kernels) > 4000


def test_kernels_read_what_they_can(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("timers are read record by record")

    monkeypatch.setattr(timer_queues, "read_raw_timers", refused)
    monkeypatch.setattr(entry_reader, "read_raw_timers", refused)
    kernels_from(monkeypatch, 0)
    copied(tmp_path / "out")
    assert verify_snapshot(Snapshot.load(tmp_path / "out")).findings == []


def service_of_many() -> bytes:
    """A key group with two services: windows in both domains with a timer twice, and an empty
    one.
    """
    window = TimeWindowSerializer()
    first, last = TimeWindow(0, 10), TimeWindow(-10, 0)
    windows = service("windows", window, [("a", first, 9), ("a", last, -1), ("a", first, 9)])
    nothing = service("none", VoidNamespaceSerializer(), [])
    return bytes.fromhex("f1cd859f") + i32(2, 2) + windows + nothing


def test_kernels_refuse_damage_with_the_same_words(tmp_path: Path) -> None:
    whole, every = service_of_many(), KeyGroupRange(0, 127)
    timers = whole.index(serialize_to_bytes(Types.STRING, "a") + i64(0))
    damaged = [whole, whole + b"\0", *(whole[:end] for end in range(timers - 4, len(whole)))]
    flipped = range(timers - 4, whole.index(b"none") - 2)
    damaged += [whole[:at] + bytes((whole[at] ^ 0x81,)) + whole[at + 1 :] for at in flipped]
    refused = 0
    for number, raw in enumerate(damaged):
        groups = {3: whole, 7: raw}
        folder = tmp_path / str(number)
        source = with_raw_state("a-hashmap-canonical", "src", every, groups, folder)["src"]
        by_kernels, by_records = both_ways(source)
        assert by_kernels == by_records
        refused += isinstance(by_kernels, str)
    assert len(whole) - timers < refused < len(damaged)


@pytest.mark.parametrize("is_twice", [False, True])
def test_kernels_keep_the_order_of_services(tmp_path: Path, *, is_twice: bool) -> None:
    void = VoidNamespaceSerializer()
    of_a, of_b = (service(name, void, [("a", None, 7)]) for name in ("a", "b"))
    header = bytes.fromhex("f1cd859f")
    raw = {
        3: header + i32(2, 1) + of_b,
        4: header + i32(2, 2) + of_a + (of_a if is_twice else of_b),
        5: header + i32(2, 0),
    }
    every = KeyGroupRange(0, 127)
    source = with_raw_state("a-hashmap-canonical", "src", every, raw, tmp_path / "in")["src"]
    by_kernels, by_records = both_ways(source)
    [(stream, _)] = by_kernels
    assert by_kernels == by_records
    assert stream.index(b"event_b") < stream.index(b"event_a")


@pytest.mark.parametrize("key_group", [7, GROUP_OF_A])
def test_verify_says_the_same_of_them_by_kernels(tmp_path: Path, key_group: int) -> None:
    every = KeyGroupRange(0, 127)
    timers = service("user-timers", VoidNamespaceSerializer(), [("a", None, 7), ("a", None, 8)])
    raw = {key_group: bytes.fromhex("f1cd859f") + i32(2, 1) + timers}
    source = with_raw_state("a-hashmap-canonical", "src", every, raw, tmp_path / "in")
    by_kernels, by_records = (
        with_kernels(lambda: verify_snapshot(source), size) for size in (0, NEVER)
    )
    assert by_kernels.findings == by_records.findings
    assert by_kernels.records == by_records.records
    assert by_kernels.keys_checked == by_records.keys_checked
    assert by_kernels.records["src", "_timer_state/event_user-timers"] == 2
    assert (by_kernels.findings == []) is (key_group == GROUP_OF_A)


# ------------------------------------------------------------------------------- made by hand


def service(name: str, namespace: AnySerializer, timers: list[tuple[str, Any, int]]) -> bytes:
    """Event-time timers of one service: ``(key, namespace, time)``; none of the clock."""
    types = DataOutput()
    write_snapshot(types, Types.STRING)
    write_snapshot(types, namespace)
    stored = (
        serialize_to_bytes(Types.STRING, key) + serialize_to_bytes(namespace, where) + i64(time)
        for key, where, time in timers
    )
    return utf(name) + types.to_bytes() + i32(len(timers)) + b"".join(stored) + i32(0)


def with_raw_state(
    name: str, uid: str, key_groups: KeyGroupRange, raw: Mapping[int, bytes], folder: Path
) -> Snapshot:
    """A fixture whose operator has one subtask, with raw keyed state beside its own."""
    before = golden(name)
    own = before[uid].state
    offsets, stream = [], b""
    for key_group in key_groups:
        offsets.append(len(stream) if key_group in raw else -1)
        stream += raw.get(key_group, b"")
    handle = KeyGroupsStateHandle(
        KeyGroupRangeOffsets(key_groups, tuple(offsets)),
        ByteStreamStateHandle("raw", stream),
        "raw",
    )
    subtasks = own.subtasks or (OperatorSubtaskState(0),)
    subtasks = (replace(subtasks[0], raw_keyed_state=handle), *subtasks[1:])
    operators = tuple(
        replace(operator, subtasks=subtasks)
        if operator.operator_id == own.operator_id
        else operator
        for operator in before.metadata.operators
    )
    place = Location.parse(folder)
    metadata = replace(before.metadata, operators=operators)
    publish_metadata_file(open_file_io(place), place, metadata, {})
    return Snapshot.load(folder)


def test_an_operator_of_nothing_but_timers_gets_a_queue_for_every_service(tmp_path: Path) -> None:
    window = TimeWindowSerializer()
    first, last = TimeWindow(0, 10), TimeWindow(-10, 0)
    void = VoidNamespaceSerializer()
    raw: dict[int, bytes] = {}
    for key in ("a", "b"):
        # The order of the services is another one in every key group.
        services = [
            service("windows", window, [(key, first, 9), (key, last, -1), (key, first, 9)]),
            service("user-timers", void, [(key, None, 7)]),
        ]
        body = b"".join(services if key == "a" else reversed(services))
        key_group = assign_to_key_group(Types.STRING.java_hash(key), 128)
        raw[key_group] = bytes.fromhex("f1cd859f") + i32(2, 2) + body
    name = "a-hashmap-canonical"
    source = with_raw_state(name, "src", KeyGroupRange(0, 127), raw, tmp_path / "in")

    rewrite_savepoint(source, tmp_path / "out", max_parallelism=64)
    operator = Snapshot.load(tmp_path / "out")["src"]

    assert [each.name for each in operator.states] == [
        "_timer_state/event_user-timers",
        "_timer_state/event_windows",
        "_timer_state/processing_user-timers",
        "_timer_state/processing_windows",
    ]
    columns = source["src"].flat("_timer_state/event_windows").read()
    assert sum(batch.num_rows for batch in columns) == 4
    keyed = open_table(source["src"], "keyed", None, TableOptions())
    rows = [row for batch in keyed.read((0, 127)) for row in batch.to_pylist()]
    assert sorted((row["state_key"], row["event_time_timers"]) for row in rows) == [
        ("a", [7]),
        ("b", [7]),
    ]

    timers = sorted((each.service, each.key, each.timestamp) for each in operator.timer_entries())
    assert timers == [
        ("user-timers", "a", 7),
        ("user-timers", "b", 7),
        ("windows", "a", -1),
        ("windows", "a", 9),
        ("windows", "b", -1),
        ("windows", "b", 9),
    ]
    namespaces = {each.namespace for each in operator.timer_entries() if each.service == "windows"}
    assert namespaces == {first, last}


@pytest.mark.parametrize("form", ["canonical", "native"])
def test_keys_go_from_an_operator_of_nothing_but_timers(
    tmp_path: Path, run: Any, form: str
) -> None:
    raw = {
        assign_to_key_group(Types.STRING.java_hash(key), 128): bytes.fromhex("f1cd859f")
        + i32(2, 1)
        + service("user-timers", VoidNamespaceSerializer(), [(key, None, 7)])
        for key in ("a", "b")
    }
    source = with_raw_state(
        "a-hashmap-canonical", "src", KeyGroupRange(0, 127), raw, tmp_path / "in"
    )
    (tmp_path / "keys").write_text("a")
    options = ["--erase-keys", str(tmp_path / "keys"), "--format", form]
    code, _, error = run("rewrite", str(source.folder), str(tmp_path / "out"), *options)
    assert (code, error) == (0, "")
    operator = Snapshot.load(tmp_path / "out")["src"]
    assert [(each.key, each.timestamp) for each in operator.timer_entries()] == [("b", 7)]


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"bytes of the job", "does not hold timers"),
        (bytes.fromhex("f1cd859f") + i32(3, 0), "Raw timers of this version"),
    ],
)
def test_other_raw_state_is_refused_before_anything_is_written(
    tmp_path: Path, raw: bytes, problem: str
) -> None:
    name = "a-hashmap-canonical"
    source = with_raw_state(name, "a-keyed", KeyGroupRange(0, 63), {5: raw}, tmp_path / "in")
    with pytest.raises(SavepointError, match=rf"'a-keyed' has raw keyed state .*{problem}"):
        rewrite_savepoint(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    rewrite_savepoint(source, tmp_path / "out", remove=["a-keyed"])
    assert [each.label for each in Snapshot.load(tmp_path / "out").operators] == ["sink", "src"]
    # Who reads it is not kept from the rest.
    every = KeyGroupRange(0, 127)
    timers, expected = (
        list(read_keys(loaded["a-keyed"], every, Times())) for loaded in (source, golden(name))
    )
    assert expected
    assert timers == expected


def test_other_raw_state_stays_as_it_is_where_nothing_is_erased(tmp_path: Path, run: Any) -> None:
    raw = {5: b"bytes of the job"}
    every = KeyGroupRange(0, 127)
    source = with_raw_state("a-hashmap-canonical", "src", every, raw, tmp_path / "in")
    out = str(tmp_path / "out")
    code, _, error = run("rewrite", str(source.folder), out, "--copy", "--rename", "src=new")
    assert (code, error) == (0, "")
    [subtask] = Snapshot.load(out)["new"].state.subtasks
    assert subtask.raw_keyed_state == source["src"].state.subtasks[0].raw_keyed_state


def test_damage_behind_the_first_key_group_is_no_fewer_timers(tmp_path: Path) -> None:
    good = bytes.fromhex("f1cd859f") + i32(2, 1)
    good += service("user-timers", VoidNamespaceSerializer(), [("a", None, 7)])
    raw, every = {3: good, 4: good[:-1]}, KeyGroupRange(0, 127)
    source = with_raw_state("a-hashmap-canonical", "src", every, raw, tmp_path / "in")["src"]
    table = open_table(source, "keyed", None, TableOptions())
    with pytest.raises(SavepointError, match=r"cannot be taken for timers .*ends too early"):
        list(table.read((0, 127)))
    with pytest.raises(SavepointError, match=r"cannot be taken for timers .*ends too early"):
        list(read_keys(source, every, Times()))


def test_many_timers_of_a_key_group_stay_on_the_heap_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key is erased beside a queue that is too large to be held."""
    monkeypatch.setattr(stored_records, "LARGE_BYTES", 100)
    key, every = "k" * 1_000, KeyGroupRange(0, 127)
    timers = [(key, None, time) for time in range(9_000)]
    raw = service("user-timers", VoidNamespaceSerializer(), timers)
    group = assign_to_key_group(Types.STRING.java_hash(key), 128)
    groups = {group: bytes.fromhex("f1cd859f") + i32(2, 1) + raw}
    source = with_raw_state("a-hashmap-canonical", "src", every, groups, tmp_path / "in")
    edit = edit_savepoint(source).with_files("copy")
    edit.erase_keys(OperatorIdentifier(source["src"].operator_id), ["b"]).write(tmp_path / "out")
    after = Snapshot.load(tmp_path / "out")
    assert queues_of(after["src"]) == queues_of(source["src"])
    assert len(queues_of(after["src"])[0][0]) > 9_000_000
