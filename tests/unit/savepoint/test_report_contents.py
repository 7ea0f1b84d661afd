"""What a report counts: what real Flink restored from the same snapshot, and planted state."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dstl_core import Snapshot
from dstl_core.changelog import FsStateChangelogStorage
from dstl_core.codec.change_payload import StateChangeOperation, data_change, metadata_change
from dstl_core.codec.columnar.keyed.spans import SectionScanner
from dstl_core.codec.metadata.metadata_format import write_metadata
from dstl_core.codec.serializers import (
    MapSerializer,
    TimerSerializer,
    Types,
    VoidNamespaceSerializer,
    serialize_key,
    serialize_to_bytes,
)
from dstl_core.codec.serializers.runtime import TtlSerializer, TtlValue
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.config import ChangelogOptions
from dstl_core.display import size_text
from dstl_core.errors import FormatError
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    KeyedStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    RelativeFileStateHandle,
)
from dstl_core.model.ids import JobID, OperatorID
from dstl_core.model.key_group import KeyGroupRange, assign_to_key_group, key_group_prefix_bytes
from dstl_core.model.sequence import SequenceNumber
from dstl_core.savepoint.compare.diff import count_changes
from dstl_core.savepoint.report.contents import operator_contents
from dstl_core.savepoint.report.count_options import CountOptions
from dstl_core.savepoint.report.figures import bytes_to_read, report_figures
from dstl_core.savepoint.report.page import (
    DETAILED_STATES,
    detailed_states,
    report_page,
    templates,
)
from dstl_core.savepoint.report.value_counts import MAX_WINDOWS, NumberCounts, WindowCounts
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder
from dstl_core.state.columns.keyed_sections import KeyedSections
from dstl_core.storage.file_io import FsspecFileIO
from tests.command_line import run
from tests.golden_files import GOLDEN, PLANTED, Fixture

__all__ = ["run"]

NOON = 1_795_250_644_603
"""A moment between the time stamps of ``e-ttl-hashmap``."""
FORMS = [
    "a-hashmap-canonical-compressed",
    "a-hashmap-native",
    "a-rocksdb-canonical",
    "a-rocksdb-checkpoint-incremental",
    "a-rocksdb-heaptimers-checkpoint",
    "a-rocksdb-changelog-materialized",
    "a-hashmap-changelog-multi",
    "a-rocksdb-p2-max4096",
    "x-lsm-rocksdb-incremental",
    "x-rescaled-rocksdb-incremental",
    "e-ttl-hashmap",
    "o-ttl-maps-rocksdb",
    "o-ttl-maps-changelog",
    "d-windows-hashmap",
    "o-sql-session",
]
FLINK_FORMS = ("canonical", "rocksdb-incremental", "rocksdb-changelog", "hashmap-changelog")
_QUEUES = ("_timer_state/event_", "_timer_state/processing_")
Expected = dict[tuple[str, str, str], list[dict[str, Any]]]


def plain(name: str) -> str:
    for prefix in _QUEUES:
        name = name.removeprefix(prefix)
    return name


def truth_of(fixture: Fixture) -> Expected:
    """Flink's entries by operator, kind and state or timer service."""
    expected: Expected = defaultdict(list)
    for entry in fixture.truth:
        if not entry["kind"].startswith("op-"):
            expected[entry["op"], entry["kind"], entry.get("service") or entry["state"]].append(
                entry
            )
    return expected


def records(entry: dict[str, Any]) -> int:
    return len(entry["value"]) if entry["kind"] == "map" else 1


def stamps(entry: dict[str, Any]) -> list[int]:
    """The time stamps of an entry with a time to live."""
    values = [entry["value"]]
    if entry["kind"] == "list":
        values = entry["value"]
    if entry["kind"] == "map":
        values = [item for _, item in entry["value"]]
    return [each["ts"] for each in values if isinstance(each, dict) and "ts" in each]


