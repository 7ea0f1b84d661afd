"""From which size on kernels read stored bytes, instead of code that goes record by record.

Measured with a text key and two longs: a megabyte takes 0.7 s of a core record by record, and 0.02
by kernels. To load the compiler takes a second, and to compile what a machine has not kept up to
20.
"""

from __future__ import annotations

import sys

FROM_BYTES = 4 << 20
"""In a process that has not loaded the compiler."""
LOADED_FROM_BYTES = 64 << 10
"""In one that has, such as the run of a job."""

SMALL_BYTES = 1 << 10
"""Less than this is read record by record, whatever is loaded: the calls around a kernel take as
long as ten records.
"""


def are_read_by_kernels(size: int) -> bool:
    """Whether stored bytes of this size are."""
    return size >= (LOADED_FROM_BYTES if "numba" in sys.modules else FROM_BYTES)
