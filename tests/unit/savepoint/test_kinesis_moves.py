"""A consumer of Kinesis becomes a source of the connector 5: its shards go on where they stand.

The bytes of ``KinesisStreamsSource`` are put together here with ``struct``, as its serializers
write them. The consumer's state is that of a real job with the classes of the connector's names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from dstl_core import Snapshot, edit_savepoint
from dstl_core.savepoint.edit.changed_elements import with_elements, with_operators
from tests.command_line import is_one_sentence, run
from tests.golden_files import CONNECTORS, LEGACY_CONNECTORS
from tests.unit.savepoint.test_kafka_moves import stored, utf

__all__ = ["run"]

STATE = "Kinesis-Stream-Shard-State"
TWO_STREAMS = LEGACY_CONNECTORS / "kinesis-two-subtasks" / "savepoint"
ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"
NUMBER = "4959033827149025660855969253836157109592157598913658"


def shard(number: int) -> str:
    return f"shardId-{number:012}"


def is_of(number: int) -> Callable[[bytes], bool]:
    return lambda raw: b"orders" in raw and shard(number).encode() + b"\0" in raw


def consumer_of(
    folder: Path, leave_out: tuple[int, ...] = (), change: Callable[[bytes], bytes] | None = None
) -> str:
    """The consumer with the stream ``orders`` alone, and some of its shards."""
    snapshot = Snapshot.load(TWO_STREAMS)

    def keep(_: int, elements: list[bytes]) -> list[bytes]:
        kept = [raw for raw in elements if b"orders" in raw]
        kept = [raw for raw in kept if not any(is_of(number)(raw) for number in leave_out)]
        return [raw if change is None else change(raw) for raw in kept]

    [operator] = [each for each in snapshot.operators if each.operator_states]
    states = {operator.operator_id: with_elements(operator, STATE, keep)}
    return edit_savepoint(with_operators(snapshot, states)).write(folder).removeprefix("file:")


def label(path: str) -> str:
    [operator] = [each for each in Snapshot.load(path).operators if each.operator_states]
    return operator.label


def converted(run: Any, path: str, out: Path, *more: str) -> Any:
    options = ["--kinesis-source", f"{label(path)}=clicks", *more, "--out", str(out)]
    return run("offsets", path, *options)


def split(number: int, iterator: str, marker: str | None = None, parent: int | None = None) -> Any:
    """Version 2 of a split; the hash keys are those of the job."""
    raw = utf(ARN) + utf(shard(number)) + utf(iterator)
    raw += b"\0" if marker is None else b"\1\0\1" + utf(marker)
    raw += pack(">i", 0) if parent is None else pack(">i", 1) + utf(shard(parent))
    return raw + utf(str(number * 100)) + utf(str(number * 100 + 99)) + b"\0"


def element(raw: bytes) -> bytes:
    """An element of the readers: the length of an array, the version, a length, a split."""
    return pack(">iii", len(raw) + 8, 2, len(raw)) + raw


def coordinator(last_seen: int, *splits: bytes) -> bytes:
    """Version 1 of the enumerator: all of these shards are assigned."""
    raw = b"\1" + utf(shard(last_seen)) + pack(">ii", len(splits), 2)
    raw += b"".join(pack(">i", len(each)) + each + pack(">i", 0) for each in splits)
    return pack(">iii", 1, 1, len(raw)) + raw


SPLITS = [
    split(0, "AFTER_SEQUENCE_NUMBER", f"{NUMBER}8898"),
    split(1, "TRIM_HORIZON"),
    split(2, "AT_SEQUENCE_NUMBER", f"{NUMBER}8999", parent=0),
    split(3, "LATEST"),
]


def test_each_shard_goes_on_behind_its_last_record(run: Any, tmp_path: Path) -> None:
    """Shard 2 stands inside of an aggregate, which is read again; shard 4 is read to its end."""
    path, out = consumer_of(tmp_path / "in"), tmp_path / "out"
    ran = converted(run, path, out, "--stream-arn", ARN)
    assert ran.code == 0, ran.err
    # Two subtasks take turns.
    elements = [element(SPLITS[number]) for number in (0, 2, 1, 3)]
    assert stored(out, "clicks") == (elements, coordinator(4, *SPLITS))
    rows = [line.split() for line in ran.out.splitlines()[1:]]
    assert [row[1:] for row in rows[:4]] == [
        [f"orders/{shard(0)}", "last", f"{NUMBER}8898", "last", f"{NUMBER}8898", "stays"],
        [f"orders/{shard(1)}", "earliest", "trim_horizon"],
        [f"orders/{shard(2)}", "last", f"{NUMBER}8999-3", "next", f"{NUMBER}8999"],
        [f"orders/{shard(3)}", "latest", "latest"],
    ]


def test_the_source_asks_for_shards_behind_a_missing_one(run: Any, tmp_path: Path) -> None:
    """A subtask may not have found it; the others are assigned, and not handed out again."""
    path, out = consumer_of(tmp_path / "in", (1, 4)), tmp_path / "out"
    assert converted(run, path, out, "--stream-arn", ARN).code == 0
    kept = [SPLITS[number] for number in (0, 2, 3)]
    elements = [element(kept[number]) for number in (0, 2, 1)]
    assert stored(out, "clicks") == (elements, coordinator(0, *kept))


def from_settings(raw: bytes) -> bytes:
    """Shard 3 with the marker of the consumer's other stream: a time that its settings have."""
    snapshot = Snapshot.load(TWO_STREAMS)
    [other] = [
        element
        for operator in snapshot.operators
        for _, handle, reader in operator.operator_state_readers()
        for info in handle.states
        for element in reader.raw_elements(info)
        if b"brige" in element
    ]
    if not is_of(3)(raw):
        return raw
    return raw[: raw.index(b"orders") + 6] + other[other.index(b"brige") + 5 :]


