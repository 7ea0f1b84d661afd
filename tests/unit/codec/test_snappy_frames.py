"""The framing format by hand: identifier, chunks, masked CRC-32C."""

from __future__ import annotations

import random

import cramjam
import pytest

from dstl_core.codec.snappy_frames import (
    STREAM_IDENTIFIER,
    compress_frames,
    compress_together,
    compressed_pieces,
    decompress_all_frames,
    decompress_frames,
    frames_end,
)
from dstl_core.errors import FormatError


def masked_crc32c(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def chunk(kind: int, body: bytes) -> bytes:
    return bytes((kind,)) + len(body).to_bytes(3, "little") + body


def plain(data: bytes) -> bytes:
    return chunk(1, masked_crc32c(data) + data)


HELLO = STREAM_IDENTIFIER + plain(b"hello")
# Raw Snappy: length 5, then a literal of 5 bytes.
HELLO_COMPRESSED = STREAM_IDENTIFIER + chunk(0, masked_crc32c(b"hello") + b"\x05\x10hello")


@pytest.mark.parametrize("stream", [HELLO, HELLO_COMPRESSED])
def test_both_kinds_of_data_chunks(stream: bytes) -> None:
    assert decompress_frames(stream, 0, len(stream)) == b"hello"


def test_what_we_write_has_this_form() -> None:
    assert compress_frames(b"hello") == HELLO
    zeros = compress_frames(bytes(200_000))
    assert zeros.startswith(STREAM_IDENTIFIER + b"\0")
    assert len(zeros) < 15_000
    assert decompress_frames(zeros, 0, len(zeros)) == bytes(200_000)


@pytest.mark.parametrize("size", [1, 8, 65_535, 65_536, 65_537, 131_072, 200_001])
@pytest.mark.parametrize("share", [0, 10, 12, 13, 20, 50, 100])
def test_streams_are_those_of_a_whole_implementation(size: int, share: int) -> None:
    """With an eighth that shrinks and less, chunks are stored as they are."""
    rng = random.Random(size)
    zeros = bytes(share * size // 100)
    data = zeros + rng.randbytes(size - len(zeros))
    stream = compress_frames(data)
    assert stream == bytes(cramjam.snappy.compress(data))
    assert bytes(cramjam.snappy.decompress(stream)) == data
    assert decompress_frames(stream, 0, len(stream)) == data
    for cuts in ([size // 3], [1, 2, size // 2], [min(65_536, size)], range(0, size, 40_000)):
        ends = [*sorted(min(cut, size) for cut in cuts), size]
        parts = [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        assert compress_together(parts) == stream
    assert decompress_all_frames(stream + stream, 0) == data + data


def kinds_of(stream: bytes) -> list[int]:
    kinds, at = [], len(STREAM_IDENTIFIER)
    while at < len(stream):
        kinds.append(stream[at])
        at += 4 + int.from_bytes(stream[at + 1 : at + 4], "little")
    return kinds


def test_data_that_does_not_shrink_is_known_by_a_sample() -> None:
    """Behind a chunk that is stored as it is, the last eighth of the next one decides; a repetition
    that is further away is found by each sixteenth chunk.
    """
    noise = random.Random(5).randbytes(65_536)
    half = noise[:32_768]
    far, tail = (noise[:10_000] * 7)[:65_536], half + bytes(32_768)
    for chunks, kinds in (
        ([far] * 3, [0] * 3),
        ([noise, tail, far], [1, 0, 0]),
        ([noise, *[far] * 17], [*[1] * 16, 0, 0]),
    ):
        data = b"".join(chunks)
        stream = compress_frames(data)
        assert kinds_of(stream) == kinds
        assert bytes(cramjam.snappy.decompress(stream)) == data
        assert b"".join(compressed_pieces(chunks)) == stream


def test_nothing_is_no_stream() -> None:
    assert compress_frames(b"") == b""


def test_a_stream_ends_before_the_next_identifier() -> None:
    both = b"junk" + HELLO + HELLO_COMPRESSED
    assert frames_end(both, 4, len(both)) == 4 + len(HELLO)
    assert decompress_frames(both, 4, len(both)) == b"hello"


def test_repeated_identifiers_inside_one_file_are_skipped() -> None:
    assert decompress_all_frames(b"\1" + HELLO + HELLO_COMPRESSED, 1) == b"hellohello"


@pytest.mark.parametrize("kind", [0x80, 0xFD, 0xFE])
def test_chunks_that_may_be_skipped_are_refused(kind: int) -> None:
    """The highest bit of the type makes such a chunk of one with data."""
    stream = STREAM_IDENTIFIER + chunk(kind, b"abc") + plain(b"hello")
    with pytest.raises(FormatError, match="Flink does not write"):
        decompress_frames(stream, 0, len(stream))


@pytest.mark.parametrize("stream", [HELLO, HELLO_COMPRESSED])
def test_every_flipped_bit_is_found(stream: bytes) -> None:
    for bit in range(8 * len(stream)):
        damaged = bytearray(stream)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            decompress_frames(bytes(damaged), 0, len(damaged))


@pytest.mark.parametrize("stream", [HELLO, HELLO_COMPRESSED])
def test_cutting_a_stream_is_found_but_for_whole_chunks(stream: bytes) -> None:
    whole = len(STREAM_IDENTIFIER)
    for size in range(len(stream)):
        if size == whole:
            assert decompress_frames(stream, 0, size) == b""
            continue
        with pytest.raises(FormatError):
            decompress_frames(stream, 0, size)


@pytest.mark.parametrize(
    ("chunks", "problem"),
    [
        (chunk(2, b"abcdef"), "Flink does not write"),
        (chunk(0x7F, b"abcdef"), "Flink does not write"),
        (chunk(1, b"abc"), "no checksum"),
        (chunk(0, b""), "no checksum"),
        (b"\1\xff\xff\xffxx", "longer than the data"),
        (chunk(1, bytes(4) + bytes(65537)), "too large"),
        # A raw Snappy block that claims 65537, 2^32-1 and 2^35-1 bytes.
        (chunk(0, bytes(4) + b"\x81\x80\x04"), "too large"),
        (chunk(0, bytes(4) + b"\xff\xff\xff\xff\x0f"), "too large"),
        (chunk(0, bytes(4) + b"\xff\xff\xff\xff\x7f"), "too large"),
        (chunk(0, bytes(4) + b"\x05\x10hello"), "damaged"),
        (chunk(0, masked_crc32c(b"hello") + b"\x05\x10hell"), "damaged"),
        (b"\xff\x06\0\0sNaPpX", "does not start as a Snappy stream"),
        (b"\xff", "does not start as a Snappy stream"),
    ],
)
def test_damaged_chunks(chunks: bytes, problem: str) -> None:
    stream = STREAM_IDENTIFIER + chunks
    with pytest.raises(FormatError, match=problem):
        decompress_frames(stream, 0, len(stream))


@pytest.mark.parametrize("raw", [b"", b"\xff\x06\0\0sNaPp", b"hello hello"])
def test_no_identifier_is_no_stream(raw: bytes) -> None:
    with pytest.raises(FormatError, match="does not start as a Snappy stream"):
        decompress_frames(raw, 0, len(raw))
