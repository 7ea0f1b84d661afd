"""A property that is computed once, without a lock."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

Value = TypeVar("Value")


class cached_property(functools.cached_property[Value]):  # named as that of Python
    """As Python's since 3.12. Before, all objects of a class share a lock: threads that read two
    files wait for each other, and a fork waits for ever for a thread that it does not have.

    Two threads that ask one object at the same time may both compute.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        super().__init__(compute)
        self.lock = nullcontext()
