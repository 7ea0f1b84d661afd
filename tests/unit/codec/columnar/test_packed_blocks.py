"""Blocks are packed and unpacked by kernels as the libraries do it, and nothing beside them is
touched.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import cramjam
import numpy as np
import pytest

from dstl_core.codec.checksums import masked_crc32c
from dstl_core.codec.columnar.keyed import packed_blocks
from dstl_core.codec.sst.block import BLOCK_TRAILER_BYTES, unpack_block
from tests.guarded_memory import forget_regions, guarded_build, violations

CRC32C, SNAPPY = 1, 1


def payloads() -> list[bytes]:
    numbers = random.Random(7)
    texts = [b"key-%d, which is one of many; " % numbers.randrange(10_000) for _ in range(20_000)]
    return [
        b"a",
        b"ab" * 7,
        bytes(4_096),
        numbers.randbytes(4_096),
        numbers.randbytes(300) * 12,
        b"".join(texts[:150]),
        b"".join(texts[:800]) + numbers.randbytes(70) + bytes(100),
        numbers.randbytes(1 << 16) * 2,
        b"".join(texts),
        *(bytes(numbers.choices(b"abc", k=size)) for size in range(2, 90)),
    ]


def packed(build: Any, parts: list[bytes]) -> list[bytes]:
    """The blocks of some payloads, each with its trailer."""
    ends = np.cumsum([len(part) for part in parts])
    blocks, block_ends = build.packed_blocks(memoryview(b"".join(parts)), ends)
    starts = [0, *block_ends[:-1].tolist()]
    return [
        blocks[start:end].tobytes() for start, end in zip(starts, block_ends.tolist(), strict=True)
    ]


def unpacked(build: Any, stored: list[bytes], sizes: list[int]) -> list[bytes | None]:
    """The payloads of some packed ones; None for those that are refused."""
    ends, highs = np.cumsum([len(each) for each in stored]), np.cumsum(sizes)
    places = np.stack([ends - [len(each) for each in stored], ends], axis=1)
    targets = np.stack([highs - sizes, highs], axis=1)
    raw = np.frombuffer(b"".join(stored), np.uint8)
    room = np.zeros(int(highs[-1]), np.uint8)
    refused = {*build.refused_payloads(raw, places, room, targets)}
    return [
        None if row in refused else room[low:high].tobytes()
        for row, (low, high) in enumerate(targets.tolist())
    ]


def damaged(stored: bytes, count: int, seed: int) -> Iterator[bytes]:
    numbers = random.Random(seed)
    for _ in range(count):
        changed = bytearray(stored)
        for _ in range(numbers.randrange(1, 4)):
            changed[numbers.randrange(len(changed))] = numbers.randrange(256)
        yield bytes(changed[: numbers.choice([len(changed), numbers.randrange(1, len(changed))])])


def of_library(stored: bytes, size: int) -> bytes | None:
    room = bytearray(size)
    try:
        return bytes(room) if cramjam.snappy.decompress_raw_into(stored, room) == size else None
    except cramjam.DecompressionError:
        return None


def test_what_is_packed_the_decoder_of_blocks_reads() -> None:
    parts = payloads()
    for block, payload in zip(packed(packed_blocks, parts), parts, strict=True):
        assert unpack_block(block, CRC32C, 0) == payload


def test_kernels_pack_as_small_as_the_library() -> None:
    parts = [part for part in payloads() if len(part) > 1_000]
    size = sum(len(block) - BLOCK_TRAILER_BYTES for block in packed(packed_blocks, parts))
    library = sum(min(len(part), len(cramjam.snappy.compress_raw(part))) for part in parts)
    assert size <= 1.03 * library


def test_what_the_library_has_packed_kernels_unpack() -> None:
    parts = payloads()
    stored = [bytes(cramjam.snappy.compress_raw(part)) for part in parts]
    assert unpacked(packed_blocks, stored, [len(part) for part in parts]) == parts


def test_a_damaged_payload_is_refused_where_the_library_refuses_it() -> None:
    for number, part in enumerate(payloads()[1:8]):
        cases = [*damaged(bytes(cramjam.snappy.compress_raw(part)), 60, number)]
        sizes = [len(part)] * len(cases)
        expected = [of_library(case, len(part)) for case in cases]
        assert unpacked(packed_blocks, cases, sizes) == expected


def test_checksums_are_those_of_the_library() -> None:
    parts = payloads()
    raw, ends = b"".join(parts), np.cumsum([len(part) for part in parts])
    starts = ends - [len(part) for part in parts]
    expected = [masked_crc32c(part) for part in parts]
    assert packed_blocks.checksums(memoryview(raw), starts, ends).tolist() == expected


@pytest.mark.slow
def test_kernels_stay_within_their_buffers() -> None:
    build = guarded_build().packed_blocks
    before = violations()
    parts = payloads()[:8]
    forget_regions()
    assert packed(build, parts) == packed(packed_blocks, parts)
    for number, part in enumerate(parts):
        forget_regions()
        stored = bytes(cramjam.snappy.compress_raw(part))
        cases = [stored, *damaged(stored, 40, number)] if len(stored) > 2 else [stored]
        sizes = [len(part)] * len(cases)
        assert unpacked(build, cases, sizes) == unpacked(packed_blocks, cases, sizes)
    assert violations() == before
