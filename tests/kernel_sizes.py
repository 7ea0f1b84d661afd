"""Tests choose who reads stored bytes: kernels, or code that goes record by record."""

from __future__ import annotations

import pytest

from dstl_core.state.restore import kernel_sizes

NEVER = 1 << 60


def kernels_from(patch: pytest.MonkeyPatch, size: int) -> None:
    """Kernels read stored bytes of this size and more: 0 for all, ``NEVER`` for none."""
    for name in ("FROM_BYTES", "LOADED_FROM_BYTES"):
        patch.setattr(kernel_sizes, name, size)
