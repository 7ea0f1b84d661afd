"""A job moves to another source of Kafka, or to another cluster: its positions go with it.

The bytes of ``KafkaSource`` are put together here with ``struct``, as the connector's own classes
write them. The consumers are recorded ones of Flink 1.8, 1.13 and 1.20.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from dstl_core import Snapshot, edit_savepoint
from dstl_core.errors import SavepointError
from dstl_core.model.handle import ByteStreamStateHandle, ChannelStateHandle, ChannelStateKind
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint.connectors.consumer_to_source import with_kafka_sources
from dstl_core.savepoint.connectors.known_states import READER_STATE
from dstl_core.savepoint.edit.changed_elements import with_elements, with_operators
from tests.command_line import is_one_sentence, run
from tests.golden_files import CONNECTORS, LEGACY_CONNECTORS

__all__ = ["run"]

STATE = "topic-partition-offset-states"
CONSUMER = "0a448493b4782967b150582570326227"
SHOP = CONNECTORS / "c-kafka" / "savepoint"
NOT_SET, EARLIEST, LATEST, COMMITTED = range(-915623761776, -915623761772)
NO_STOP = -(1 << 63)


def utf(text: str) -> bytes:
    raw = text.encode()
    return pack(">H", len(raw)) + raw


def element(topic: str, partition: int, offset: int) -> bytes:
    """An element of the readers' state: the length of an array, version 0, a length, a split."""
    split = utf(topic) + pack(">iqq", partition, offset, NO_STOP)
    return pack(">iii", len(split) + 8, 0, len(split)) + split


def coordinator(*partitions: tuple[str, int]) -> bytes:
    """Version 2 of the enumerator: all partitions are assigned, and the first discovery is over."""
    raw = pack(">i", len(partitions))
    for topic, partition in partitions:
        raw += utf(topic) + pack(">ii", partition, 0)
    raw += b"\1"
    return pack(">iii", 1, 2, len(raw)) + raw


def consumer(release: str) -> Path:
    return LEGACY_CONNECTORS / release / "savepoint"


def offsets(run: Any, path: Path, *options: str | Path) -> Any:
    return run("offsets", str(path), *map(str, options))


def stored(path: Path, uid: str) -> tuple[list[bytes], bytes]:
    """The elements of the readers of all subtasks, and the state of the coordinator."""
    operator = Snapshot.load(path).operator(OperatorIdentifier.for_uid(uid))
    assert [info.name for info in operator.operator_states] == [READER_STATE]
    elements = [
        raw
        for _, handle, reader in operator.operator_state_readers()
        for info in handle.states
        for raw in reader.raw_elements(info)
    ]
    held = operator.state.coordinator_state
    assert held is not None
    return elements, held.data