@pytest.mark.parametrize("name", FORMS)
def test_figures_equal_what_flink_restored(name: str) -> None:
    fixture = Fixture(GOLDEN / name)
    snapshot = Snapshot.load(fixture.snapshot)
    expected = truth_of(fixture)
    seen = set()
    for operator in snapshot.operators:
        options = CountOptions(NOON, ttls={"": 1})
        for state in operator_contents(operator, options)["states"]:
            key = (operator.label, state["kind"], plain(state["name"]))
            entries = expected.get(key, [])
            seen.add(key)
            assert state["note"] is None
            check_counts(state, entries, operator.max_parallelism)
            if state["ttl"] is not None:
                moments = [each for entry in entries for each in stamps(entry)]
                assert state["ttl"]["count"] == len(moments)
                assert state["ttl"]["expired"] == sum(each <= NOON - 1 for each in moments)
            if state["kind"].endswith("-timer"):
                times = [entry["ts"] for entry in entries]
                timers = state["timers"]
                assert (timers["count"], timers["earliest_ms"], timers["latest_ms"]) == (
                    len(times),
                    min(times, default=None),
                    max(times, default=None),
                )
                assert timers["behind"] == sum(each <= timers["from_ms"] for each in times)
    assert set(expected) <= seen


def check_counts(state: dict[str, Any], entries: list[dict[str, Any]], groups: int) -> None:
    by_group = Counter()
    by_key: Counter[str] = Counter()
    for entry in entries:
        by_group[entry["kg"]] += records(entry)
        by_key[json.dumps(entry["key"], ensure_ascii=False)] += records(entry)
    spread = state["key_groups"]
    assert list(spread["entries"]) == [by_group[each] for each in range(groups)]
    assert spread["empty"] == groups - len(by_group)
    if by_group:
        assert spread["skew"] == round(max(by_group.values()) / median(by_group.values()), 2)
    assert (state["entries"], state["keys"]) == (sum(by_group.values()), len(by_key))
    if state["kind"] == "list":
        assert state["elements"] == sum(len(each["value"]) for each in entries)
    digests = {hashlib.sha256(key.encode()).hexdigest()[:16]: key for key in by_key}
    for entry in state["most_entries"]:
        assert by_key[digests[entry["key"]]] == entry["entries"]
    if state["most_entries"]:
        assert state["most_entries"][0]["entries"] == max(by_key.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x-lsm-rocksdb-incremental", "x-rescaled-rocksdb-incremental"),
        ("o-ttl-maps-rocksdb", "o-ttl-maps-changelog"),
        ("a-hashmap-canonical", "a-rocksdb-changelog-materialized"),
    ],
)
def test_new_gone_and_changed_entries_equal_what_flink_restored(old: str, new: str) -> None:
    sides = [Fixture(GOLDEN / each) for each in (old, new)]
    before, after = (truth_of(each) for each in sides)
    one, two = (Snapshot.load(each.snapshot) for each in sides)
    for operator in one.operators:
        if operator.operator_id not in {each.operator_id for each in two.operators}:
            continue  # sources have no keyed state
        for count_change in count_changes(operator, two[f"hash:{operator.operator_id.hex}"]):
            key = (operator.label, count_change.kind, plain(count_change.state))
            ours, theirs = by_place(before.get(key, [])), by_place(after.get(key, []))
            assert count_change.new == len(theirs.keys() - ours.keys())
            assert count_change.gone == len(ours.keys() - theirs.keys())
            both = ours.keys() & theirs.keys()
            assert count_change.changed == sum(ours[place] != theirs[place] for place in both)


def by_place(entries: list[dict[str, Any]]) -> dict[str, str]:
    return {
        json.dumps([entry["key"], entry["ns"], entry.get("ts")]): json.dumps(
            entry.get("value"), sort_keys=True
        )
        for entry in entries
    }


