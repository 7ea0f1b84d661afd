"""Tables and logs of a handle are opened once, and read once, whatever is read of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, edit_savepoint, report_snapshot, verify_snapshot
from dstl_core.codec import operator_state
from dstl_core.codec.columnar.keyed import sst_rows
from dstl_core.codec.serializers import BUILT_IN, SerializerRegistry
from dstl_core.codec.state_meta import read_keyed_header
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.access.column_lines import ColumnLines
from dstl_core.savepoint.read import entry_reader
from dstl_core.savepoint.read.snapshot_tables import open_table
from dstl_core.savepoint.read.table_base import TableOptions
from dstl_core.savepoint.verify import range_check
from dstl_core.state.restore import canonical, divided_log, into_tables, open_tables, rocksdb
from tests.counting_file_io import CountingFileIO, counted_snapshot
from tests.full_disk import full_disk
from tests.golden_files import GOLDEN, SNAPSHOTS, Fixture, as_lines
from tests.golden_files import snapshot as golden

[TABLES] = (GOLDEN / "many-table-files").glob("savepoint-*")
KEYS = 3000
"""Keys of the job. Every hundredth has 10 entries of a map, and every eighth a timer."""
ENTRIES = 2 * KEYS + KEYS // 100 + -(-KEYS // 8)
RECORDS = ENTRIES + 9 * KEYS // 100


@pytest.fixture(params=["by columns", "by record"])
def counted(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[Snapshot, CountingFileIO]:
    """A snapshot of two handles with several table files each, read in many ranges."""
    by_columns = request.param == "by columns"
    monkeypatch.setattr(entry_reader, "BYTES_AT_ONCE", 32 << 10)
    monkeypatch.setattr(rocksdb, "_TAIL_BYTES", 1 << 10)
    for module in (range_check, into_tables):
        monkeypatch.setattr(module, "are_read_by_kernels", lambda size: by_columns)
    return counted_snapshot(TABLES)


def verified(snapshot: Snapshot) -> None:
    report = verify_snapshot(snapshot)
    assert report.findings == report.notes == []
    assert report.entries == report.keys_checked == ENTRIES


def reported(snapshot: Snapshot) -> None:
    [operator] = [each for each in report_snapshot(snapshot).figures["operators"] if each["bytes"]]
    states = operator["contents"]["states"]
    assert sum(state["entries"] for state in states) == RECORDS


def dumped(snapshot: Snapshot) -> None:
    assert len(list(snapshot["big"].dump())) == ENTRIES


def dumped_by_columns(snapshot: Snapshot) -> None:
    operator = snapshot["big"]
    columns = ColumnLines(operator, None)
    ranges = list(operator.entries().keyed_ranges())
    texts = [text for part in ranges for text in columns.lines(*part) or ()]
    assert sum(text.count("\n") for text in texts) == ENTRIES


@pytest.mark.parametrize("read", [verified, reported, dumped, dumped_by_columns])
def test_a_table_file_is_opened_once(
    counted: tuple[Snapshot, CountingFileIO], read: Callable[[Snapshot], None]
) -> None:
    snapshot, files = counted
    names = table_files(snapshot)
    assert len(names) == 6
    read(snapshot)
    assert {name: files.ends[name] for name in names} == dict.fromkeys(names, 1)


def table_files(snapshot: Snapshot) -> set[str]:
    """The names of the table files; small ones are in ``_metadata``."""
    handles = snapshot["big"].keyed_handles
    assert all(isinstance(each, IncrementalRemoteKeyedStateHandle) for each in handles)
    streams = [
        stream
        for handle in handles
        if isinstance(handle, IncrementalRemoteKeyedStateHandle)
        for name, stream in handle.shared + handle.private
        if name.endswith(".sst")
    ]
    locations = [snapshot.resolver.resolve(stream).location for stream in streams]
    return {location.name for location in locations if location is not None}


@pytest.mark.parametrize("read", [verified, reported, dumped_by_columns])
def test_the_bytes_of_the_state_are_read_once(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[Snapshot], None]
) -> None:
    """Only blocks with the end of a range and the start of the next one are read for both."""
    monkeypatch.setattr(range_check, "are_read_by_kernels", lambda size: True)
    monkeypatch.setattr(entry_reader, "BYTES_AT_ONCE", 128 << 10)
    snapshot, files = counted_snapshot(TABLES)
    read(snapshot)
    size = sum(file.stat().st_size for file in TABLES.iterdir())
    assert size < files.bytes < 1.3 * size


@pytest.fixture(params=[False, True], ids=["compressed", "not compressed"])
def two_files(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Two files that dstl wrote, of several units."""
    monkeypatch.setattr(range_check, "are_read_by_kernels", lambda size: True)
    monkeypatch.setattr(entry_reader, "BYTES_AT_ONCE", 128 << 10)
    edit = edit_savepoint(Snapshot.load(TABLES))
    edit.with_files("canonical").write(tmp_path, keep_compression=request.param)
    return tmp_path


