"""``_metadata``: golden files by real Flink, hand-made bodies of every version, damage."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest

from dstl_core.codec.metadata.metadata_format import (
    WRITABLE_VERSIONS,
    read_metadata,
    write_metadata,
)
from dstl_core.errors import FormatError, UnsupportedVersionError
from dstl_core.model.checkpoint import (
    CheckpointMetadata,
    MasterState,
    OperatorState,
    OperatorSubtaskState,
)
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    ChannelStateHandle,
    ChannelStateKind,
    FileStateHandle,
    KeyGroupsStateHandle,
    MergedChannelStateHandle,
)
from dstl_core.model.ids import OperatorID
from tests.examples import places, thinned
from tests.golden_files import GOLDEN, SNAPSHOTS, Fixture
from tests.unit.codec.java_bytes import i32, i64, utf

SMALL = 6_000
"""Files up to this size are cut at every 13th byte, larger ones at every 61st."""


MAGIC = i32(0x4960672D)
OPERATOR = bytes(range(16))


# ------------------------------------------------------------------- files by real Flink


@pytest.mark.parametrize("fixture", SNAPSHOTS, ids=str)
def test_metadata_of_real_flink_is_written_back_byte_for_byte(fixture: Fixture) -> None:
    for path in fixture.metadata_files:
        raw = path.read_bytes()
        assert write_metadata(read_metadata(raw)) == raw


def test_all_versions_that_flink_writes_today_are_among_the_golden_files() -> None:
    versions = {
        read_metadata(path.read_bytes()).version
        for fixture in SNAPSHOTS
        for path in fixture.metadata_files
    }
    assert len(SNAPSHOTS) >= 33
    assert versions >= {4, 5, 6}


def only_format_errors(parse: Callable[[bytes], object], raw: bytes, sizes: Iterable[int]) -> None:
    for size in sizes:
        with pytest.raises(FormatError):
            parse(raw[:size])


@pytest.mark.slow
@pytest.mark.parametrize("fixture", SNAPSHOTS, ids=str)
def test_cutting_metadata_anywhere_is_a_format_error(fixture: Fixture) -> None:
    for path in fixture.metadata_files:
        raw = path.read_bytes()
        only_format_errors(read_metadata, raw, places(len(raw), 13 if len(raw) <= SMALL else 61))


@pytest.mark.parametrize("fixture", SNAPSHOTS, ids=str)
def test_bytes_after_the_end_are_refused(fixture: Fixture) -> None:
    for path in fixture.metadata_files:
        with pytest.raises(FormatError, match="Bytes are left"):
            read_metadata(path.read_bytes() + b"\0")


def lies(raw: bytes, at: int, size: int) -> Iterator[bytes]:
    """The bytes with another number in a window that may be a count or a length."""
    end, most = at + size, 1 << 8 * size
    true = int.from_bytes(raw[at:end], "big")
    for number in {0, most - 1, most // 2 - 1, (true + 1) % most, (true - 1) % most} - {true}:
        yield raw[:at] + number.to_bytes(size, "big") + raw[end:]


def test_metadata_that_lies_about_sizes_is_read_or_refused() -> None:
    """What is read is written back with the same meaning."""
    chance = random.Random(7)
    files = [path for fixture in SNAPSHOTS for path in fixture.metadata_files]
    small = [raw for path in files if len(raw := path.read_bytes()) <= SMALL]
    was_read = refused = 0
    for _ in range(150):
        raw, size = chance.choice(small), chance.choice([2, 4])
        for damaged in lies(raw, chance.randrange(len(raw) - size), size):
            try:
                metadata = read_metadata(damaged)
            except FormatError:
                refused += 1
                continue
            was_read += 1
            if metadata.version in WRITABLE_VERSIONS:
                assert read_metadata(write_metadata(metadata)) == metadata
    assert was_read > 100
    assert refused > 100


FORMS = {
    "a-hashmap-changelog-checkpoint-files": 1,
    "o-sql-topn-rocksdb-incremental": 1,
    "a-hashmap-canonical-files": 5,
    "o-finished-subtasks": 5,
    "o-source-coordinator-chk": 5,
    "x-filemerging-hashmap": 5,
    "x-unaligned-hashmap": 5,
}
"""Of how many words one is changed, by the file."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_no_count_or_length_makes_metadata_take_memory(name: str) -> None:
    """A word of four bytes that may be a count or a length is huge, and negative."""
    [path] = (GOLDEN / name).rglob("_metadata")
    raw = path.read_bytes()
    words = [at for at in range(len(raw) - 3) if int.from_bytes(raw[at : at + 4], "big") < len(raw)]
    words = thinned(words, FORMS[name])
    refused = peak = 0
    tracemalloc.start()
    try:
        for at in words:
            for number in ((1 << 31) - 1, 1 << 31):
                damaged = raw[:at] + number.to_bytes(4, "big") + raw[at + 4 :]
                tracemalloc.reset_peak()
                try:
                    read_metadata(damaged)
                except FormatError:
                    refused += 1
                peak = max(peak, tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert refused > len(words) // 4
    assert peak < 64 * len(raw)


# ----------------------------------------------------------------------------- by hand


def test_version_2_has_chain_length_and_dummies_and_no_coordinator() -> None:
    raw = (
        MAGIC
        + i32(2)
        + i64(9)
        + i32(0, 1)
        + OPERATOR
        + i32(4, 64, 1, 1)  # parallelism, max parallelism, chain length, one subtask
        + i32(3)
        + i64(-1)
        + i32(0)  # dummies
        + i32(0, 0)
        + b"\0\0"
    )
    metadata = read_metadata(raw)
    assert metadata == CheckpointMetadata(
        2, 9, (OperatorState(OperatorID(OPERATOR), 4, 64, (OperatorSubtaskState(3),)),)
    )
    only_format_errors(read_metadata, raw, range(len(raw)))


def test_version_2_with_old_state_is_refused() -> None:
    head = MAGIC + i32(2) + i64(9) + i32(0, 1) + OPERATOR + i32(4, 64, 1, 1)
    with pytest.raises(FormatError, match="Old non-partitioned state"):
        read_metadata(head + i32(3) + i64(-1) + i32(1) + i32(0, 0) + b"\0\0")


def v3(operators: bytes, count: int = 1, masters: bytes = b"", master_count: int = 0) -> bytes:
    return MAGIC + i32(3) + i64(7) + i32(master_count) + masters + i32(count) + operators


def round_trip(raw: bytes) -> CheckpointMetadata:
    metadata = read_metadata(raw)
    assert write_metadata(metadata) == raw
    return metadata


def test_a_fully_finished_operator_has_a_negative_subtask_count() -> None:
    [operator] = round_trip(v3(OPERATOR + i32(2, 128) + b"\0" + i32(-1))).operators
    assert operator.fully_finished
    assert operator.subtasks == ()


def test_a_finished_subtask_has_a_negative_index() -> None:
    [operator] = round_trip(v3(OPERATOR + i32(2, 128) + b"\0" + i32(2, -1, -2))).operators
    assert operator.subtasks == (
        OperatorSubtaskState(0, finished=True),
        OperatorSubtaskState(1, finished=True),
    )
    assert not operator.fully_finished


def test_coordinator_state_is_inline_or_absent() -> None:
    inline = b"\1" + utf("name") + i32(3) + b"abc"
    [operator] = round_trip(v3(OPERATOR + i32(1, 128) + inline + i32(0))).operators
    assert operator.coordinator_state == ByteStreamStateHandle("name", b"abc")
    assert operator.state_size == 3
    file_handle = b"\2" + i64(3) + utf("file:/a")
    with pytest.raises(FormatError, match="Coordinator state must be inline"):
        read_metadata(v3(OPERATOR + i32(1, 128) + file_handle + i32(0)))


def test_master_states_are_kept() -> None:
    body = i32(1) + utf("hook") + i32(2) + b"\7\7"
    raw = v3(b"", 0, struct.pack(">I", 0xC96B1696) + i32(len(body)) + body, 1)
    assert round_trip(raw).master_states == (MasterState("hook", 1, b"\7\7"),)
    only_format_errors(read_metadata, raw, range(len(raw)))


@pytest.mark.parametrize(
    ("master", "problem"),
    [
        (i32(1) + i32(14) + i32(1) + utf("hook") + i32(2) + b"\7\7", "master state magic"),
        (
            struct.pack(">I", 0xC96B1696) + i32(17) + i32(1) + utf("hook") + i32(2) + b"\7" * 5,
            "Bytes are left after a master state",
        ),
        (
            struct.pack(">I", 0xC96B1696) + i32(14) + i32(1) + utf("hook") + i32(9) + b"\7" * 9,
            "master state size",
        ),
    ],
)
def test_damaged_master_states(master: bytes, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        read_metadata(v3(b"", 0, master, 1))


NO_STATE = i32(0, 0) + b"\0\0"
PROPERTIES = read_metadata(SNAPSHOTS[0].metadata_files[0].read_bytes()).properties or b""


def operator_with_channel(version: int, channel: bytes) -> bytes:
    names = utf("op") + utf("uid") if version >= 5 else b""
    subtask = i32(0) + NO_STATE + i32(1) + channel + i32(0)
    head = MAGIC + i32(version) + i64(1) + i32(0, 1) + names + OPERATOR + i32(1, 128)
    return head + b"\0" + i32(1) + subtask + (PROPERTIES if version >= 4 else b"")


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_plain_channel_state_has_a_kind_byte_from_version_6_on(version: int) -> None:
    kind = b"\1" if version == 6 else b""
    channel = kind + i32(2, 5, 6, 2) + i64(10, 20) + i64(30) + b"\2" + i64(40) + utf("file:/c")
    metadata = round_trip(operator_with_channel(version, channel))
    assert metadata.operators[0].subtasks[0].input_channel_state == (
        ChannelStateHandle(
            ChannelStateKind.INPUT_CHANNEL, 2, (5, 6), (10, 20), 30, FileStateHandle("file:/c", 40)
        ),
    )
    assert metadata.operators[0].uid == ("uid" if version >= 5 else "")


def test_merged_channel_state_is_kept_as_it_is_in_version_6() -> None:
    channel = b"\3" + i32(2) + i64(30) + b"\2" + i64(40) + utf("file:/c") + i32(3) + b"xyz"
    metadata = round_trip(operator_with_channel(6, channel))
    assert metadata.operators[0].subtasks[0].input_channel_state == (
        MergedChannelStateHandle(
            ChannelStateKind.MERGED_INPUT_CHANNEL, 2, 30, FileStateHandle("file:/c", 40), b"xyz"
        ),
    )
    with pytest.raises(FormatError, match="Merged channel state needs metadata version 6"):
        write_metadata(replace(metadata, version=5))


# ----------------------------------------------------------------------------- damage


@pytest.mark.parametrize("version", [-1, 0, 1, 7, 8, 2**31 - 1])
def test_other_versions_are_refused_by_name(version: int) -> None:
    with pytest.raises(UnsupportedVersionError, match=f"expected 2 to 6, got {version}, at byte 4"):
        read_metadata(MAGIC + i32(version) + i64(1) + i32(0, 0))


def test_another_magic_number_says_what_it_may_be() -> None:
    with pytest.raises(
        FormatError, match=r"wrong magic number.*expected 0x4960672d, got 0x50415231"
    ):
        read_metadata(b"PAR1" + bytes(100))


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (MAGIC + i32(3) + i64(-1) + i32(0, 0), "checkpoint id is negative"),
        (MAGIC + i32(3) + i64(1) + i32(-1, 0), "master states"),
        (MAGIC + i32(3) + i64(1) + i32(2**31 - 1, 0), "master states"),
        (MAGIC + i32(3) + i64(1) + i32(0, -1), "operators"),
        (MAGIC + i32(3) + i64(1) + i32(0, 2**31 - 1), "operators"),
        (v3(OPERATOR + i32(1, 0) + b"\0" + i32(0)), "max parallelism"),
        (v3(OPERATOR + i32(1, 32769) + b"\0" + i32(0)), "max parallelism"),
        (v3(OPERATOR + i32(1, 128) + b"\0" + i32(2**31 - 1)), "subtask count"),
        (v3(OPERATOR + i32(0, 128) + b"\0" + i32(0)), "parallelism"),
        (v3(OPERATOR + i32(129, 128) + b"\0" + i32(0)), "parallelism"),
    ],
)
def test_numbers_out_of_bounds(raw: bytes, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        read_metadata(raw)


@pytest.mark.parametrize("raw_slot", [False, True])
def test_key_groups_beyond_the_max_parallelism_are_refused(raw_slot: bool) -> None:
    def operator(start: int) -> bytes:
        keyed = b"\7" + i32(start, 1) + i64(0) + b"\1" + utf("h") + i32(0)
        slots = b"\0" + keyed if raw_slot else keyed + b"\0"
        return OPERATOR + i32(1, 128) + b"\0" + i32(1) + i32(0) + i32(0, 0) + slots + i32(0, 0)

    round_trip(v3(operator(127)))
    with pytest.raises(FormatError, match=r"key groups outside those of its operator.*< 128"):
        read_metadata(v3(operator(128)))


def test_raw_keyed_state_says_which_key_groups_have_none() -> None:
    handle = b"\3" + i32(0, 3) + i64(0, -1, 5) + b"\2" + i64(9) + utf("file:/f")
    head = OPERATOR + i32(1, 128) + b"\0" + i32(1) + i32(0, 0, 0)
    [operator] = round_trip(v3(head + b"\0" + handle + i32(0, 0))).operators
    raw = operator.subtasks[0].raw_keyed_state
    assert isinstance(raw, KeyGroupsStateHandle)
    assert raw.offsets.items() == [(0, 0), (1, -1), (2, 5)]
    with pytest.raises(FormatError, match="key-group offset is negative"):
        read_metadata(v3(head + handle + b"\0" + i32(0, 0)))


def test_version_6_without_properties_is_refused_as_flink_does() -> None:
    with pytest.raises(FormatError, match="Java stream magic"):
        read_metadata(MAGIC + i32(6) + i64(1) + i32(0, 0))


def test_properties_of_another_class_are_refused() -> None:
    name = b"org.apache.flink.runtime.checkpoint.CheckpointProperties"
    foreign = PROPERTIES.replace(name, name[:-1] + b"z", 1)
    with pytest.raises(FormatError, match="have an unknown class"):
        read_metadata(MAGIC + i32(6) + i64(1) + i32(0, 0) + foreign)


# ----------------------------------------------------------------------------- writing


def test_version_2_is_not_written() -> None:
    with pytest.raises(UnsupportedVersionError, match="expected 3 to 6, got 2"):
        write_metadata(CheckpointMetadata(2, 1, ()))


@pytest.mark.parametrize(("version", "properties"), [(3, PROPERTIES), (4, None), (6, None)])
def test_properties_have_to_fit_the_version(version: int, properties: bytes | None) -> None:
    with pytest.raises(FormatError, match="properties do not fit the metadata version"):
        write_metadata(CheckpointMetadata(version, 1, (), properties=properties))