def test_windows_of_sql_count_from_the_watermark() -> None:
    snapshot = Snapshot.load(Fixture(GOLDEN / "o-sql-window-tvf").snapshot)
    [states] = [
        contents["states"]
        for candidate in snapshot.operators
        if (contents := operator_contents(candidate, CountOptions(NOON)))["states"]
    ]
    aggregates = next(each for each in states if each["name"] == "window-aggs")
    entries = truth_of(Fixture(GOLDEN / "o-sql-window-tvf"))
    ends = [
        window["ns"]
        for key, listed in entries.items()
        if key[2] == "window-aggs"
        for window in listed
    ]
    windows = aggregates["windows"]
    assert windows["counts_from"] == "watermark"
    assert (windows["windows"], windows["entries"]) == (len(set(ends)), len(ends))
    assert windows["behind"] == sum(each <= windows["from_ms"] for each in ends)
    timers = next(each for each in states if each["kind"] == "event-timer")
    assert timers["timers"]["behind"] == 0  # the watermark has fired every timer up to it


# ------------------------------------------------------------------------------------ planted

DAY = 86_400_000
AT = 1_800_000_000_000
KEYS = 1000
TTL = TtlSerializer(Types.LONG)
META = StateMetaInfoSnapshot.key_value
VALUE = META("total", KeyedStateType.VALUE, TTL, VoidNamespaceSerializer())
MAP = META(
    "seen", KeyedStateType.MAP, MapSerializer(Types.STRING, Types.LONG), VoidNamespaceSerializer()
)
TIMERS = StateMetaInfoSnapshot.priority_queue(
    "_timer_state/processing_user-timers", TimerSerializer(Types.STRING, VoidNamespaceSerializer())
)
GROUPS = 8


def published(folder: Path, *handles: KeyedStateHandle) -> Snapshot:
    subtasks = tuple(
        OperatorSubtaskState(at, managed_keyed_state=handle) for at, handle in enumerate(handles)
    )
    operator = OperatorState(OperatorID.for_uid("op"), len(handles), GROUPS, subtasks, uid="op")
    SavepointFolder(folder).publish(CheckpointMetadata(3, 1, (operator,)), {})
    return Snapshot.load(folder)


def names(count: int, start: int = 0) -> list[str]:
    return [f"user-{each:04}" for each in range(start, start + count)]