@pytest.mark.parametrize("release", ["kafka-1.8", "kafka-1.13", "kafka-1.20"])
def test_a_consumer_becomes_a_source_that_reads_the_next_offset(
    release: str, run: Any, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    ran = offsets(run, consumer(release), "--kafka-source", f"{CONSUMER}=orders", "--out", out)
    assert ran.code == 0, ran.err
    assert stored(out, "orders") == (
        [element("abc", 13, 16769), element("def", 7, 987654322)],
        coordinator(("abc", 13), ("def", 7)),
    )
    assert [operator.uid for operator in Snapshot.load(out).operators] == ["orders"]


def with_offsets(path: Path, offsets: list[int], repeated: int | None = None) -> Path:
    """The recorded consumer with other offsets; its first partition once more, at the end."""
    snapshot = Snapshot.load(consumer("kafka-1.20"))

    def change(_: int, elements: list[bytes]) -> list[bytes]:
        pairs = zip(elements, offsets, strict=True)
        changed = [raw[:-8] + pack(">q", offset) for raw, offset in pairs]
        again = [] if repeated is None else [elements[0][:-8] + pack(">q", repeated)]
        return changed + again

    [operator] = snapshot.operators
    states = {operator.operator_id: with_elements(operator, STATE, change)}
    return Path(edit_savepoint(with_operators(snapshot, states)).write(path).removeprefix("file:"))


@pytest.mark.parametrize(
    ("before", "after"), [(EARLIEST, -2), (LATEST, -1), (COMMITTED, -3), (0, 1), (41, 42)]
)
def test_markers_of_a_consumer_are_those_of_a_source(
    before: int, after: int, run: Any, tmp_path: Path
) -> None:
    source, out = with_offsets(tmp_path / "in", [before, 5]), tmp_path / "out"
    ran = offsets(run, source, "--kafka-source", f"{CONSUMER}=orders", "--out", out)
    assert ran.code == 0, ran.err
    assert stored(out, "orders")[0] == [element("abc", 13, after), element("def", 7, 6)]


def test_a_partition_without_a_position_is_left_out_and_named(run: Any, tmp_path: Path) -> None:
    source, out = with_offsets(tmp_path / "in", [NOT_SET, 5]), tmp_path / "out"
    ran = offsets(run, source, "--kafka-source", f"{CONSUMER}=orders", "--out", out)
    assert "left out, without a position: abc/13; the source reads it from the earliest" in ran.out
    assert stored(out, "orders") == ([element("def", 7, 6)], coordinator(("def", 7)))


def test_of_equal_partitions_of_a_union_the_last_one_counts(run: Any, tmp_path: Path) -> None:
    source, out = with_offsets(tmp_path / "in", [3, 5], repeated=70), tmp_path / "out"
    ran = offsets(run, source, "--kafka-source", f"{CONSUMER}=orders", "--out", out)
    assert ran.code == 0, ran.err
    assert stored(out, "orders")[0] == [element("abc", 13, 71), element("def", 7, 6)]


def test_in_flight_data_of_a_consumer_is_not_lost_but_refused() -> None:
    snapshot = Snapshot.load(consumer("kafka-1.20"))
    [operator] = snapshot.operators
    buffers = ByteStreamStateHandle("buffers", pack(">i", 3) + b"abc")
    in_flight = ChannelStateHandle(
        ChannelStateKind.RESULT_SUBPARTITION, 0, (0, 0), (0,), buffers.state_size, buffers
    )
    subtasks = tuple(
        replace(subtask, result_subpartition_state=(in_flight,))
        for subtask in operator.state.subtasks
    )
    states = {operator.operator_id: replace(operator.state, subtasks=subtasks)}
    unaligned = with_operators(snapshot, states)
    with pytest.raises(SavepointError, match="in-flight data of an unaligned checkpoint"):
        with_kafka_sources(unaligned, unaligned.operators)


def test_another_cluster_has_other_topics_and_offsets(run: Any, tmp_path: Path) -> None:
    positions, out = tmp_path / "positions", tmp_path / "out"
    positions.write_text("abc/13=0\ndef/7=latest\n")
    edits = ["--kafka-source", f"{CONSUMER}=orders", "--map", positions]
    edits += ["--topic", "abc=def", "--topic", "def=abc"]
    ran = offsets(run, consumer("kafka-1.20"), *edits, "--out", out, "--json")
    assert ran.code == 0, ran.err
    assert stored(out, "orders") == (
        [element("def", 13, 0), element("abc", 7, -1)],
        coordinator(("def", 13), ("abc", 7)),
    )
    printed = json.loads(ran.out)
    assert printed["topics"] == [
        {"op": CONSUMER, "old": "abc", "new": "def", "partitions": 1},
        {"op": CONSUMER, "old": "def", "new": "abc", "partitions": 1},
    ]
    moves = [(row["split"], row["old"], row["new"], row["records"]) for row in printed["moved"]]
    assert moves == [("abc/13", "16769", "0", -16769), ("def/7", "987654322", "latest", None)]


def test_topics_change_in_readers_and_in_the_enumerator(run: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = offsets(run, SHOP, "--topic", "orders=orders.v2", "--out", out)
    assert ran.code == 0, ran.err
    assert "topic orders of source is orders.v2: partitions 7" in ran.out
    old, new = stored(SHOP, "source"), stored(out, "source")
    # Only lengths and names differ: three characters more a partition of that topic.
    name, longer = utf("orders"), utf("orders.v2")
    splits = [raw[12:].replace(name, longer) for raw in old[0]]
    assert new[0] == [pack(">iii", len(raw) + 8, 0, len(raw)) + raw for raw in splits]
    assert len(new[1]) == len(old[1]) + 3 * old[1].count(name)
    assert (new[1].count(longer), new[1].count(name)) == (7, 0)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--topic", "nothing=x"], "No KafkaSource of the snapshot reads the topic 'nothing'; "),
        (["--topic", "orders=payments.v1"], "would have the name 'payments.v1'"),
        (["--topic", "orders="], "--topic is wrong"),
        (["--topic", f"orders={'x' * 250}"], "expected 1 to 249 characters"),
        (["--topic", "orders=orders/0"], "got 'orders/0'"),
        (["--topic", "orders=.."], "got '..'"),
        (["--topic", "orders"], "--topic is wrong: expected OLD=NEW, got 'orders'"),
        (["--kafka-source", "source=new"], "Operator 'source' cannot become a KafkaSource"),
        (["--kafka-source", "nobody=new"], "nobody"),
        (["--kafka-source", "source"], "expected OP=UID, got 'source'"),
        (["--map", "/nowhere"], "The file of positions '/nowhere' cannot be read"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    options: list[str], problem: str, run: Any, tmp_path: Path
) -> None:
    ran = offsets(run, SHOP, *options, "--out", tmp_path / "out")
    assert (ran.code, is_one_sentence(ran.err)) == (2, True), ran.err
    assert problem in ran.err
    assert not (tmp_path / "out").exists()


def test_the_position_of_a_consumer_names_the_way_to_set_it(run: Any, tmp_path: Path) -> None:
    ran = offsets(run, consumer("kafka-1.20"), "--set", "abc/13=5", "--out", tmp_path / "out")
    assert f"dstl offsets --kafka-source {CONSUMER}=UID" in ran.err
