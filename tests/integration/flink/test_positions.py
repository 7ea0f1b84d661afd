"""Real Flink goes on reading at exactly the positions that were set."""

from __future__ import annotations

import shutil
import struct
import tempfile
from pathlib import Path

import pytest

from dstl_core import Snapshot, edit_savepoint
from dstl_core.savepoint.connectors.edited_sources import edited_sources
from dstl_core.savepoint.connectors.known_states import READER_STATE
from dstl_core.savepoint.connectors.set_positions import set_positions
from dstl_core.savepoint.edit.kept_state import Files
from tests.golden_files import CONNECTORS, GOLDEN, LEGACY_CONNECTORS, snapshot
from tests.integration.flink.checker import FlinkChecker, Operator, State
from tests.unit.savepoint.test_kinesis_moves import ARN, SPLITS, consumer_of

pytestmark = pytest.mark.flink


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_source_goes_on_where_it_was_set(
    flink: FlinkChecker, tmp_path: Path, parallelism: int
) -> None:
    positions = {"1": "66660", "2": "133334", "3": "199990"}
    changed, _ = set_positions(Snapshot.load(CONNECTORS / "c-numseq" / "savepoint"), positions)
    out = edit_savepoint(changed).write(tmp_path / "out")

    numbers = flink.read_numbers(out, "source", last_number=LAST, parallelism=parallelism)

    assert numbers == [*range(66660, 66668), 133334, *range(199990, LAST + 1)]


LAST = 200_000
"""The last number of the source that the savepoint was taken of."""


def test_files_go_on_after_the_records_that_were_set(flink: FlinkChecker) -> None:
    """The fixture's files have 40 lines each. Its paths move to a folder whose name is as long."""
    place = b"/checkpoints/conn/conn-filesource"
    with tempfile.TemporaryDirectory(
        prefix="x" * (len(place) - len("/tmp/12345678")), dir="/tmp"
    ) as folder:
        assert len(folder) == len(place)
        work = Path(folder)
        shutil.copytree(CONNECTORS / "c-filesource" / "savepoint", work / "savepoint")
        metadata = work / "savepoint" / "_metadata"
        metadata.write_bytes(metadata.read_bytes().replace(place, folder.encode()))
        (work / "in").mkdir()
        for file in range(7):
            lines = "".join(f"file{file}-{line}\n" for line in range(40))
            (work / "in" / f"part-{file}.txt").write_text(lines)
        changed, _ = set_positions(
            Snapshot.load(work / "savepoint"),
            {
                f"file:{folder}/in/part-1.txt [0000000001]": "12",
                f"file:{folder}/in/part-2.txt [0000000004]": "40",
            },
        )
        out = edit_savepoint(changed).write(work / "out")

        read = flink.read_lines(out, "source", folder=work / "in", parallelism=2)

    starts = {1: 12, 2: 40}
    assert sorted(read) == sorted(
        f"file{file}-{line}" for file in range(7) for line in range(starts.get(file, 0), 40)
    )


@pytest.mark.parametrize("files", ["share", "copy"])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_positions_of_a_checkpoint_are_set_without_its_keyed_state(
    flink: FlinkChecker, tmp_path: Path, files: Files, parallelism: int
) -> None:
    """Of splits 1..50000000 and ..100000000 the reader is to go on before the ends."""
    name = "o-source-coordinator-chk"
    shutil.copytree(GOLDEN / name, tmp_path / name)
    source = Snapshot.load(tmp_path / name / snapshot(name).relative_to(GOLDEN / name))
    changed, moved = set_positions(source, {"1": "49999990", "2": "99999995"})
    out = edit_savepoint(changed).with_files(files).write(tmp_path / "out")

    read = flink.read_numbers(out, "seq", last_number=100_000_000, parallelism=parallelism)

    assert len(moved) == 2
    assert read == [*range(49_999_990, 50_000_001), *range(99_999_995, 100_000_001)]
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"_metadata", "_dstl.json"}


def test_the_state_of_a_source_that_was_a_consumer_is_restored(
    flink: FlinkChecker, tmp_path: Path
) -> None:
    """Flink gives each subtask its splits; the class of the source is not in reach of the tests."""
    source = Snapshot.load(LEGACY_CONNECTORS / "kafka-1.20" / "savepoint")
    [consumer] = source.operators
    edited = edited_sources(
        source, kafka_sources={consumer.label: "orders"}, positions={}, topics={}
    )
    splits = State(READER_STATE, "op-list", "bytes")

    restored = flink.restore(
        edited.edit.write(tmp_path / "out"), [Operator("orders", operator_states=[splits])]
    )

    [entry] = restored.entries
    expected = [("abc", 13, 16769), ("def", 7, 987654322)]
    assert [kafka_split(raw) for raw in entry["value"]] == expected


def test_the_shards_of_a_source_that_was_a_consumer_are_restored(
    flink: FlinkChecker, tmp_path: Path
) -> None:
    source = Snapshot.load(consumer_of(tmp_path / "in"))
    [consumer] = [operator for operator in source.operators if operator.operator_states]
    edited = edited_sources(
        source,
        kafka_sources={},
        kinesis_sources={consumer.label: "clicks"},
        stream_arns=[ARN],
        positions={},
        topics={},
    )
    shards = State(READER_STATE, "op-list", "bytes")

    restored = flink.restore(
        edited.edit.write(tmp_path / "out"), [Operator("clicks", operator_states=[shards])]
    )

    held = [bytes.fromhex(raw) for entry in restored.entries for raw in entry["value"]]
    assert sorted(raw[8:] for raw in held) == sorted(SPLITS)


def kafka_split(text: str) -> tuple[str, int, int]:
    """A split of ``KafkaSource`` behind its version and its length."""
    raw = bytes.fromhex(text)
    version, length, name = struct.unpack_from(">iih", raw)
    assert (version, length) == (0, len(raw) - 8)
    partition, offset, stop = struct.unpack_from(">iqq", raw, 10 + name)
    assert stop == -(1 << 63)
    return raw[10 : 10 + name].decode(), partition, offset