def values(keys: list[str]) -> pa.Array:
    """Every fourth value was last used eight days ago, the others two hours ago."""
    ages = [8 * DAY if at % 4 == 0 else DAY // 12 for at in range(len(keys))]
    numbers = [(-1) ** at * at for at in range(len(keys))]
    fields = TTL_FIELDS
    return pa.StructArray.from_arrays(
        [pa.array([AT - age for age in ages]), pa.array(numbers)], fields=fields
    )


TTL_FIELDS = [pa.field("ts", pa.int64()), pa.field("v", pa.int64())]


def planted(folder: Path, keys: list[str], *, hot: int) -> Snapshot:
    """A canonical savepoint: a value with an age for each key, a map whose key ``user-0007`` is
    hot, a timer for every tenth key.
    """
    target = SavepointFolder(folder)
    encoder = KeyedStateEncoder(Types.STRING, [VALUE, MAP, TIMERS], GROUPS)
    with KeyedSections(encoder.header, encoder.key_groups, GROUPS) as sections:
        rows = {"state_key": keys, "state_value": values(keys)}
        sections.add(encoder.encode("total", pa.table(rows)))
        owners = [*keys, *["user-0007"] * hot]
        items = [*["first"] * len(keys), *(f"item-{each}" for each in range(hot))]
        counts = pa.array(range(len(owners)), pa.int64())
        columns = {"state_key": owners, "map_key": items, "map_value": counts}
        sections.add(encoder.encode("seen", pa.table(columns)))
        late = keys[::10]
        times = [AT - 2 * DAY if at % 2 == 0 else AT + DAY // 24 for at in range(len(late))]
        timers = pa.table({"state_key": late, "timestamp": pa.array(times, pa.int64())})
        sections.add(encoder.encode(TIMERS.name, timers))
        handle = target.add_keyed_stream(sections.stream())
    assert handle is not None
    return published(folder, handle)


def in_small_files(snapshot: Snapshot, folder: Path) -> Snapshot:
    """The same state in one file for each key group."""
    [handle] = snapshot["op"].keyed_handles
    assert isinstance(handle, KeyGroupsSavepointStateHandle)
    raw = snapshot.resolver.read(handle.stream)
    sections = handle.offsets.sections(len(raw))
    header = raw[: sections[0][1]]
    folder.mkdir()
    subtasks = []
    for group, start, end in sections:
        (folder / f"file-{group}").write_bytes(header + raw[start:end])
        stream = RelativeFileStateHandle(f"file-{group}", len(header) + end - start)
        offsets = KeyGroupRangeOffsets(KeyGroupRange(group, group), (len(header),))
        own = KeyGroupsSavepointStateHandle(offsets, stream)
        subtasks.append(OperatorSubtaskState(group, managed_keyed_state=own))
    operator = OperatorState(
        OperatorID.for_uid("op"), len(subtasks), GROUPS, tuple(subtasks), uid="op"
    )
    (folder / "_metadata").write_bytes(write_metadata(CheckpointMetadata(3, 1, (operator,))))
    return Snapshot.load(folder)


def planted_changelog(folder: Path, keys: list[str]) -> Snapshot:
    """A checkpoint that is a log: the same values, and every key was written once before."""
    folder.mkdir()
    options = ChangelogOptions.of(base_path=str(folder / "changelog"))
    encoder = KeyedStateEncoder(Types.STRING, [VALUE], GROUPS)
    with FsStateChangelogStorage(JobID(bytes(16)), options) as storage:
        writer = storage.create_writer("op", encoder.key_groups)
        writer.append_meta(metadata_change(0, VALUE))
        for shown in (keys[::-1], keys):
            for key, value in zip(shown, values(shown).to_pylist(), strict=True):
                scope = serialize_key(Types.STRING, key) + serialize_to_bytes(
                    VoidNamespaceSerializer(), None
                )
                body = serialize_to_bytes(TTL, TtlValue(value["ts"], value["v"]))
                key_group = assign_to_key_group(Types.STRING.java_hash(key), GROUPS)
                writer.append(key_group, data_change(StateChangeOperation.SET, 0, scope, body))
        log = writer.persist(SequenceNumber(0), 1).result(60).job_manager_owned_snapshot
        assert log is not None
    handle = ChangelogStateBackendHandle((), (log,), encoder.key_groups, 0, 1, 0, "id")
    return published(folder, handle)


def contents_of(snapshot: Snapshot, **options: Any) -> dict[str, dict[str, Any]]:
    contents = operator_contents(snapshot["op"], CountOptions(AT, **options))
    return {each["name"]: each for each in contents["states"]}


def without_subtasks(contents: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: {**each, "subtasks": None} for name, each in contents.items()}


@pytest.mark.parametrize("jobs", [1, 2])
def test_small_files_are_counted_as_one_large_one(jobs: int, tmp_path: Path) -> None:
    large = planted(tmp_path / "large", names(KEYS), hot=300)
    small = in_small_files(large, tmp_path / "small")
    counted = operator_contents(small["op"], CountOptions(AT), jobs=jobs)["states"]
    assert len(small["op"].keyed_handles) == GROUPS
    assert without_subtasks({each["name"]: each for each in counted}) == without_subtasks(
        contents_of(large)
    )


def test_small_files_are_scanned_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million files of a few records took a scan, and counts of every key group, for each."""
    small = in_small_files(planted(tmp_path / "large", names(KEYS), hot=0), tmp_path / "small")
    scans = []
    scan = SectionScanner.batches
    monkeypatch.setattr(
        SectionScanner, "batches", lambda self, chunks: scans.append(1) or scan(self, chunks)
    )
    assert contents_of(small)["total"]["entries"] == KEYS
    assert len(scans) == 1


def test_the_time_of_a_snapshot_is_asked_without_a_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = in_small_files(planted(tmp_path / "large", names(KEYS), hot=0), tmp_path / "small")
    monkeypatch.delattr(FsspecFileIO, "list_folder")
    written = (tmp_path / "small" / "_metadata").stat().st_mtime
    assert small.written_ms == int(written * 1000)


def test_a_damaged_small_file_is_named(tmp_path: Path) -> None:
    small = in_small_files(planted(tmp_path / "large", names(KEYS), hot=0), tmp_path / "small")
    file = tmp_path / "small" / "file-5"
    raw = bytearray(file.read_bytes())
    raw[small["op"].keyed_handles[5].offsets.offsets[0]] = 0x7F  # no such state
    file.write_bytes(raw)
    with pytest.raises(FormatError, match=r"small/file-5\]$"):
        contents_of(small)


@pytest.mark.parametrize("form", ["canonical", "changelog"])
def test_planted_expiry(form: str, tmp_path: Path) -> None:
    keys = names(KEYS)
    make = planted_changelog if form == "changelog" else lambda f, k: planted(f, k, hot=0)
    state = contents_of(make(tmp_path / "s", keys), ttls={"total": 7 * DAY})["total"]
    assert (state["entries"], state["keys"]) == (KEYS, KEYS)
    # A stored value is 8 bytes of the number and 8 of the time; a key is its text, two bytes more.
    assert state["value_bytes"] == 16 * KEYS
    ttl = state["ttl"]
    assert (ttl["expired"], ttl["oldest_ms"], ttl["newest_ms"]) == (
        KEYS // 4,
        AT - 8 * DAY,
        AT - DAY // 12,
    )
    assert ttl["expired_bytes"] == (state["key_bytes"] + state["value_bytes"]) // 4
    by_ttl = {each["ttl_ms"]: each["count"] for each in ttl["would_expire"]}
    assert by_ttl[DAY // 24] == KEYS
    assert by_ttl[DAY] == by_ttl[7 * DAY] == KEYS // 4
    assert by_ttl[30 * DAY] == 0
    exact = contents_of(Snapshot.load(tmp_path / "s"), ttls={"": 8 * DAY})["total"]["ttl"]
    assert exact["expired"] == KEYS // 4  # Flink expires a value at its time to live


def test_planted_hot_key_skew_and_timers(tmp_path: Path) -> None:
    snapshot = planted(tmp_path / "s", names(KEYS), hot=5000)
    states = contents_of(snapshot)
    seen = states["seen"]
    assert (seen["entries"], seen["keys"]) == (KEYS + 5000, KEYS)
    hot = seen["largest_keys"][0]
    name = hashlib.sha256(b'"user-0007"').hexdigest()[:16]
    assert (hot["key"], hot["entries"]) == (name, 5001)
    assert seen["most_entries"][0] == hot
    items = sum(len(f"item-{each}") for each in range(5000)) + len("first")
    # Key with its length, namespace, item with its length; a flag and a number.
    assert hot["bytes"] == 5001 * (len("user-0007") + 1 + 1 + 1 + 1 + 8) + items
    groups = Counter(
        assign_to_key_group(Types.STRING.java_hash(key), GROUPS) for key in names(KEYS)
    )
    groups[assign_to_key_group(Types.STRING.java_hash("user-0007"), GROUPS)] += 5000
    assert list(seen["key_groups"]["entries"]) == [groups[each] for each in range(GROUPS)]
    assert seen["key_groups"]["skew"] == round(max(groups.values()) / median(groups.values()), 2)
    timers = states[TIMERS.name]["timers"]
    assert (timers["count"], timers["behind"]) == (KEYS // 10, KEYS // 20)
    figures = report_figures(snapshot, contents=CountOptions(AT, ttls={"": 7 * DAY}))
    texts = [each["what"] for each in figures["attention"]]
    total = seen["key_bytes"] + seen["value_bytes"]
    assert f"one key has {100 * hot['bytes'] / total:.0f} % of the bytes of state seen" in texts
    assert "25 % of state total have expired" in texts
    assert any(each.startswith("50 processing timers of") for each in texts)


def test_planted_growth(tmp_path: Path) -> None:
    old = planted(tmp_path / "old", names(KEYS), hot=0)
    new = planted(tmp_path / "new", names(KEYS, 200), hot=30)
    done: list[int] = []
    options = CountOptions(AT)
    figures = report_figures(new, old, contents=options, on_progress=done.append)
    assert sum(done) == bytes_to_read(new, old)
    states = {each["state"]: each for each in figures["compared"]["states"]}
    total = states["total"]
    assert (total["before"]["entries"], total["after"]["entries"]) == (KEYS, KEYS)
    assert (total["new"], total["gone"], total["changed"]) == (200, 200, 800)
    seen = states["seen"]
    assert (seen["before"]["entries"], seen["after"]["entries"]) == (KEYS, KEYS + 30)
    # user-0007 stays with 30 items instead of one; the items of 800 others have new numbers.
    assert (seen["new"], seen["gone"], seen["changed"]) == (200, 199, 801)


# The plan of the snapshots in ``planted-state``: a savepoint of 300 keys, then a job of Flink.
BASE = names(300)
CLEARED = [each for each in BASE[:20] if each != "user-0007"]
ADDED = names(30, 300)
HOT_ITEMS = 500
LATE, SOON = AT - 2 * DAY, AT + DAY // 24


def planted_timers() -> dict[str, int]:
    """The timers of the base without those of the first 20 keys, and those of the new keys."""
    kept = {key: LATE if at % 2 == 0 else SOON for at, key in enumerate(BASE[::10])}
    return {key: time for key, time in kept.items() if key >= BASE[20]} | dict.fromkeys(
        ADDED[::10], LATE
    )


def entries_by_group(keys: list[str], hot: int = 0) -> list[int]:
    groups = Counter(assign_to_key_group(Types.STRING.java_hash(each), GROUPS) for each in keys)
    groups[assign_to_key_group(Types.STRING.java_hash("user-0007"), GROUPS)] += hot
    return [groups[each] for each in range(GROUPS)]


def check_spread(state: dict[str, Any], by_group: list[int]) -> None:
    """Key groups and the two subtasks, which own four key groups each."""
    for name, expected in (
        ("key_groups", by_group),
        ("subtasks", [sum(by_group[:4]), sum(by_group[4:])]),
    ):
        spread = state[name]
        assert list(spread["entries"]) == expected
        assert spread["skew"] == round(max(expected) / median(expected), 2)


@pytest.mark.parametrize("form", FLINK_FORMS)
def test_planted_state_has_the_same_figures_in_every_form(form: str, tmp_path: Path) -> None:
    snapshot = Snapshot.load(Fixture(PLANTED / form).snapshot)
    old = planted(tmp_path / "base", BASE, hot=0)
    options = CountOptions(AT, ttls={"": 7 * DAY})
    figures = report_figures(snapshot, old, contents=options)
    [operator] = [each for each in figures["operators"] if each["uid"] == "op"]
    states = {each["name"]: each for each in operator["contents"]["states"]}
    assert operator["contents"]["problem"] is None

    # Skew and the hot key: "first" and 500 items.
    seen, kept = states["seen"], [each for each in BASE if each not in CLEARED]
    assert (seen["entries"], seen["keys"]) == (len(kept) + 30 + HOT_ITEMS, len(kept) + 30)
    check_spread(seen, entries_by_group([*kept, *ADDED], HOT_ITEMS))
    hot = seen["largest_keys"][0]
    assert hot["key"] == hashlib.sha256(b'"user-0007"').hexdigest()[:16]
    items = sum(len(f"item-{each}") for each in range(HOT_ITEMS)) + len("first")
    assert (hot["entries"], hot["bytes"]) == (501, 501 * (len("user-0007") + 12) + items)
    assert seen["most_entries"][0] == hot

    # Expiry: every fourth value is eight days old; the new keys have no values.
    total = states["total"]
    old_keys = [each for each in BASE[::4] if each not in CLEARED]
    assert (total["entries"], total["value_bytes"]) == (len(kept), 16 * len(kept))
    check_spread(total, entries_by_group(kept))
    assert (total["ttl"]["expired"], total["ttl"]["count"]) == (len(old_keys), len(kept))
    assert total["ttl"]["expired_bytes"] == len(old_keys) * (len("user-0000") + 2 + 16)

    timers, expected = states[TIMERS.name], planted_timers()
    check_spread(timers, entries_by_group(list(expected)))
    assert timers["timers"]["count"] == len(expected)
    assert timers["timers"]["behind"] == list(expected.values()).count(LATE)
    assert (timers["timers"]["earliest_ms"], timers["timers"]["latest_ms"]) == (LATE, SOON)

    # Growth since the savepoint of 300 keys.
    grown = {each["state"]: each for each in figures["compared"]["states"]}
    changes = {
        name: tuple(change[c] for c in ("new", "gone", "changed")) for name, change in grown.items()
    }
    assert changes["total"] == (0, len(CLEARED), 0)
    assert changes["seen"] == (30, len(CLEARED), 1)
    assert grown["seen"]["after"]["entries"] - grown["seen"]["before"]["entries"] == (
        30 + HOT_ITEMS - len(CLEARED)
    )

    texts = [each["what"] for each in figures["attention"] if each["operator"] == "op"]
    share = round(100 * hot["bytes"] / (seen["key_bytes"] + seen["value_bytes"]))
    assert f"one key has {share} % of the bytes of state seen" in texts
    assert f"{round(100 * len(old_keys) / len(kept))} % of state total have expired" in texts


@pytest.mark.parametrize("form", FLINK_FORMS[1:])
def test_the_page_says_the_same_in_every_form(form: str) -> None:
    """All parts about keyed state; ties between keys of one size are in the order of reading."""
    pages = []
    for form_shown in (FLINK_FORMS[0], form):
        figures = report_figures(
            Snapshot.load(Fixture(PLANTED / form_shown).snapshot), contents=CountOptions(AT)
        )
        [operator] = [op for op in figures["operators"] if op["uid"] == "op"]
        for state in operator["contents"]["states"]:
            for ranking in ("largest_keys", "most_entries", "largest_entries"):
                state[ranking] = [row for row in state[ranking] if row["bytes"] > 29]
        detailed = detailed_states([operator])
        pages.append(
            str(templates().get_template("parts.html.j2").module.contents(operator, detailed))
        )
    assert pages[0] == pages[1]
    assert "user-0" not in pages[0]


def test_growth_of_each_state_over_the_snapshots_of_a_folder(run: Any, tmp_path: Path) -> None:
    sizes = [(names(200), 0), (names(250, 50), 30), (names(250, 50), 20)]
    for number, (keys, hot) in enumerate(sizes, 1):
        planted(tmp_path / f"chk-{number}", keys, hot=hot)
    ran = run("ls", str(tmp_path), "--states", "--json")
    assert (ran.code, ran.err) == (0, "")
    growth = [
        {each["state"]: (each["entries"], each["bytes"]) for each in snapshot["states"]}
        for snapshot in ran.lines
    ]
    for sizes_of_snapshot, (keys, hot) in zip(growth, sizes, strict=True):
        assert sizes_of_snapshot["total"] == (len(keys), 27 * len(keys))
        assert sizes_of_snapshot["seen"][0] == len(keys) + hot
        assert sizes_of_snapshot[TIMERS.name] == (len(keys) // 10, 19 * len(keys) // 10)
    lines = run("ls", str(tmp_path), "--states").out.splitlines()
    rows = [line.split() for line in lines if " total " in line]
    assert [row[:6] for row in rows] == [
        [f"chk-{at}", "1", "op", "total", "value", f"{len(keys)}"]
        for at, (keys, _) in enumerate(sizes, 1)
    ]
    assert rows[1][6] == "+50"
    assert " ".join(rows[1][9:]) == f"+{size_text(50 * 27)}"
    assert [line.split()[6] for line in lines if " seen " in line][1:] == ["+80", "-10"]

    [file] = [each for each in (tmp_path / "chk-2").iterdir() if not each.name.startswith("_")]
    file.unlink()
    ran = run("ls", str(tmp_path), "--states")
    assert ran.code == 1
    assert ran.err.startswith("dstl: A snapshot cannot be read: Cannot read ")
    assert [line.split()[0] for line in ran.out.splitlines() if " total " in line] == (
        ["chk-1", "chk-3"]
    )


def test_numbers_of_a_column(tmp_path: Path) -> None:
    snapshot = planted(tmp_path / "s", names(KEYS), hot=0)
    hidden = contents_of(snapshot)["total"]["numbers"]
    [shown] = contents_of(snapshot, show_keys=True)["total"]["numbers"]
    assert shown["column"] == "value"
    assert (shown["smallest"], shown["largest"], shown["count"]) == (-999, 998, KEYS)
    assert "smallest" not in hidden[0]
    numbers = [(-1) ** at * at for at in range(KEYS)]
    assert sum(each["count"] for each in shown["histogram"]) == KEYS
    for part in shown["histogram"]:
        low, high = part["from"], part["to"]
        inside = [
            number
            for number in numbers
            if (low <= number < high)
            or (high <= 0 and low < number <= high)
            or (low == high == number)
        ]
        inside = [each for each in inside if (each < 0) == (low < 0)]
        assert part["count"] == len(inside)


@pytest.mark.parametrize(
    ("values_", "expected"),
    [
        ([-(1 << 63), (1 << 63) - 1], [(-(1 << 64), -(1 << 63), 1), (1 << 62, 1 << 63, 1)]),
        ([(1 << 60) - 1, 1 << 60], [(1 << 59, 1 << 60, 1), (1 << 60, 1 << 61, 1)]),
        ([0.0, 0.75, float("nan"), float("inf")], [(0, 0, 1), (0.5, 1.0, 1)]),
        ([None, 5], [(4, 8, 1)]),
    ],
)
def test_edges_of_numbers(values_: list[Any], expected: list[Any]) -> None:
    counts = NumberCounts("n")
    counts.add(pa.array(values_))
    shown = counts.to_json(show_values=False)
    assert [(p["from"], p["to"], p["count"]) for p in shown["histogram"]] == expected
    assert shown["nulls"] == values_.count(None)
    assert shown["not_finite"] == sum(each != each or each == float("inf") for each in values_)


@pytest.mark.slow
def test_distinct_windows_are_bounded() -> None:
    counts = WindowCounts(0)
    for at in range(3):
        ends = np.arange(60_000, dtype=np.int64) + 60_000 * at
        counts.add(ends - 10, ends)
    shown = counts.to_json()
    assert (shown["windows"], shown["more"], shown["entries"]) == (MAX_WINDOWS, True, 180_000)


def test_keys_and_values_are_shown_on_request_only(tmp_path: Path) -> None:
    snapshot = planted(tmp_path / "s", names(KEYS), hot=10)
    page = report_page(report_figures(snapshot, contents=CountOptions(AT)))
    assert "user-0" not in page
    assert "998" not in page
    shown = report_page(report_figures(snapshot, contents=CountOptions(AT, show_keys=True)))
    assert "&#34;user-0007&#34;" in shown
    assert "Smallest -999, largest 998" in shown


def test_damaged_state_is_a_finding_and_the_sizes_stay(tmp_path: Path) -> None:
    snapshot = planted(tmp_path / "s", names(KEYS), hot=0)
    [file] = [each for each in (tmp_path / "s").iterdir() if not each.name.startswith("_")]
    raw = bytearray(file.read_bytes())
    raw[-40:] = b"\x7f" * 40
    file.write_bytes(raw)
    figures = report_figures(Snapshot.load(tmp_path / "s"), contents=CountOptions(AT))
    [operator] = figures["operators"]
    assert operator["bytes"] == len(raw)
    assert operator["contents"]["problem"]
    attention = [each for each in figures["attention"] if each["what"].startswith("not readable")]
    assert attention[0]["command"].startswith("dstl verify")
    assert "Its records cannot be read" in report_page(figures)
    assert key_group_prefix_bytes(GROUPS) == 1
    assert snapshot["op"].max_parallelism == GROUPS


def test_a_page_with_the_contents_of_200_operators_is_small(tmp_path: Path) -> None:
    figures = report_figures(planted(tmp_path / "s", names(KEYS), hot=9), contents=CountOptions(AT))
    [operator] = figures["operators"]
    spread = operator["contents"]["states"][0]["key_groups"]
    spread["entries"] = tuple(range(32768))  # as many key groups as there can be
    figures["operators"] = [operator | {"hash": f"{at:032x}"} for at in range(200)]
    page = report_page(figures)
    assert page.count("<h3>") == DETAILED_STATES
    assert len(page.encode()) < 1_000_000
