"""All bytes of a folder, unpacked by plain Python: what a search for a text has to look through."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
from cramjam import DecompressionError, snappy

MAGIC = b"\xff\x06\x00\x00sNaPpY"


def frames(raw: bytes, start: int) -> bytes:
    """What the frames of Snappy after a magic have packed, up to what is no frame."""
    unpacked, at = b"", start
    while at + 8 <= len(raw):
        kind, size = raw[at], int.from_bytes(raw[at + 1 : at + 4], "little")
        body = raw[at + 8 : at + 4 + size]
        if kind not in (0, 1) or len(body) != size - 4 or not body:
            break
        try:
            unpacked += bytes(snappy.decompress_raw(body)) if kind == 0 else body
        except DecompressionError:  # what follows in the file begins like a frame
            break
        at += 4 + size
    return unpacked


def bytes_of(path: Path) -> Iterator[bytes]:
    """The bytes of a file, and those that are packed in it."""
    raw = path.read_bytes()
    yield raw
    if path.suffix == ".parquet":
        yield repr(pq.read_table(path).to_pylist()).encode()
    at = raw.find(MAGIC)
    while at >= 0:
        yield frames(raw, at + len(MAGIC))
        at = raw.find(MAGIC, at + 1)


def files_with(folder: Path, text: str) -> list[str]:
    """The files below a folder that hold a text, packed or not."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and any(text.encode() in raw for raw in bytes_of(path))
    )