def test_one_reading_checks_records_and_digests(two_files: Path) -> None:
    snapshot, files = counted_snapshot(two_files)
    report = verify_snapshot(snapshot)
    assert report.findings == []
    assert report.digests_checked == 2
    written = [file for file in two_files.iterdir() if not file.name.startswith("_")]
    size = sum(file.stat().st_size for file in written)
    assert size < files.bytes < 1.1 * size


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_wrong_byte_is_one_finding_that_names_the_file(two_files: Path, jobs: int) -> None:
    """Wherever it is: also where the record has no checksum, and in what another process reads."""
    snapshot = Snapshot.load(two_files)
    report = verify_snapshot(snapshot, jobs=jobs)
    assert (report.findings, report.digests_checked) == ([], 2)
    assert report.entries == ENTRIES
    [file, other] = [file for file in two_files.iterdir() if not file.name.startswith("_")]
    raw = file.read_bytes()
    for at in (len(raw) // 3, len(raw) - 1):
        file.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        problems = [finding.problem for finding in verify_snapshot(snapshot, jobs=jobs).findings]
        [digest] = [problem for problem in problems if "expected sha256" in problem]
        assert digest.endswith(str(file))
        assert other.name not in digest


def test_files_are_compared_where_others_are_missing(two_files: Path) -> None:
    [first, second] = [file for file in two_files.iterdir() if not file.name.startswith("_")]
    first.unlink()
    raw = second.read_bytes()
    second.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    problems = [finding.problem for finding in verify_snapshot(Snapshot.load(two_files)).findings]
    assert sum("expected sha256" in problem for problem in problems) == 1
    assert any(first.name in problem for problem in problems)


def test_parts_of_a_range_are_merged_from_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_check, "are_read_by_kernels", lambda size: True)
    monkeypatch.setattr(sst_rows, "BYTES_AT_ONCE", 8 << 10)
    snapshot, files = counted_snapshot(TABLES)
    verified(snapshot)
    tables = [name for name, ends in files.ends.items() if files.reads[name] > 1]
    # Its end with the index, and then its blocks.
    assert tables and all(files.reads[name] == 2 for name in tables)


LOGS = [
    "a-hashmap-changelog-multi",
    "a-rocksdb-changelog-materialized",
    "o-rescaled-claim-changelog",
]


