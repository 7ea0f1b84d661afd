"""What ``offsets`` and ``committables`` say of sources before FLIP-27 and sinks before Sink V2.

Real Flink, and the real consumer of Kafka, wrote the snapshots. What they hold stands in the jobs
beside them, and in the manifest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstl_core import Snapshot, edit_savepoint
from dstl_core.codec.connectors.legacy_sinks import bucket_commits, write_ahead_commit
from dstl_core.codec.connectors.legacy_sources import (
    acknowledged_messages,
    file_split,
    kafka_partition,
    kinesis_shard,
)
from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.operator_state import list_state_meta, write_operator_stream
from dstl_core.codec.serializers.arrays import BytePrimitiveArraySerializer
from dstl_core.codec.serializers.primitives import IntSerializer, LongSerializer
from dstl_core.codec.serializers.strings import StringSerializer
from dstl_core.errors import FormatError, SavepointError
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    OperatorStateMode,
    OperatorStreamStateHandle,
)
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint.connectors.known_states import KNOWN, NEITHER, SINK, SOURCE
from dstl_core.savepoint.connectors.pending_commits import pending_commits, without_commits
from dstl_core.savepoint.connectors.set_positions import set_positions
from dstl_core.savepoint.connectors.source_positions import source_positions
from dstl_core.savepoint.report.figures import report_figures
from dstl_core.savepoint.write.folder import SavepointFolder
from tests.command_line import run
from tests.golden_files import (
    ALL_SNAPSHOTS,
    COMPRESSED_OPERATOR_STATE,
    CONNECTORS,
    LEGACY_CONNECTORS,
    LEGACY_FILE_SOURCE,
)

__all__ = ["run"]

OLD = LEGACY_CONNECTORS / "flink-1.20.5" / "savepoint"
NAMED = LEGACY_CONNECTORS / "flink-2.2.1" / "savepoint"
READ_FILE = LEGACY_FILE_SOURCE / "savepoint"
KAFKA = ["kafka-1.8", "kafka-1.13", "kafka-1.20"]


def op(uid: str) -> str:
    return OperatorIdentifier.for_uid(uid).operator_id.hex


def places(path: Path) -> list[tuple[Any, ...]]:
    return [
        (
            row.op,
            row.connector,
            row.split,
            row.word,
            row.position,
            row.stop,
            row.subtask,
            row.status,
        )
        for row in source_positions(Snapshot.load(path))
    ]


# ------------------------------------------------------------------------------------ sources


def test_files_that_are_read_by_readfile() -> None:
    reader, monitor = "20ba6b65f97481d5570070de90e4e791", "bc764cd8ddf7a0cff126f51c16239658"
    folder = "file:/srv/flink-jobs/in-dir"
    assert places(READ_FILE) == [
        (reader, "readFile", f"{folder}/f1.txt [0+24893]", "state", "134", "24893", 0, "assigned"),
        (reader, "readFile", f"{folder}/f3.txt [0+24893]", "byte", "0", "24893", 0, "assigned"),
        (reader, "readFile", f"{folder}/f2.txt [0+24893]", "state", "134", "24893", 1, "assigned"),
        (monitor, "readFile", "folder", "files until", "1795595904728", None, 0, "assigned"),
    ]


@pytest.mark.parametrize("name", KAFKA)
def test_partitions_of_a_consumer_of_kafka(name: str) -> None:
    partitions = places(LEGACY_CONNECTORS / name / "savepoint")
    assert [row[1:] for row in partitions] == [
        ("FlinkKafkaConsumer", "abc/13", "last", "16768", None, 0, "assigned"),
        ("FlinkKafkaConsumer", "def/7", "last", "987654321", None, 0, "assigned"),
    ]


def test_partitions_that_were_not_read_yet() -> None:
    partitions = places(LEGACY_CONNECTORS / "kafka-two-subtasks" / "savepoint")
    held = [
        ("abc/13", "last", "16768", 0),
        ("ü.no-ascii/3", "", "committed", 0),
        ("orders/0", "last", "41", 1),
        ("orders/1", "", "earliest", 1),
    ]
    assert [(row[2], row[3], row[4], row[6]) for row in partitions] == [*held, *held]


KINESIS = LEGACY_CONNECTORS / "kinesis-two-subtasks" / "savepoint"
NUMBER = "4959033827149025660855969253836157109592157598913658"


def test_shards_of_a_consumer_of_kinesis() -> None:
    shards = [(row[1], row[2], row[3], row[4], row[6]) for row in places(KINESIS)]
    assert shards == [
        ("FlinkKinesisConsumer", f"{name}/shardId-{number:012}", word, value, subtask)
        for name, number, word, value, subtask in (
            ("orders", 0, "last", f"{NUMBER}8898", 0),
            ("orders", 2, "last", f"{NUMBER}8999-3", 0),
            ("orders", 4, "", "finished", 0),
            ("orders", 1, "", "earliest", 1),
            ("orders", 3, "", "latest", 1),
            ("übrige", 0, "", "configured time", 1),
        )
    ]


def test_a_dump_has_the_shards_of_kinesis(run: Any) -> None:
    printed = [line for line in run("dump", str(KINESIS)).lines if line["kind"] == "op-union"]
    shards = {element[0]["shardId"]: element for line in printed for element in line["value"]}
    shard, number = shards["shardId-000000000002"]
    assert (shard["streamName"], shard["parentShardId"]) == ("orders", "shardId-000000000000")
    assert (number["sequenceNumber"], number["subSequenceNumber"]) == (f"{NUMBER}8999", 3)
    assert len(shards) == 5


def test_sources_of_flink_and_of_users() -> None:
    sequence, numbers = op("sequence"), "StatefulSequenceSource"
    queue, offsets = "MessageAcknowledgingSource", "2 of Tuple2<String, Long>"
    assert sorted(places(OLD), key=str) == sorted(
        [
            (sequence, numbers, "sequence 0", "next", "34", "300", 0, "assigned"),
            (sequence, numbers, "sequence 1", "next", "31", "299", 1, "assigned"),
            (op("queue"), queue, "checkpoint 1", "messages", "43", None, 0, "assigned"),
            (op("numbers"), None, "my-offsets", "holds", offsets, None, None, "suspected"),
            (op("batches"), None, "batch", "holds", "4 of Long", None, None, "suspected"),
            (op("buffer"), None, "buffer", "holds", "2 of Long", None, None, "suspected"),
        ],
        key=str,
    )


def test_names_of_operators_decide_what_is_suspected() -> None:
    assert places(NAMED) == [
        ("numbers", None, "numbers", "holds", "2 of Long", None, None, "suspected")
    ]
    assert [(row.op, row.state) for row in pending_commits(Snapshot.load(NAMED))] == [
        ("batches", "SUSPECTED")
    ]


def without_readers(path: Path, coordinator: bytes | None = None) -> Snapshot:
    """A source whose readers have no state, as after their end, or with other coordinator state."""
    snapshot = Snapshot.load(CONNECTORS / "c-filesource" / "savepoint")
    operators = []
    for operator in snapshot.metadata.operators:
        stored = operator.coordinator_state
        if stored is not None:
            subtasks = tuple(
                replace(subtask, managed_operator_state=None) for subtask in operator.subtasks
            )
            if coordinator is not None:
                stored = ByteStreamStateHandle(stored.handle_name, coordinator)
            operator = replace(operator, subtasks=subtasks, coordinator_state=stored)
        operators.append(operator)
    SavepointFolder(path).publish(replace(snapshot.metadata, operators=tuple(operators)), {})
    return Snapshot.load(path)


def test_an_enumerator_without_readers_is_a_source(tmp_path: Path) -> None:
    whole = list(source_positions(Snapshot.load(CONNECTORS / "c-filesource" / "savepoint")))
    expected = {row.split for row in whole if row.status == "unassigned"}
    sources = list(source_positions(without_readers(tmp_path / "s")))
    assert {row.split for row in sources} == expected
    assert expected


def test_state_of_another_coordinator_is_suspected(tmp_path: Path) -> None:
    [row] = source_positions(without_readers(tmp_path / "s", b"no enumerator"))
    assert (row.split, row.position, row.status) == ("coordinator", "13 bytes", "suspected")


# -------------------------------------------------------------------------------------- sinks


def test_sinks_of_flink_and_of_users() -> None:
    commits = [
        (row.op, row.checkpoint_id, row.subtask, row.state, row.kind)
        for row in pending_commits(Snapshot.load(OLD))
    ]
    transactions = [
        (op("plain"), None, subtask, state, "transaction")
        for subtask in (0, 1)
        for state in ("PRECOMMITTED", "OPEN")
    ]
    assert sorted(commits, key=str) == sorted(
        [
            *transactions,
            *[(op("files"), 1, subtask, "PRECOMMITTED", "file") for subtask in (0, 0, 1, 1)],
            *[(op("ahead"), 1, subtask, "PRECOMMITTED", "records") for subtask in (0, 1)],
            (op("opaque"), None, None, "UNKNOWN", "state"),
            (op("numbers"), None, None, "SUSPECTED", "state"),
            (op("batches"), None, None, "SUSPECTED", "state"),
            (op("buffer"), None, None, "SUSPECTED", "state"),
        ],
        key=str,
    )


def test_files_that_wait_for_their_names() -> None:
    files = [
        row.committable["pending"]
        for row in pending_commits(Snapshot.load(OLD))
        if row.kind == "file"
    ]
    folder = "/srv/flink-jobs/legacy-out/b=6"
    names = ["part-0-1", "part-0-2", "part-1-1", "part-1-2"]
    assert [(file["path"], file["size"]) for file in files] == [
        (f"file:{folder}/{name}", 35) for name in names
    ]
    for name, file in zip(names, files, strict=True):
        assert file["recoverable"]["target"] == f"{folder}/{name}"
        assert file["recoverable"]["temp"].startswith(f"{folder}/.{name}.inprogress.")


def test_what_only_java_reads_has_its_type_and_number() -> None:
    [row] = [row for row in pending_commits(Snapshot.load(OLD)) if row.state == "UNKNOWN"]
    assert row.committable == {
        "connector": "TwoPhaseCommitSinkFunction",
        "state": "state",
        "type": "SinkState<Kryo<legacy.Legacy$Handle>, Void>",
        "elements": 2,
    }


# ------------------------------------------------------------------------- the table and noise

SERIALIZERS: dict[str, Any] = {
    "": BytePrimitiveArraySerializer(),
    "byte[]": BytePrimitiveArraySerializer(),
    "Long": LongSerializer(),
    "Integer": IntSerializer(),
    "String": StringSerializer(),
}
WRITABLE = [
    state
    for state in KNOWN
    # Other bytes are damage in the state of a reader: see ``test_connectors``.
    if state.element in SERIALIZERS and state.name != "SourceReaderState"
]
"""Those with elements that our serializers write."""


def with_list_state(path: Path, name: str, element: str, values: Iterable[Any]) -> Snapshot:
    """The named job, in which ``buffer`` has another list state."""
    serializer = SERIALIZERS[element]
    meta = list_state_meta(name, OperatorStateMode.SPLIT_DISTRIBUTE, serializer)
    elements = []
    for value in values:
        out = DataOutput()
        serializer.serialize(value, out)
        elements.append(out.to_bytes())
    raw, infos = write_operator_stream([(meta, elements)], [])
    handle = OperatorStreamStateHandle(infos, ByteStreamStateHandle("h", raw))

    def changed(subtask: OperatorSubtaskState) -> OperatorSubtaskState:
        return replace(subtask, managed_operator_state=handle if subtask.index == 0 else None)

    metadata = Snapshot.load(NAMED).metadata
    operators = tuple(
        replace(operator, subtasks=tuple(map(changed, operator.subtasks)))
        for operator in metadata.operators
        if operator.uid == "buffer"
    )
    SavepointFolder(path).publish(replace(metadata, operators=operators), {})
    return Snapshot.load(path)


VALUES = {"": b"xyz", "byte[]": b"xyz", "Long": 5, "Integer": 5, "String": "x"}


@pytest.mark.parametrize("state", WRITABLE, ids=lambda state: f"{state.name}-{state.connector}")
def test_known_states_are_named_whatever_they_hold(state: Any, tmp_path: Path) -> None:
    name = state.name.replace("*", "some")
    snapshot = with_list_state(tmp_path / "s", name, state.element, [VALUES[state.element]])
    positions, commits = list(source_positions(snapshot)), list(pending_commits(snapshot))
    assert [row.op for row in positions] == (["buffer"] if state.role == SOURCE else [])
    assert [row.op for row in commits] == (["buffer"] if state.role == SINK else [])
    assert {row.status for row in positions} <= {"unknown", "assigned"}
    assert {row.state for row in commits} <= {"UNKNOWN"}


def test_every_role_is_tried() -> None:
    assert {state.role for state in WRITABLE} == {SOURCE, SINK, NEITHER}
    assert len(WRITABLE) > 25


def test_an_empty_state_of_a_source_is_no_finding(tmp_path: Path) -> None:
    [row] = source_positions(with_list_state(tmp_path / "s", "offset-states", "byte[]", []))
    assert (row.connector, row.status, row.problem) == ("DebeziumSourceFunction", "empty", None)
    empty = with_list_state(tmp_path / "e", "write-metadata-state", "", [])
    assert list(pending_commits(empty)) == []


def test_a_compactor_without_requests_has_nothing_to_commit(tmp_path: Path) -> None:
    """Version, length, magic number and no entry, as ``CompactorOperator`` writes it."""
    none = bytes.fromhex("0000000100000008a946be8300000000")
    name = "remaining_requests_raw_state"
    assert list(pending_commits(with_list_state(tmp_path / "s", name, "byte[]", [none]))) == []
    one = bytes.fromhex("000000010000000ca946be830000000100000000")
    [row] = pending_commits(with_list_state(tmp_path / "t", name, "byte[]", [none, one]))
    assert (row.state, row.committable["elements"]) == ("UNKNOWN", 1)


@pytest.mark.slow
def test_no_job_is_suspected_without_a_reason() -> None:
    """The other jobs of real Flink: those with names, or with keyed state."""
    suspects = {
        path
        for path in ALL_SNAPSHOTS
        for rows in (source_positions(Snapshot.load(path)), pending_commits(Snapshot.load(path)))
        for row in rows
        if (row.problem or "").startswith("it may be")
    }
    # Metadata of 1.18 and 1.20 has no names, and these operators have no keyed state.
    unnamed = {OLD, COMPRESSED_OPERATOR_STATE / "1.18.0", COMPRESSED_OPERATOR_STATE / "1.18.1"}
    assert suspects == {NAMED, *unnamed}
    assert len(ALL_SNAPSHOTS) > 200


# -------------------------------------------------------------------------------- foreign bytes


def elements(path: Path, name: str) -> list[bytes]:
    return [
        raw
        for operator in Snapshot.load(path).operators
        for _, handle, reader in operator.operator_state_readers()
        for info in handle.states
        if info.name == name
        for raw in reader.raw_elements(info)
    ]


@pytest.mark.parametrize("release", KAFKA)
def test_a_dump_of_kafkas_positions_needs_no_jar(release: str, run: Any) -> None:
    """The recorded state of real consumers: the same two elements in all releases."""
    path = str(LEGACY_CONNECTORS / release / "savepoint")
    ran = run("dump", path, "--state", "topic-partition-offset-states")
    [line] = [json.loads(line) for line in ran.out.splitlines()]
    assert (ran.err, line["kind"]) == ("", "op-union")
    assert line["value"] == [
        [{"cachedHash": 2986987, "partition": 13, "topic": "abc"}, 16768],
        [{"cachedHash": 3079330, "partition": 7, "topic": "def"}, 987654321],
    ]


PARSERS: list[tuple[Callable[[bytes], object], bytes]] = [
    (kinesis_shard, elements(KINESIS, "Kinesis-Stream-Shard-State")[0]),
    (
        kafka_partition,
        elements(LEGACY_CONNECTORS / "kafka-1.20" / "savepoint", "topic-partition-offset-states")[
            0
        ],
    ),
    (file_split, elements(READ_FILE, "splits")[0]),
    (acknowledged_messages, elements(OLD, "message-acknowledging-source-state")[0]),
    (bucket_commits, elements(OLD, "bucket-states")[0][4:]),
    (write_ahead_commit, elements(OLD, "pending-checkpoints")[0]),
]


@pytest.mark.parametrize(
    ("parse", "raw"), PARSERS, ids=lambda value: getattr(value, "__name__", "")
)
def test_elements_that_end_early_are_refused(parse: Callable[[bytes], object], raw: bytes) -> None:
    parse(raw)
    for size in range(len(raw)):
        with pytest.raises(FormatError):
            parse(raw[:size])
    with pytest.raises(FormatError):
        parse(raw + b"x")


@pytest.mark.slow
@given(data=st.data())
def test_other_bytes_are_read_or_refused(data: st.DataObject) -> None:
    parse, raw = data.draw(st.sampled_from(PARSERS))
    changed = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        parse(bytes(changed))
    except FormatError:
        pass


# ------------------------------------------------------------------- commands, copies, reports


@pytest.mark.parametrize("command", ["offsets", "committables"])
def test_the_exit_code_says_that_something_is_not_known(run: Any, command: str) -> None:
    for path in (OLD, NAMED):
        for arguments in ((), ("--json",)):
            ran = run(command, str(path), *arguments)
            assert ran.code == 1
            assert all(line.startswith("dstl: operator ") for line in ran.err.splitlines())
            assert "is not known: " in ran.err
            assert "no sources" not in ran.out
            assert "nothing is pending" not in ran.out
    assert {row["status"] for row in run("offsets", str(OLD), "--json").lines} >= {"suspected"}


def test_a_source_that_is_read_is_no_finding(run: Any) -> None:
    ran = run("offsets", str(READ_FILE))
    assert (ran.code, ran.err) == (0, "")
    assert run("committables", str(READ_FILE)).out == "nothing is pending\n"


@pytest.mark.parametrize("name", ["sequence 0", f"{op('sequence')}:sequence 0"])
def test_positions_of_such_sources_are_not_set(name: str) -> None:
    with pytest.raises(SavepointError, match=r"before FLIP-27 \(StatefulSequenceSource\); start"):
        set_positions(Snapshot.load(OLD), {name: "5"})


def test_partitions_of_such_a_consumer_do_not_start_over() -> None:
    snapshot = Snapshot.load(LEGACY_CONNECTORS / KAFKA[0] / "savepoint")
    with pytest.raises(SavepointError, match=r"'abc/13' of operator .* before FLIP-27"):
        set_positions(snapshot, {}, earliest=True)


@pytest.mark.parametrize("name", [None, op("files"), op("plain"), op("opaque"), op("ahead")])
def test_commits_of_such_sinks_are_not_dropped(name: str | None) -> None:
    with pytest.raises(SavepointError, match="cannot be dropped: it is no Sink V2"):
        without_commits(Snapshot.load(OLD), None, name)


def test_a_copy_says_the_same(tmp_path: Path) -> None:
    edit_savepoint(Snapshot.load(OLD)).write(tmp_path / "copy")
    assert places(tmp_path / "copy") == places(OLD)


def test_the_report_says_what_is_not_known() -> None:
    figures = report_figures(Snapshot.load(OLD))
    findings = {row["operator"]: row for row in figures["attention"] if "not known" in row["what"]}
    assert set(findings) == {op(uid) for uid in ("numbers", "batches", "buffer", "opaque")}
    assert findings[op("opaque")]["command"].startswith("dstl committables ")
    assert {row["sink"]: row["committables"] for row in figures["pending"]} == {
        op("plain"): 2,
        op("files"): 4,
        op("ahead"): 2,
    }
