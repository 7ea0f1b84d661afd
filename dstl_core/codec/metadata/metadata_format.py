"""The ``_metadata`` file: magic, version, body.

    i32 0x4960672D, i32 version
    i64 checkpoint id
    i32 n, n master states
    i32 n, n operator states
    version >= 4: a Java-serialized CheckpointProperties up to the end of the file

One grammar serves versions 2 to 6; each newer version adds fields (MetadataV2Serializer to
MetadataV6Serializer of Flink 2.2.1). dstl writes version 3 (restores on Flink 1.20 to 2.3), and 4
to 6 when the properties are given. Bytes after a version 3 body are an error here; Flink ignores
them.
"""

from __future__ import annotations

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.java_stream import skip_java_object
from dstl_core.codec.metadata.handles import (
    read_keyed_handle,
    read_operator_handle,
    read_required_stream_handle,
    read_stream_handle,
    write_keyed_handle,
    write_operator_handle,
    write_stream_handle,
)
from dstl_core.errors import FormatError, UnsupportedVersionError
from dstl_core.model.checkpoint import (
    CheckpointMetadata,
    MasterState,
    OperatorState,
    OperatorSubtaskState,
)
from dstl_core.model.handle import (
    AnyChannelStateHandle,
    ByteStreamStateHandle,
    ChannelStateHandle,
    ChannelStateKind,
    KeyedStateHandle,
    KeyGroupsStateHandle,
    MergedChannelStateHandle,
    OperatorStreamStateHandle,
)
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import UPPER_BOUND_MAX_PARALLELISM

HEADER_MAGIC_NUMBER = 0x4960672D
CHECKPOINT_PROPERTIES_CLASS = "org.apache.flink.runtime.checkpoint.CheckpointProperties"
MASTER_STATE_MAGIC_NUMBER = 0xC96B1696 - (1 << 32)
READABLE_VERSIONS = (2, 3, 4, 5, 6)
WRITABLE_VERSIONS = (3, 4, 5, 6)

MAX_ITEMS = 1 << 24
"""Operators, states, files, changes and so on. Each one takes 65 to 270 bytes."""
MAX_OFFSETS = 1 << 26
"""Offsets of elements, key groups and buffers. Each one takes 40 bytes."""


def read_metadata(raw: bytes) -> CheckpointMetadata:
    """Parses a whole ``_metadata`` file.

    Raises:
        FormatError: The bytes are not a snapshot's metadata. The message has the offset and the
            field.
    """
    data = CountedInput(raw)
    magic = data.read_i32("magic number")
    if magic != HEADER_MAGIC_NUMBER:
        raise FormatError(
            "Not a Flink _metadata file (wrong magic number; another kind of file, or damaged)",
            offset=0,
            expected=f"0x{HEADER_MAGIC_NUMBER:08x}",
            got=f"0x{magic & 0xFFFFFFFF:08x}",
        )
    version = data.read_i32("version")
    if version not in READABLE_VERSIONS:
        raise UnsupportedVersionError(
            "This version of _metadata cannot be read",
            offset=4,
            expected="2 to 6",
            got=version,
        )
    at = data.position
    checkpoint_id = data.read_i64("checkpoint id")
    if checkpoint_id < 0:
        raise FormatError(
            "A checkpoint id is negative", offset=at, expected=">= 0", got=checkpoint_id
        )
    masters = tuple(_read_master_state(data) for _ in range(data.read_count("master states", 8)))
    operators = tuple(
        _read_operator_state(data, version) for _ in range(data.read_count("operators", 28))
    )
    properties = _read_properties(data) if version >= 4 else None
    data.expect_end("the checkpoint metadata")
    return CheckpointMetadata(version, checkpoint_id, operators, masters, properties)


def write_metadata(metadata: CheckpointMetadata) -> bytes:
    """Writes a whole ``_metadata`` file in ``metadata.version``.

    Raises:
        FormatError: dstl does not write the version, or data that the version needs is missing.
    """
    version = metadata.version
    if version not in WRITABLE_VERSIONS:
        raise UnsupportedVersionError(
            "dstl does not write this version of _metadata", expected="3 to 6", got=version
        )
    if (version >= 4) != (metadata.properties is not None):
        raise FormatError(
            "Checkpoint properties do not fit the metadata version",
            expected="properties from version 4 on, none before",
            got=f"version {version} with properties={metadata.properties is not None}",
        )
    out = DataOutput()
    out.write_i32(HEADER_MAGIC_NUMBER)
    out.write_i32(version)
    out.write_i64(metadata.checkpoint_id)
    out.write_i32(len(metadata.master_states))
    for master in metadata.master_states:
        _write_master_state(out, master)
    out.write_i32(len(metadata.operators))
    for operator in metadata.operators:
        _write_operator_state(out, operator, version)
    if metadata.properties is not None:
        out.write_bytes(metadata.properties)
    return out.to_bytes()


