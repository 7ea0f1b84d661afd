"""Java's big-endian primitives, for building expected bytes by hand."""

from __future__ import annotations

import struct


def i16(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}h", *numbers)


def i32(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}i", *numbers)


def i64(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}q", *numbers)


def utf(text: str) -> bytes:
    """``writeUTF`` of a text without NUL and without supplementary characters."""
    raw = text.encode()
    return struct.pack(">H", len(raw)) + raw