@pytest.mark.parametrize(
    ("leave_out", "change", "problem"),
    [
        ((3,), None, "shard 3 is missing in its state"),
        ((), from_settings, f"shard {shard(3)} starts at the time in the consumer's settings"),
        ((), lambda raw: raw.replace(b"shardId-", b"shardIx-"), "a shard has the name"),
    ],
)
def test_a_shard_that_would_be_lost_or_read_twice_is_refused(
    leave_out: tuple[int, ...], change: Any, problem: str, run: Any, tmp_path: Path
) -> None:
    path, out = consumer_of(tmp_path / "in", leave_out, change), tmp_path / "out"
    ran = converted(run, path, out, "--stream-arn", ARN)
    assert (ran.code, is_one_sentence(ran.err)) == (2, True), ran.err
    assert "cannot become a KinesisStreamsSource" in ran.err
    assert problem in ran.err
    assert not out.exists()


@pytest.mark.parametrize(
    ("arns", "problem"),
    [
        ((), "needs --stream-arn ARN with the ARN of the stream 'orders'"),
        (
            (ARN + "2",),
            f"of the stream 'orders', which no state of FlinkKinesisConsumer has; got '{ARN}2'",
        ),
        ((ARN, ARN + "2"), f"no operator of --kinesis-source reads '{ARN}2'"),
        (("orders",), "--stream-arn is wrong: expected arn:aws:kinesis"),
        ((ARN, ARN.replace("central", "north")), "expected one ARN of the stream 'orders'"),
    ],
)
def test_the_arn_is_that_of_the_stream(
    arns: tuple[str, ...], problem: str, run: Any, tmp_path: Path
) -> None:
    path, out = consumer_of(tmp_path / "in"), tmp_path / "out"
    ran = converted(run, path, out, *(part for arn in arns for part in ("--stream-arn", arn)))
    assert (ran.code, is_one_sentence(ran.err)) == (2, True), ran.err
    assert problem in ran.err
    assert not out.exists()


def test_a_consumer_of_two_streams_is_no_source(run: Any, tmp_path: Path) -> None:
    ran = converted(run, str(TWO_STREAMS), tmp_path / "out", "--stream-arn", ARN)
    assert ran.code == 2
    assert "it reads 2 streams (orders, übrige), and a source reads one" in ran.err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--stream-arn", ARN), "--stream-arn needs --kinesis-source"),
        (("--kinesis-source", "source=x"), "it is no FlinkKinesisConsumer"),
        (("--kinesis-source", "source=x", "--kafka-source", "source=y"), "become two sources"),
    ],
)
def test_options_that_do_not_fit_a_source(
    options: tuple[str, ...], problem: str, run: Any, tmp_path: Path
) -> None:
    path = str(CONNECTORS / "c-kafka" / "savepoint")
    ran = run("offsets", path, *options, "--out", str(tmp_path / "out"))
    assert (ran.code, is_one_sentence(ran.err)) == (2, True), ran.err
    assert problem in ran.err


def test_the_position_of_a_shard_names_the_way_to_go_on(run: Any, tmp_path: Path) -> None:
    path = consumer_of(tmp_path / "in")
    position = f"orders/{shard(0)}=5"
    ran = run("offsets", path, "--set", position, "--out", str(tmp_path / "out"))
    assert (ran.code, is_one_sentence(ran.err)) == (2, True), ran.err
    assert f"dstl offsets --kinesis-source {label(path)}=UID --stream-arn ARN" in ran.err