@pytest.fixture(params=LOGS)
def logged(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[Fixture, Snapshot, CountingFileIO]:
    """A changelog by real Flink, read in many ranges and parts."""
    monkeypatch.setattr(entry_reader, "BYTES_AT_ONCE", 1 << 8)
    monkeypatch.setattr(open_tables, "DIVIDED_FROM_BYTES", 1)
    monkeypatch.setattr(divided_log, "BYTES_OF_PART", 1 << 9)
    [fixture] = [each for each in SNAPSHOTS if each.name == request.param]
    return fixture, *counted_snapshot(fixture.snapshot)


def segments(snapshot: Snapshot) -> Counter[str]:
    """The files of the logs, and how many logs have change sets in each."""
    return Counter(
        name
        for operator in snapshot.operators
        for handle in operator.keyed_handles
        if isinstance(handle, ChangelogStateBackendHandle)
        for log in handle.non_materialized
        if isinstance(log, ChangelogStateHandleStream)
        for name in {
            Path(stream.path).name
            for stream, _ in log.handles_and_offsets
            if isinstance(stream, FileStateHandle)
        }
    )


@pytest.mark.parametrize("by_columns", [True, False])
@pytest.mark.slow
def test_a_log_that_is_read_in_ranges_is_unpacked_once(
    logged: tuple[Fixture, Snapshot, CountingFileIO],
    monkeypatch: pytest.MonkeyPatch,
    by_columns: bool,
) -> None:
    fixture, snapshot, files = logged
    for module in (range_check, into_tables):
        monkeypatch.setattr(module, "are_read_by_kernels", lambda size: by_columns)
    names = segments(snapshot)
    assert names
    dumped = [line for operator in snapshot.operators for line in operator.dump()]
    assert as_lines(dumped) == as_lines(fixture.truth)
    # The first one has read the types, too.
    for read in (snapshot_dump, verify_snapshot):
        before = Counter({name: files.reads[name] for name in names})
        read(snapshot)
        assert {name: files.reads[name] for name in names} == before + names


def snapshot_dump(snapshot: Snapshot) -> int:
    return sum(len(list(operator.dump())) for operator in snapshot.operators)


@pytest.mark.slow
def test_a_few_key_groups_of_a_log_are_read_by_columns(
    logged: tuple[Fixture, Snapshot, CountingFileIO],
) -> None:
    fixture, snapshot, _ = logged
    counted = Counter[str]()
    for operator in snapshot.operators:
        for place in (KeyGroupRange(3, 90), KeyGroupRange(91, operator.max_parallelism - 1)):
            for info in operator.states:
                if info.kind in ("value", "map"):
                    table = open_table(operator, "keyed-flat", info.name, TableOptions())
                    splits = (place.start_key_group, place.end_key_group)
                    counted[info.name] += sum(map(len, table.read(splits)))
    wanted = Counter[str]()
    for entry in fixture.truth:
        if entry["kind"] in ("value", "map") and entry["kg"] >= 3:
            wanted[entry["state"]] += len(entry["value"]) if entry["kind"] == "map" else 1
    assert +counted == wanted


def test_a_read_of_table_files_asks_for_no_size() -> None:
    snapshot, files = counted_snapshot(TABLES)
    assert len(list(snapshot["big"].dump())) == ENTRIES
    assert files.sizes == 0


@pytest.mark.parametrize("by_columns", [False, True])
def test_a_file_of_canonical_state_is_read_once_and_its_header_parsed_for_all(
    monkeypatch: pytest.MonkeyPatch, by_columns: bool
) -> None:
    """A snapshot may have a million files, whose headers are mostly equal."""
    for module in (range_check, into_tables):
        monkeypatch.setattr(module, "are_read_by_kernels", lambda size: by_columns)
    parsed: list[object] = []

    def counted_header(data: Any, registry: SerializerRegistry) -> object:
        parsed.append(registry)
        return read_keyed_header(data, registry)

    monkeypatch.setattr(canonical, "read_keyed_header", counted_header)
    snapshot, files = counted_snapshot(golden("a-hashmap-canonical-files"))
    snapshot.registry = BUILT_IN.copy()  # one that has parsed nothing
    assert verify_snapshot(snapshot).findings == []
    assert len(files.reads) > 1
    assert set(files.reads.values()) == {1}
    assert len(parsed) == 1


def test_the_size_of_a_file_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_reader, "BYTES_AT_ONCE", 1 << 10)
    snapshot, files = counted_snapshot(golden("a-hashmap-canonical-files"))
    dumped = [line for operator in snapshot.operators for line in operator.dump()]
    assert len(dumped) > 100
    assert sum(files.reads.values()) > 3 * len(files.reads)
    assert files.sizes <= len(files.reads)


def test_equal_headers_of_operator_state_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    parse = operator_state._parsed_header

    def counted(stored: bytes, registry: SerializerRegistry) -> Any:
        parsed.append(len(stored))
        return parse(stored, registry)

    monkeypatch.setattr(operator_state, "_parsed_header", counted)
    snapshot = Snapshot.load(golden("o-opstate-p4"))
    operators = [each for each in snapshot.operators if each.operator_states]
    assert len(operators) > 1
    streams = sum(
        subtask.managed_operator_state is not None
        for operator in operators
        for subtask in operator.state.subtasks
    )
    assert streams >= 2 * len(operators)
    assert len(parsed) == len(operators)


def test_another_header_is_parsed() -> None:
    registry = BUILT_IN.copy()
    headers = operator_state.OperatorHeaders()
    snapshot = Snapshot.load(golden("c-opstate-hashmap"))
    read = [
        (snapshot.resolver.read(handle.stream), handle.states)
        for name in ("c-list", "c-broadcast")
        for _, handle, _ in snapshot[name].operator_state_readers()
    ]
    assert len(read) > 2
    names = [[state.name for state in headers.read(*part, registry).states] for part in read * 2]
    assert names == [[info.name for info in states] for _, states in read * 2]
    assert headers.read(*read[0], registry) is headers.read(*read[0], registry)
    assert headers.read(*read[0], BUILT_IN) is not headers.read(*read[0], registry)


def test_a_log_is_read_again_where_no_temporary_file_can_be_written(
    logged: tuple[Fixture, Snapshot, CountingFileIO],
) -> None:
    fixture, snapshot, _ = logged
    with full_disk(100):
        dumped = [line for operator in snapshot.operators for line in operator.dump()]
    assert as_lines(dumped) == as_lines(fixture.truth)
