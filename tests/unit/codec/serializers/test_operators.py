"""Serializers of Flink's own operators, and the list of all that Flink has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dstl_core.codec.binary_row import RowData
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers import (
    BUILT_IN,
    AnySerializer,
    SnapshotContext,
    Types,
    deserialize_exactly,
    serialize_to_bytes,
    write_snapshot,
)
from dstl_core.codec.serializers.operators.cep import (
    DeweyNumberSerializer,
    EventIdSerializer,
    NFAStateSerializer,
    NodeIdSerializer,
)
from dstl_core.codec.serializers.operators.sequenced_multiset import RowDataKeySerializer
from dstl_core.codec.serializers.operators.two_phase_commit import TwoPhaseCommitSerializer
from dstl_core.codec.serializers.table_types import RowDataSerializer, row_data_of
from dstl_core.errors import FormatError, UnsupportedVersionError
from tests.golden_files import GOLDEN
from tests.unit.codec.java_bytes import i32, i64, utf

DOCS = Path(__file__).parents[4] / "docs"
FLINK = "org.apache.flink."
LINKED = FLINK + "table.runtime.sequencedmultisetstate.linked."
LONG = utf(FLINK + "api.common.typeutils.base.LongSerializer$LongSerializerSnapshot") + i32(3)
NULLABLE_LONG = (
    utf(FLINK + "api.java.typeutils.runtime.NullableSerializer$NullableSerializerSnapshot")
    + i32(3, 911108, 2, 8, 1333245, 1, 1)
    + LONG
)


def read(snapshot: bytes) -> AnySerializer:
    """Reads a snapshot, which has to be written back to the same bytes."""
    data = DataInput(snapshot)
    serializer = SnapshotContext(BUILT_IN).read_snapshot(data)
    data.expect_end("a snapshot")
    assert written(serializer) == snapshot
    return serializer


def written(serializer: AnySerializer) -> bytes:
    out = DataOutput()
    write_snapshot(out, serializer)
    return out.to_bytes()


def text(serializer: AnySerializer, raw: bytes) -> object:
    """The text of a value, which has to be written back to the same bytes."""
    value = deserialize_exactly(serializer, raw)
    assert serialize_to_bytes(serializer, value) == raw
    return serializer.to_text(value)


# ------------------------------------------------------------------------------------- lists


def listed() -> dict[str, str]:
    lines = (GOLDEN / "serializer-snapshots" / "classes.tsv").read_text().splitlines()
    return dict(line.split("\t") for line in lines)


def test_the_page_has_every_serializer_of_flink_and_what_dstl_does_with_it() -> None:
    page = (DOCS / "reference" / "serializers.md").read_text()
    rows = re.findall(r"^\| `(\S+)` \| (\S+)(?: to (\S+))? \| (yes|no: .+) \|$", page, re.MULTILINE)
    shown = {
        FLINK + name: (first, last or first, what == "yes") for name, first, last, what in rows
    }
    expected = {}
    for name, versions in listed().items():
        minors = [each.rpartition(".")[0] for each in versions.split()]
        expected[name] = minors[0], minors[-1], name in set(BUILT_IN)
    assert shown == expected


def test_every_serializer_of_dstl_is_one_of_flink_or_of_a_library() -> None:
    avro = {FLINK + "formats.avro.typeutils.AvroSerializerSnapshot"}
    library = {name for name in BUILT_IN if name.startswith("org.apache.flinkx.")}
    page = (DOCS / "reference" / "serializers.md").read_text().partition("\n## flink-scala-api")[2]
    assert library == {
        "org.apache.flinkx.api.serializer." + name
        for name in re.findall(r"`(\w+Serializer\S*Snapshot)`", page)
    }
    assert set(BUILT_IN) - set(listed()) - library == avro


# --------------------------------------------------------------------------------------- CEP

NODE = NodeIdSerializer(EventIdSerializer())
DEWEY = DeweyNumberSerializer()
MATCH = b"\2A" + b"\1" + i32(4) + i64(5) + b"\3BC" + i32(2, 1, 0) + i64(6)
"""State "A", a node of event 4 at 5 ms in stage "BC", version 1.0, begun at 6 ms."""


@pytest.mark.parametrize(("outer", "previous"), [(2, True), (2, False), (1, False)])
def test_matches_of_both_snapshots(outer: int, previous: bool) -> None:
    nfa = NFAStateSerializer(DEWEY, NODE, EventIdSerializer(), outer, previous)
    assert read(written(nfa)) == nfa
    match = MATCH + (i64(7) if previous else b"") + b"\1" + i32(4) + i64(5)
    shown = {
        "state": "A",
        "node": {"event": {"id": 4, "ts": 5}, "page": "BC"},
        "version": "1.0",
        "start": 6,
        "previous": 7 if previous else None,
        "start_event": {"id": 4, "ts": 5},
    }
    assert text(nfa, i32(1) + match + i32(0)) == {"partial": [shown], "completed": []}
    assert text(nfa, i32(0) + i32(1) + match) == {"partial": [], "completed": [shown]}


def test_a_count_of_matches_that_cannot_be() -> None:
    nfa = NFAStateSerializer(DEWEY, NODE, EventIdSerializer())
    with pytest.raises(FormatError, match="A count does not fit into the data"):
        deserialize_exactly(nfa, i32(2**31 - 1) + bytes(20))


# ------------------------------------------------------------------------ sequenced multiset


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("MetaSqnInfoSerializer$MetaSqnInfoSerializerSnapshot", {"highest": 9, "size": 2}),
        ("RowSqnInfoSerializer$RowSqnInfoSerializerSnapshot", {"first": 9, "last": 2}),
    ],
)
def test_numbers_of_rows(name: str, shown: object) -> None:
    info = read(utf(LINKED + name) + i32(3, 911108, 0, 1333245, 1, 2) + LONG + LONG)
    assert text(info, i64(9, 2)) == shown


def test_a_row_of_the_linked_list() -> None:
    row = row_data_of("INT")
    node = read(
        utf(LINKED + "NodeSerializer$NodeSerializerSnapshot")
        + i32(3, 911108, 0, 1333245, 1, 6)
        + written(row)
        + LONG
        + 3 * NULLABLE_LONG
        + LONG
    )
    stored = serialize_to_bytes(row, RowData(0, (5,)))
    raw = stored + i64(1) + b"\1" + bytes(8) + b"\0" + i64(2) + b"\1" + bytes(8) + i64(77)
    assert text(node, raw) == {
        "row": ["+I", 5],
        "number": 1,
        "previous": None,
        "next": 2,
        "next_same": None,
        "ts": 77,
    }


def test_a_row_that_is_a_key_keeps_its_java_objects() -> None:
    row = row_data_of("INT", "BIGINT")
    snapshot = (
        utf(LINKED + "RowDataKeySerializerSnapshot")
        + i32(0)
        + i32(3)
        + b"abc"
        + i32(2)
        + b"de"
        + written(row)
    )
    key = read(snapshot)
    assert isinstance(key, RowDataKeySerializer)
    assert key.objects == (b"abc", b"de")
    assert text(key, serialize_to_bytes(row, RowData(0, (1, 2)))) == ["+I", 1, 2]


# --------------------------------------------------------------------- rows with names, sinks


@pytest.mark.parametrize("names", [None, ("id", "größe")])
def test_version_4_of_a_row(names: tuple[str, ...] | None) -> None:
    old = written(row_data_of("INT", "BIGINT"))
    name = utf(RowDataSerializer.snapshot_class)
    tail = b"\0" if names is None else b"\1" + b"".join(map(utf, names))
    row = read(name + i32(4) + old[len(name) + 4 :] + tail)
    assert isinstance(row, RowDataSerializer)
    assert row.names == names
    assert row == row_data_of("INT", "BIGINT"), "names change no value"
    with pytest.raises(UnsupportedVersionError, match="expected 3, got 5"):
        read(name + i32(5) + old[len(name) + 4 :])


REAL_SINK_STATE = bytes.fromhex(
    "010874786e2d302d32000001a201714c67000000020874786e2d302d30000001a2017146eb"
    "0874786e2d302d31000001a201714a0e01066374782d30"
)
"""Written by Flink 2.2.1; strings are transactions and the context."""


@pytest.mark.parametrize("package", ["", "legacy."])
def test_a_sink_of_two_phases(package: str) -> None:
    string = written(Types.STRING)
    sink = read(
        utf(
            f"{FLINK}streaming.api.functions.sink.{package}"
            "TwoPhaseCommitSinkFunction$StateSerializerSnapshot"
        )
        + i32(3, 911108, 4)
        + b"\1"
        + i32(1333245, 1, 2)
        + string
        + string
    )
    assert text(sink, REAL_SINK_STATE) == {
        "pending": {"transaction": "txn-0-2", "start": 1795320532071},
        "to_commit": [
            {"transaction": "txn-0-0", "start": 1795320530667},
            {"transaction": "txn-0-1", "start": 1795320531470},
        ],
        "context": "ctx-0",
    }
    nothing = {"pending": None, "to_commit": [], "context": None}
    assert text(sink, b"\0" + i32(0) + b"\0") == nothing


def test_a_sink_whose_transaction_is_always_there() -> None:
    sink = TwoPhaseCommitSerializer(Types.STRING, Types.STRING, 2, False)
    assert read(written(sink)) == sink
    assert text(sink, REAL_SINK_STATE[1:]) == text(
        TwoPhaseCommitSerializer(Types.STRING, Types.STRING), REAL_SINK_STATE
    )
