"""Compressed operator state: a chunk for each element, or chunks that elements share.

The streams are written here as Flink's compressor writes them, which fills chunks of 64 KiB: with a
flush before each element notes its offset (1.19 and later), or without one (1.18).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstl_core.codec.checksums import masked_crc32c
from dstl_core.codec.operator_state import (
    OperatorStateReader,
    broadcast_state_meta,
    list_state_meta,
    own_places,
    write_operator_stream,
)
from dstl_core.codec.serializers import BUILT_IN
from dstl_core.codec.serializers.arrays import BytePrimitiveArraySerializer
from dstl_core.codec.serializers.opaque import KryoSerializer
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import FormatError, UnreadableValueError
from dstl_core.model.handle import OperatorStateMetaInfo, OperatorStateMode

SPLIT, UNION, BROADCAST = (
    OperatorStateMode.SPLIT_DISTRIBUTE,
    OperatorStateMode.UNION,
    OperatorStateMode.BROADCAST,
)
BYTES = BytePrimitiveArraySerializer()
CHUNK = 65536
IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
Written = tuple[bytes, tuple[OperatorStateMetaInfo, ...]]


class Compressor:
    """Snappy's framed output of Java: a chunk is written when it is full, or at a flush."""

    def __init__(self, header: bytes) -> None:
        self.out = bytearray(header + IDENTIFIER)
        self._waiting = b""

    def write(self, data: bytes) -> None:
        self._waiting += data
        while len(self._waiting) >= CHUNK:
            self._chunk(self._waiting[:CHUNK])
            self._waiting = self._waiting[CHUNK:]

    def flush(self) -> None:
        if self._waiting:
            self._chunk(self._waiting)
            self._waiting = b""

    def _chunk(self, data: bytes) -> None:
        body = bytes(cramjam.snappy.compress_raw(data))
        size = (len(body) + 4).to_bytes(3, "little")
        self.out += b"\x00" + size + struct.pack("<I", masked_crc32c(data)) + body


def framed(element: bytes) -> bytes:
    """As the serializer of byte arrays writes it."""
    return len(element).to_bytes(4, "big") + element


def metas(names: Sequence[tuple[str, OperatorStateMode]]) -> list[StateMetaInfoSnapshot]:
    return [
        broadcast_state_meta(name, BYTES, BYTES)
        if mode is BROADCAST
        else list_state_meta(name, mode, BYTES)
        for name, mode in names
    ]


def stream(
    described: Sequence[StateMetaInfoSnapshot], stored: Sequence[Sequence[bytes]], *, flushed: bool
) -> Written:
    """A stream of version 6 with the bytes of each state's elements, in the order of the header."""
    lists = [(meta, ()) for meta in described if meta.backend_state_type.name == "OPERATOR"]
    maps = [(meta, ()) for meta in described if meta.backend_state_type.name == "BROADCAST"]
    empty, _ = write_operator_stream(lists, maps)
    # Without its version, and without the number of pairs of each map.
    header = empty[4 : len(empty) - 4 * len(maps)]
    compressor = Compressor(struct.pack(">i?", 6, True) + header)
    infos = []
    for meta, elements in zip(described, stored, strict=True):
        offsets = []
        for element in elements:
            if flushed:
                compressor.flush()
            offsets.append(len(compressor.out))
            compressor.write(element)
        mode = OperatorStateMode[dict(meta.options)["OPERATOR_STATE_DISTRIBUTION_MODE"]]
        infos.append(OperatorStateMetaInfo(meta.name, mode, tuple(offsets)))
    compressor.flush()
    # A handle lists the states in the order of a hash map.
    return bytes(compressor.out), tuple(reversed(infos))