def _read_properties(data: DataInput) -> bytes:
    """Reads the Java object at the end of versions 4 and later."""
    start = data.position
    class_name = skip_java_object(data)
    if class_name != CHECKPOINT_PROPERTIES_CLASS:
        raise FormatError(
            "The checkpoint properties have an unknown class",
            offset=start,
            expected=CHECKPOINT_PROPERTIES_CLASS,
            got=class_name,
        )
    size = data.position - start
    data.seek(start)
    return data.read_bytes(size)


def _read_master_state(data: DataInput) -> MasterState:
    data.read_expected_i32("master state magic", MASTER_STATE_MAGIC_NUMBER)
    section = data.sub_input(data.read_length("master state length"), "master state")
    version = section.read_i32("master state version")
    name = section.read_utf("master state name")
    state = section.read_bytes(section.read_length("master state size"))
    section.expect_end("a master state")
    return MasterState(name, version, state)


def _write_master_state(out: DataOutput, master: MasterState) -> None:
    body = DataOutput()
    body.write_i32(master.version)
    body.write_utf(master.name)
    body.write_sized(master.data)
    out.write_i32(MASTER_STATE_MAGIC_NUMBER)
    out.write_i32(body.position)
    out.write_bytes(body.to_bytes())


def _read_operator_state(data: DataInput, version: int) -> OperatorState:
    name, uid = "", ""
    if version >= 5:
        name = data.read_utf("operator name")
        uid = data.read_utf("operator uid")
    operator_id = OperatorID(data.read_bytes(16, "operator id"))
    at = data.position
    parallelism = data.read_i32("parallelism")
    max_parallelism = data.read_i32("max parallelism")
    if not 1 <= parallelism <= max_parallelism <= UPPER_BOUND_MAX_PARALLELISM:
        raise FormatError(
            "The parallelism of an operator is out of bounds",
            offset=at,
            expected=f"1 <= parallelism <= max parallelism <= {UPPER_BOUND_MAX_PARALLELISM}",
            got=f"{parallelism} of {max_parallelism}",
        )
    if version == 2:
        data.read_i32("chain length")
    coordinator = _read_coordinator_state(data) if version >= 3 else None
    at = data.position
    count = data.read_i32("subtask count")
    finished = version >= 3 and count < 0
    if finished:
        count = 0
    else:
        data.seek(at)
        count = data.read_count("subtask count", 4)
    subtasks = tuple(_read_subtask(data, version, max_parallelism) for _ in range(count))
    return OperatorState(
        operator_id, parallelism, max_parallelism, subtasks, name, uid, coordinator, finished
    )


def _read_coordinator_state(data: DataInput) -> ByteStreamStateHandle | None:
    at = data.position
    handle = read_stream_handle(data)
    if handle is not None and not isinstance(handle, ByteStreamStateHandle):
        raise FormatError(
            "Coordinator state must be inline",
            offset=at,
            expected="type 0 or 1",
            got=type(handle).__name__,
        )
    return handle


def _read_subtask(data: DataInput, version: int, max_parallelism: int) -> OperatorSubtaskState:
    at = data.position
    index = data.read_i32("subtask index")
    if index < 0 and version >= 3:
        return OperatorSubtaskState(-index - 1, finished=True)
    if version == 2:
        data.read_i64("unused")
        if data.read_i32("unused") > 0:
            raise FormatError("Old non-partitioned state is not supported", offset=at)
    managed_operator = _read_optional_operator_handle(data, "has managed operator state")
    raw_operator = _read_optional_operator_handle(data, "has raw operator state")
    at = data.position
    managed_keyed = _read_keyed_state(data, max_parallelism)
    if isinstance(managed_keyed, KeyGroupsStateHandle):
        least = min(managed_keyed.offsets.offsets, default=0)
        if least < 0:
            raise FormatError("A key-group offset is negative", offset=at, expected=0, got=least)
    raw_keyed = _read_keyed_state(data, max_parallelism)
    channels = [
        tuple(read_channel_handle(data, version, kind) for _ in range(data.read_count(field, 8)))
        if version >= 3
        else ()
        for field, kind in (
            ("input channels", ChannelStateKind.INPUT_CHANNEL),
            ("result subpartitions", ChannelStateKind.RESULT_SUBPARTITION),
        )
    ]
    return OperatorSubtaskState(
        index, managed_operator, raw_operator, managed_keyed, raw_keyed, channels[0], channels[1]
    )


def _read_keyed_state(data: DataInput, max_parallelism: int) -> KeyedStateHandle | None:
    at = data.position
    handle = read_keyed_handle(data)
    if handle is not None and handle.key_group_range.end_key_group >= max_parallelism:
        raise FormatError(
            "Keyed state has key groups outside those of its operator",
            offset=at,
            expected=f"< {max_parallelism}",
            got=handle.key_group_range,
        )
    return handle


def _read_optional_operator_handle(data: DataInput, field: str) -> OperatorStreamStateHandle | None:
    # An int, not a boolean, announces the handle.
    return read_operator_handle(data) if data.read_i32(field) != 0 else None


