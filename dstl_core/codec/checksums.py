"""CRC-32C as Snappy's frames and RocksDB's table files store it.

Source: section 3 of Snappy's ``framing_format.txt``, and ``util/crc32c.h`` of RocksDB: the rotated
checksum plus a constant, because checksums of data with checksums in it are weak.
"""

from __future__ import annotations

import google_crc32c

_DELTA = 0xA282EAD8
_U32 = 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """The masked CRC-32C (Castagnoli) of bytes, 32 bits."""
    return masked(google_crc32c.value(data))


def masked(crc: int) -> int:
    """A CRC-32C as it is stored."""
    return ((crc >> 15 | crc << 17) + _DELTA) & _U32
