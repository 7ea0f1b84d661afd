"""Fakes and helpers for tests. Production code imports none of them."""

from dstl_core.testing.faulty_file_io import (
    Fault,
    FaultyFileIO,
    scripted_faults,
    seeded_faults,
)
from dstl_core.testing.manual import ManualClock, ManualScheduler
from dstl_core.testing.memory_file_io import MemoryFileIO

__all__ = [
    "Fault",
    "FaultyFileIO",
    "ManualClock",
    "ManualScheduler",
    "MemoryFileIO",
    "scripted_faults",
    "seeded_faults",
]