def _write_operator_state(out: DataOutput, operator: OperatorState, version: int) -> None:
    if version >= 5:
        out.write_utf(operator.name)
        out.write_utf(operator.uid)
    out.write_bytes(operator.operator_id.raw)
    out.write_i32(operator.parallelism)
    out.write_i32(operator.max_parallelism)
    write_stream_handle(out, operator.coordinator_state)
    if operator.fully_finished:
        out.write_i32(-1)
        return
    out.write_i32(len(operator.subtasks))
    for subtask in operator.subtasks:
        _write_subtask(out, subtask, version)


def _write_subtask(out: DataOutput, subtask: OperatorSubtaskState, version: int) -> None:
    if subtask.finished:
        out.write_i32(-(subtask.index + 1))
        return
    out.write_i32(subtask.index)
    for operator_state in (subtask.managed_operator_state, subtask.raw_operator_state):
        out.write_i32(0 if operator_state is None else 1)
        if operator_state is not None:
            write_operator_handle(out, operator_state)
    write_keyed_handle(out, subtask.managed_keyed_state)
    write_keyed_handle(out, subtask.raw_keyed_state)
    for channels in (subtask.input_channel_state, subtask.result_subpartition_state):
        out.write_i32(len(channels))
        for channel in channels:
            write_channel_handle(out, channel, version)


def read_channel_handle(
    data: DataInput, version: int, kind_before_v6: ChannelStateKind
) -> AnyChannelStateHandle:
    """Reads a channel-state handle; before version 6 the list that holds it determines the kind.

        plain  := [u8 kind], i32 subtask, i32 gate or partition, i32 channel or subpartition,
                  i32 n, n i64 offsets, i64 state size, stream handle
        merged := u8 kind, i32 subtask, i64 state size, stream handle, i32 n, n bytes

    These are the in-flight buffers of unaligned checkpoints. Versions below 6 have no kind byte and
    no merged form. Source: ``ChannelStateHandleSerializerV1`` and ``V2`` of Flink 2.2.1.
    """
    kind = kind_before_v6
    if version >= 6:
        at = data.position
        code = data.read_u8("channel state kind")
        if not 1 <= code <= 4:
            raise FormatError(
                "A channel state kind is unknown", offset=at, expected="1..4", got=code
            )
        kind = ChannelStateKind(code)
    subtask = data.read_i32("subtask index")
    if kind in (ChannelStateKind.INPUT_CHANNEL, ChannelStateKind.RESULT_SUBPARTITION):
        info = (data.read_i32("gate or partition"), data.read_i32("channel or subpartition"))
        offsets = data.read_counted_i64s("buffer offsets")
        size = data.read_i64("state size")
        stream = read_required_stream_handle(data, "channel state stream")
        return ChannelStateHandle(kind, subtask, info, offsets, size, stream)
    size = data.read_i64("state size")
    stream = read_required_stream_handle(data, "channel state stream")
    blob = data.read_bytes(data.read_length("merged channel infos"))
    return MergedChannelStateHandle(kind, subtask, size, stream, blob)


def write_channel_handle(out: DataOutput, handle: AnyChannelStateHandle, version: int) -> None:
    if version >= 6:
        out.write_u8(handle.kind.value)
    elif isinstance(handle, MergedChannelStateHandle):
        raise FormatError("Merged channel state needs metadata version 6", expected=6, got=version)
    out.write_i32(handle.subtask_index)
    if isinstance(handle, MergedChannelStateHandle):
        out.write_i64(handle.state_size)
        write_stream_handle(out, handle.stream)
        out.write_sized(handle.blob)
        return
    for number in handle.info:
        out.write_i32(number)
    out.write_i32(len(handle.offsets))
    for offset in handle.offsets:
        out.write_i64(offset)
    out.write_i64(handle.state_size)
    write_stream_handle(out, handle.stream)


class CountedInput(DataInput):
    """A ``DataInput`` whose counts have a limit together.

    Each count is checked against the bytes that remain, but three bytes become an object of a
    hundred.
    """

    __slots__ = ("_items", "_offsets")

    def __init__(self, buffer: bytes, start: int = 0, end: int | None = None) -> None:
        super().__init__(buffer, start, end)
        self._items = 0
        self._offsets = 0

    def read_count(self, field: str, item_bytes: int, *, limit: int | None = None) -> int:
        at = self.position
        count = super().read_count(field, item_bytes, limit=limit)
        self._items += count
        if self._items > MAX_ITEMS:
            raise _too_many("items", at, field, MAX_ITEMS, self._items)
        return count

    def read_length(self, field: str, *, limit: int | None = None) -> int:
        return super().read_count(field, 1, limit=limit)

    def read_counted_i64s(self, field: str) -> tuple[int, ...]:
        return self.read_i64s(super().read_count(field, 8), field)

    def read_i64s(self, count: int, field: str = "long") -> tuple[int, ...]:
        self._offsets += count
        if self._offsets > MAX_OFFSETS:
            raise _too_many("offsets", self.position, field, MAX_OFFSETS, self._offsets)
        return super().read_i64s(count, field)


def _too_many(what: str, at: int, field: str, most: int, number: int) -> FormatError:
    return FormatError(
        f"The metadata has too many {what}",
        offset=at,
        field=field,
        expected=f"<= {most}",
        got=f"{number} up to here",
    )