SIZES = st.one_of(
    st.integers(0, 40), st.sampled_from([CHUNK - 4, CHUNK - 5, CHUNK - 3, CHUNK, 3 * CHUNK + 7])
)
ELEMENTS = st.lists(st.tuples(st.binary(min_size=1, max_size=3), SIZES), max_size=5).map(
    lambda parts: [(seed * (size // len(seed) + 1))[:size] for seed, size in parts]
)


@pytest.mark.slow
@pytest.mark.parametrize("flushed", [True, False])
@given(splits=ELEMENTS, union=ELEMENTS, pairs=ELEMENTS)
def test_every_element_is_read_whatever_shares_a_chunk(
    flushed: bool, splits: list[bytes], union: list[bytes], pairs: list[bytes]
) -> None:
    described = metas([("a", SPLIT), ("b", UNION), ("c", BROADCAST)])
    whole = len(pairs).to_bytes(4, "big") + b"".join(2 * framed(each) for each in pairs)
    stored = [[framed(each) for each in splits], [framed(each) for each in union], [whole]]
    raw, infos = stream(described, stored, flushed=flushed)

    def contents(raw: bytes, infos: tuple[OperatorStateMetaInfo, ...]) -> None:
        reader = OperatorStateReader(raw, infos, BUILT_IN)
        by_name = {info.name: info for info in infos}
        assert reader.elements(by_name["a"]) == splits
        assert reader.elements(by_name["b"]) == union
        assert reader.raw_elements(by_name["b"]) == stored[1]
        assert reader.pairs(by_name["c"]) == [(each, each) for each in pairs]

    contents(raw, infos)
    placed = own_places(raw, infos, BUILT_IN)
    if placed is not None:
        contents(*placed)
        for info in placed[1]:
            assert len(set(info.offsets)) == len(info.offsets)
    if not flushed and len(splits) > 1 and len(splits[0]) < 1000:
        assert placed is not None
        assert "a" in OperatorStateReader(raw, infos, BUILT_IN).misplaced()


def test_a_chunk_for_each_element_is_where_flink_finds_it() -> None:
    raw, infos = stream(metas([("a", SPLIT)]), [[framed(b"x"), framed(b"y")]], flushed=True)
    assert own_places(raw, infos, BUILT_IN) is None
    assert OperatorStateReader(raw, infos, BUILT_IN).misplaced() == frozenset()


PACKED = stream(
    metas([("a", SPLIT), ("b", UNION)]),
    [[framed(b"one"), framed(b"two")], [framed(b"three"), framed(b"four")]],
    flushed=False,
)


@pytest.mark.parametrize(
    "listed",
    [
        lambda infos: infos[:1],
        lambda infos: infos[1:],
        lambda infos: tuple(
            OperatorStateMetaInfo(info.name, info.mode, info.offsets[:1]) for info in infos
        ),
    ],
)
def test_some_of_the_elements_that_share_chunks_are_never_taken_for_others(
    listed: Callable[[tuple[OperatorStateMetaInfo, ...]], tuple[OperatorStateMetaInfo, ...]],
) -> None:
    raw, infos = PACKED
    some = listed(infos)
    reader = OperatorStateReader(raw, some, BUILT_IN)
    with pytest.raises(FormatError):
        reader.raw_elements(some[0])


def test_damage_is_an_error_at_every_byte() -> None:
    raw, infos = PACKED
    for cut in range(len(raw)):
        with pytest.raises(FormatError):
            OperatorStateReader(raw[:cut], infos, BUILT_IN).elements(infos[0])


def test_elements_of_a_class_that_only_java_knows_are_not_separated() -> None:
    kryo = KryoSerializer("shop.Order", ((), (), ()))
    described = [list_state_meta("a", SPLIT, kryo)]
    raw, infos = stream(described, [[b"\x01abc", b"\x01def"]], flushed=False)
    reader = OperatorStateReader(raw, infos, BUILT_IN)
    for read in (reader.elements, reader.raw_elements):
        with pytest.raises(UnreadableValueError, match=r"shop\.Order"):
            read(infos[0])
    with pytest.raises(UnreadableValueError, match=r"shop\.Order"):
        reader.misplaced()
    with pytest.raises(UnreadableValueError, match=r"shop\.Order"):
        own_places(raw, infos, BUILT_IN)
