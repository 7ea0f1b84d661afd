"""Addresses of arrays, for the arguments of kernels. It loads no compiler."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt


def address_of(array: npt.NDArray[Any]) -> int:
    """The address of an array's first element; the caller keeps the array alive."""
    address: int = array.__array_interface__["data"][0]
    return address
