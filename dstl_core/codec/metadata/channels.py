"""Channel-state handles inside ``_metadata``: the in-flight buffers of unaligned checkpoints.

    plain  := [u8 kind], i32 subtask, i32 gate or partition, i32 channel or subpartition,
              i32 n, n i64 offsets, i64 state size, stream handle
    merged := u8 kind, i32 subtask, i64 state size, stream handle, i32 n, n bytes

Versions below 6 have no kind byte and no merged form.
Source: ``ChannelStateHandleSerializerV1`` and ``V2`` of Flink 2.2.1.
"""

from __future__ import annotations

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.metadata.handles import read_required_stream_handle, write_stream_handle
from dstl_core.errors import FormatError
from dstl_core.model.handle import (
    AnyChannelStateHandle,
    ChannelStateHandle,
    ChannelStateKind,
    MergedChannelStateHandle,
)


def read_channel_handle(
    data: DataInput, version: int, kind_before_v6: ChannelStateKind
) -> AnyChannelStateHandle:
    """Reads a channel-state handle; before version 6 the list that holds it determines the kind."""
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
        out.write_i32(len(handle.blob))
        out.write_bytes(handle.blob)
        return
    for number in handle.info:
        out.write_i32(number)
    out.write_i32(len(handle.offsets))
    for offset in handle.offsets:
        out.write_i64(offset)
    out.write_i64(handle.state_size)
    write_stream_handle(out, handle.stream)
