"""Where sources stand and what sinks have pending, against what real Flink wrote.

``tests/golden/connectors`` has savepoints of Flink 2.2.1. ``truth.json`` is the work of a decoder
that shares no code with ours. The single payloads are of the connectors' own serializers, or were
read by Flink.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, edit_savepoint, verify_snapshot
from dstl_core.codec.connectors.committables import (
    describe_committable,
    parse_collector,
)
from dstl_core.codec.connectors.envelope import Versioned, write_versioned
from dstl_core.codec.connectors.file_source import FILE_SOURCE
from dstl_core.codec.connectors.kafka_source import KAFKA, write_enumerator
from dstl_core.codec.connectors.kinesis_source import KINESIS
from dstl_core.codec.connectors.mysql_cdc import MYSQL_CDC
from dstl_core.codec.connectors.number_sequence import NUMBER_SEQUENCE
from dstl_core.codec.connectors.pulsar_source import PULSAR
from dstl_core.codec.connectors.recognized import HYBRID
from dstl_core.errors import FormatError, SavepointError
from dstl_core.savepoint.connectors.pending_commits import pending_commits, without_commits
from dstl_core.savepoint.connectors.set_positions import set_positions
from dstl_core.savepoint.connectors.source_positions import source_positions, sources_of
from dstl_core.savepoint.report.figures import report_figures
from tests.command_line import is_one_sentence, run
from tests.golden_files import CONNECTORS

__all__ = ["run"]

NAMES = sorted(each.name for each in CONNECTORS.iterdir() if each.is_dir())
FORMATS = {
    "c-filesink": NUMBER_SEQUENCE,
    "c-filesink-open": NUMBER_SEQUENCE,
    "c-filesource": FILE_SOURCE,
    "c-hybrid": HYBRID,
    "c-kafka": KAFKA,
    "c-kafka-v2": KAFKA,
    "c-kinesis": KINESIS,
    "c-mysql-cdc": MYSQL_CDC,
    "c-numseq": NUMBER_SEQUENCE,
}


def truth(name: str) -> dict[str, Any]:
    operators = json.loads((CONNECTORS / name / "truth.json").read_bytes())["operators"]
    return {each["op"]: each for each in operators}


def loaded(name: str) -> Snapshot:
    return Snapshot.load(CONNECTORS / name / "savepoint")


def test_there_are_fixtures() -> None:
    assert set(FORMATS) < set(NAMES)
    assert len(NAMES) == 12


@pytest.mark.parametrize("name", NAMES)
def test_splits_and_enumerators_are_those_of_the_truth(name: str) -> None:
    expected = {op: each for op, each in truth(name).items() if each.get("splits")}
    sources = {each.operator.uid: each for each in sources_of(loaded(name))}
    assert set(sources) >= set(expected)
    for op, states in expected.items():
        source = sources[op]
        assert [
            {"subtask": subtask, "version": split.version, "hex": split.data.hex()}
            for subtask, split in source.splits
        ] == [
            {key: split[key] for key in ("subtask", "version", "hex")} for split in states["splits"]
        ]
        assert source.enumerator is not None
        stored = states["coordinator"]
        assert (source.enumerator.version, source.enumerator.data.hex()) == (
            stored["version"],
            stored["hex"],
        )
        assert source.form is FORMATS.get(name)
        if source.form is None:
            continue
        fields = [source.form.split(split.version, split.data) for _, split in source.splits]
        assert fields == [split["split"] for split in states["splits"]]
        enumerator = source.form.enumerator(source.enumerator.version, source.enumerator.data)
        assert enumerator == stored["enumerator"]


def test_transactions_of_a_sink_of_two_phases_are_pending() -> None:
    [truth] = json.loads((CONNECTORS / "c-twophase" / "truth.json").read_bytes())["operators"]
    expected = [
        (sink_state["subtask"], state, one["transaction"], one["startTime"])
        for sink_state in truth["twoPhase"]
        for state, listed in (
            ("PRECOMMITTED", sink_state["pendingCommit"]),
            ("OPEN", [sink_state["pending"]]),
        )
        for one in listed
    ]
    commits = list(pending_commits(loaded("c-twophase")))
    assert [
        (
            commit.subtask,
            commit.state,
            commit.committable["transaction"],
            commit.committable["start"],
        )
        for commit in commits
    ] == expected
    assert {(each.op, each.sink, each.checkpoint_id) for each in commits} == {
        ("sink", "sink", None)
    }
    assert commits[0].text.startswith("txn-0-0 (since 2026-11-")
    assert report_figures(loaded("c-twophase"))["pending"] == [
        {"sink": "sink", "checkpoint_id": None, "committables": 4}
    ]


@pytest.mark.parametrize("name", NAMES)
def test_pending_commits_are_those_of_the_truth(name: str) -> None:
    expected = []
    for op, states in truth(name).items():
        for committer in states.get("committers", []):
            collector = committer.get("collector", committer)
            expected += [
                (
                    op,
                    checkpoint["checkpointId"],
                    subtask["subtask"],
                    request["state"],
                    request["retries"],
                    request["committable"],
                )
                for checkpoint in collector["checkpoints"]
                for subtask in checkpoint["subtasks"]
                for request in subtask["requests"]
            ]
    pending = [
        (
            pending_commit.op,
            pending_commit.checkpoint_id,
            pending_commit.subtask,
            pending_commit.state,
            pending_commit.retries,
            pending_commit.committable,
        )
        for pending_commit in pending_commits(loaded(name))
        if pending_commit.kind != "transaction"
    ]
    assert sorted(pending, key=str) == sorted(expected, key=str)


# --------------------------------------------------------------------------------- payloads

EARLIEST = "00017400000003fffffffffffffffe8000000000000000"


def test_a_partition_that_was_not_read_yet_stands_at_a_marker() -> None:
    place = KAFKA.position(KAFKA.split(0, bytes.fromhex(EARLIEST)))
    assert (place.split, place.value, place.word, place.stop) == ("t/3", "earliest", "", None)


@pytest.mark.parametrize(
    ("version", "raw", "partitions", "pending"),
    [
        (
            0,
            "00000001000000000000000100000001000000170001740000000000000000000000058000000000000000",
            [("t", 0, "ASSIGNED")],
            [],
        ),
        (
            1,
            "000000020001740000000000017400000001",
            [("t", 0, "ASSIGNED"), ("t", 1, "ASSIGNED")],
            [],
        ),
        (
            2,
            "000000020001740000000000000000000174000000010000000101",
            [("t", 0, "ASSIGNED"), ("t", 1, "UNASSIGNED")],
            ["t/1"],
        ),
        (
            3,
            "00000001000000000000001700017400000000fffffffffffffffe80000000000000000000000001",
            [("t", 0, "ASSIGNED")],
            [],
        ),
    ],
)
def test_enumerators_of_kafka(version: int, raw: str, partitions: Any, pending: Any) -> None:
    enumerator = KAFKA.enumerator(version, bytes.fromhex(raw))
    assert [
        (partition["topic"], partition["partition"], partition["status"])
        for partition in enumerator["partitions"]
    ] == partitions
    assert [each.split for each in KAFKA.pending(enumerator)] == pending
    if version > 0:  # version 0 is written as version 1
        assert write_enumerator(version, enumerator) == (version, bytes.fromhex(raw))


def test_shards_of_kinesis() -> None:
    after = (
        "002461726e3a6177733a6b696e657369733a65752d776573742d313a313a73747265616d2f770003732d30001541"
        "465445525f53455155454e43455f4e554d42455201000100033439350000000000013000013900"
    )
    at_time = (
        "002461726e3a6177733a6b696e657369733a65752d776573742d313a313a73747265616d2f770003732d31000c41"
        "545f54494d455354414d5001010000018bcfe5680000000000010003732d3000013000013900"
    )
    places = [KINESIS.position(KINESIS.split(2, bytes.fromhex(raw))) for raw in (after, at_time)]
    assert [(each.split, each.word, each.value) for each in places] == [
        ("w/s-0", "last", "495"),
        ("w/s-1", "from", "1700000000000"),
    ]
    enumerator = KINESIS.enumerator(1, bytes.fromhex("010003732d310000000000000002"))
    assert enumerator == {"lastSeenShardId": "s-1", "splits": []}


def test_pulsar_and_mysql() -> None:
    [partition] = PULSAR.enumerator(
        3, bytes.fromhex("000000010001740000000300000001000000000000ffff")
    )
    assert partition == {"topic": "t", "partition": 3, "ranges": [[0, 65535]]}
    binlog = (
        "00000002000c62696e6c6f672d73706c6974000001000000397b2266696c65223a226d7973716c2d62696e2e3030"
        "30303037222c22706f73223a22313534222c226b696e64223a225350454349464943227d00000000000000000000"
        "00000300"
    )
    split = MYSQL_CDC.split(4, bytes.fromhex(binlog))
    assert split["finishedSplits"] == 3
    place = MYSQL_CDC.position(split)
    assert (place.split, place.word, place.value) == (
        "binlog-split",
        "next",
        "mysql-bin.000007:154",
    )


COLLECTORS = {
    "1.15 to 1.19": "b91f252c00000000000000010000005400000000000000050000000000000001000000400000"
    "0000"
    "00000002000000120000000700000002616100000000000000000000001200000007000000026262"
    "0000000200000001000000020000000000000000",
    "1.20": "b91f252c00000001000000010000005c000000000000000500000001000000010000000100000044"
    "00000000000000000000000200000012000000070000000261610000000000000000000000120000"
    "00070000000262620000000200000001000000020000000000000000",
    "2.x": "b91f252c000000010000000100000058000000000000000500000001000000020000000100000040"
    "00000000000000000000000200000012000000070000000261610000000000000000000000120000"
    "000700000002626200000002000000010000000200000000",
}


@pytest.mark.parametrize("release", COLLECTORS)
def test_committers_of_every_release(release: str) -> None:
    raw = bytes.fromhex(COLLECTORS[release])
    version, collector = parse_collector(write_versioned(Versioned(2, raw)))
    assert version == 2
    assert [
        (request.checkpoint_id, request.committable.data, request.retries, request.state)
        for request in collector.requests
    ] == [(5, b"aa", 0, "RECEIVED"), (5, b"bb", 2, "RETRY")]
    assert collector.without(frozenset()) == raw
    empty = collector.without(None)
    assert empty == raw[:8] + bytes(4)
    assert parse_collector(write_versioned(Versioned(2, empty)))[1].requests == ()


def test_a_transaction_of_kafka() -> None:
    raw = bytes.fromhex("0001000000000000004d000674782d302d31")
    assert describe_committable(Versioned(1, raw)) == (
        "kafka",
        {"producerId": 77, "epoch": 1, "transactionalId": "tx-0-1"},
    )


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_cut_payload_is_a_format_error(name: str) -> None:
    # The last byte of a split of MySQL may be missing.
    for source in sources_of(loaded(name)):
        form, stored = source.form, source.enumerator
        assert form is not None
        assert stored is not None
        for _, split in source.splits[:1]:
            for end in range(len(split.data) - (form is MYSQL_CDC)):
                with pytest.raises(FormatError):
                    form.split(split.version, split.data[:end])
        ends = range(len(stored.data)) if form is not MYSQL_CDC else range(8)
        for end in ends:
            with pytest.raises(FormatError):
                form.enumerator(stored.version, stored.data[:end])


# ------------------------------------------------------------------------------------ copies


def rows(snapshot: Snapshot) -> dict[str, tuple[str, int | None]]:
    return {each.split: (each.position, each.subtask) for each in source_positions(snapshot)}


def test_offsets_of_kafka_are_set_in_a_copy(tmp_path: Path) -> None:
    before = rows(loaded("c-kafka"))
    changed, moved = set_positions(
        loaded("c-kafka"), {"orders/0": "5", "source:orders/2": "committed"}
    )
    assert [(each.split, each.old, each.new, each.records) for each in moved] == [
        ("orders/0", "7", "5", -2),
        ("orders/2", "2007", "committed", None),
    ]
    edit_savepoint(changed).write(tmp_path / "out")
    copy = Snapshot.load(tmp_path / "out")
    assert verify_snapshot(copy).findings == []
    after = rows(copy)
    assert after["orders/0"] == ("5", before["orders/0"][1])
    assert after["orders/2"] == ("committed", before["orders/2"][1])
    rest = before.keys() - {"orders/0", "orders/2"}
    assert {name: after[name] for name in rest} == {name: before[name] for name in rest}
    # Nothing else has changed: neither the coordinator nor the sink.
    for one, two in zip(loaded("c-kafka").operators, copy.operators, strict=True):
        assert one.uid == two.uid
        assert one.state.coordinator_state == two.state.coordinator_state
        if one.uid != "source":
            assert list(one.dump()) == list(two.dump())


FILES = "file:/checkpoints/conn/conn-filesource/in"


def test_records_of_files_are_set_in_a_copy(tmp_path: Path) -> None:
    name = f"{FILES}/part-1.txt [0000000001]"
    changed, moved = set_positions(loaded("c-filesource"), {name: "10"})
    assert [(each.split, each.old, each.new, each.records) for each in moved] == [
        (name, "37", "10", -27)
    ]
    edit_savepoint(changed).write(tmp_path / "out")
    copy = Snapshot.load(tmp_path / "out")
    assert verify_snapshot(copy).findings == []
    assert rows(copy) == rows(loaded("c-filesource")) | {name: ("10", 0)}
    [before], [after] = (
        [each for _, each in next(sources_of(snapshot)).splits if b"part-1" in each.data]
        for snapshot in (loaded("c-filesource"), copy)
    )
    assert (after.data[:-8], after.data[-8:]) == (before.data[:-8], (10).to_bytes(8, "big"))


def test_every_partition_of_kafka_starts_over(tmp_path: Path) -> None:
    changed, moved = set_positions(loaded("c-kafka"), {"orders/1": "11"}, earliest=True)
    assert len(moved) == len(rows(loaded("c-kafka")))
    edit_savepoint(changed).write(tmp_path / "out")
    positions = rows(Snapshot.load(tmp_path / "out"))
    assert positions.pop("orders/1")[0] == "11"
    assert {position for position, _ in positions.values()} == {"earliest"}
    # Who holds a split stays.
    holders = {name: subtask for name, (_, subtask) in rows(loaded("c-kafka")).items()}
    assert {name: subtask for name, (_, subtask) in positions.items()} == {
        name: holders[name] for name in positions
    }


@pytest.mark.parametrize(
    ("name", "positions", "problem"),
    [
        ("c-kafka", {"orders/77": "1"}, "no source has the split 'orders/77'; the snapshot has: "),
        ("c-kafka", {"orders/0": "-7"}, "expected a number from 0, earliest, latest or committed"),
        ("c-kafka", {"orders/0": "9" * 19 + "9"}, "expected a number from 0"),
        ("c-numseq", {"1": "earliest"}, "expected a number, got 'earliest'"),
        ("c-kinesis", {}, "the snapshot has none"),
        (
            "c-filesource",
            {f"{FILES}/part-1.txt [0000000001]": "-1"},
            "records that are done, from 0",
        ),
        ("c-filesource", {f"{FILES}/part-5.txt [0000000005]": "3"}, "no reader has it yet"),
        ("c-mysql-cdc", {"binlog-split": "7"}, "it is of mysql cdc, and only splits of Kafka"),
    ],
)
def test_a_position_that_cannot_be_set(name: str, positions: dict[str, str], problem: str) -> None:
    with pytest.raises((SavepointError, ValueError), match=problem):
        set_positions(loaded(name), positions, earliest=not positions)


def test_an_unassigned_partition_without_an_offset_cannot_be_set() -> None:
    pending = [each for each in source_positions(loaded("c-kafka-v2")) if each.subtask is None]
    assert [each.position for each in pending] == ["not set"] * len(pending)
    for split in pending:
        with pytest.raises(SavepointError, match="stores no offset for such a split"):
            set_positions(loaded("c-kafka-v2"), {split.split: "3"})


def test_committables_are_dropped_in_a_copy(tmp_path: Path) -> None:
    edit_savepoint(without_commits(loaded("c-filesink"), [1])).write(tmp_path / "one")
    kept = [each for each in pending_commits(loaded("c-filesink")) if each.checkpoint_id != 1]
    copy = Snapshot.load(tmp_path / "one")
    assert kept
    assert list(pending_commits(copy)) == kept
    assert verify_snapshot(copy).findings == []
    edit_savepoint(without_commits(loaded("c-filesink"), None)).write(tmp_path / "none")
    assert list(pending_commits(Snapshot.load(tmp_path / "none"))) == []
    assert rows(Snapshot.load(tmp_path / "none")) == rows(loaded("c-filesink"))
    with pytest.raises(SavepointError, match=r"Checkpoint 9 has no committables; .*: 1, 2"):
        without_commits(loaded("c-filesink"), [1, 9])


# ------------------------------------------------------------------------------ command line


def test_the_command_shows_and_sets_positions(run: Any, tmp_path: Path) -> None:
    path = str(CONNECTORS / "c-numseq" / "savepoint")
    ran = run("offsets", path)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[1].split() == (
        ["source", "number", "sequence", "1", "next", "405", "66667", "subtask", "0", "assigned"]
    )
    out = str(tmp_path / "out")
    ran = run("offsets", path, "--set", "1=10405", "--out", out)
    assert (ran.code, ran.err) == (0, "")
    assert "skips 10,000" in ran.out
    moved = run("offsets", out, "--json").lines
    assert [each["position"] for each in moved] == ["10405", "67072", "133738"]
    assert moved[0]["stop"] == "66667"
    again = run("offsets", path, "--set", "1=10405", "--out", out)
    assert again.code == 2
    assert run("offsets", path, "--set", "1=1", "--out", out, "--overwrite").code == 0


def test_times_of_positions_are_shown_beside_the_time_of_the_snapshot(
    run: Any, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    shutil.copytree(CONNECTORS / "c-mysql-cdc" / "savepoint", path)
    os.utime(path / "_metadata", (1_700_007_200, 1_700_007_200))
    [row] = [each for each in run("offsets", str(path), "--json").lines if each["time_ms"]]
    assert (row["time_ms"], row["snapshot_ms"]) == (1_700_000_000_000, 1_700_007_200_000)
    *_, position, written = run("offsets", str(path)).out.splitlines()
    assert position.rstrip().endswith("2023-11-14 22:13:20 UTC, 2 h behind")
    assert written.startswith("snapshot written: 2023-11-15 00:13:20 UTC, ")
    assert written.endswith(" ago")
    kafka = run("offsets", str(CONNECTORS / "c-kafka" / "savepoint")).out
    assert "time of position" not in kafka


@pytest.mark.slow
def test_the_command_shows_and_drops_committables(run: Any, tmp_path: Path) -> None:
    path = str(CONNECTORS / "c-kafka" / "savepoint")
    ran = run("committables", path)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[1].split() == (
        ["sink", "1", "0", "RECEIVED", "0", "kafka", "shop-0-1", "(epoch", "3)"]
    )
    out = str(tmp_path / "out")
    ran = run("committables", path, "--drop", "1", "--out", out)
    assert (ran.code, ran.out.splitlines()[0]) == (0, "dropped: 2, kept: 2")
    assert {each["checkpoint_id"] for each in run("committables", out, "--json").lines} == {2}
    assert run("committables", path, "--drop", "all", "--out", out, "--overwrite").code == 0
    assert run("committables", out).out == "nothing is pending\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("offsets", "--set", "1=2"), "--kafka-source and --kinesis-source need --out"),
        (("offsets", "--set", "1", "--out", "x"), "--set is wrong: expected SPLIT=POSITION"),
        (("committables", "--drop", "1"), "--drop needs --out"),
        (("committables", "--drop", "new", "--out", "x"), "--drop is wrong"),
        (("offsets", "--out", "x"), "--out needs one of --set, --map, --earliest"),
        (("committables", "--out", "x"), "--out and --op need --drop"),
    ],
)
def test_options_that_do_not_fit(run: Any, arguments: tuple[str, ...], problem: str) -> None:
    command, *options = arguments
    ran = run(command, str(CONNECTORS / "c-numseq" / "savepoint"), *options)
    assert ran.code == 2
    assert is_one_sentence(ran.err)
    assert problem in ran.err
