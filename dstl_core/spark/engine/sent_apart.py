"""A sequence that travels to a worker as one piece of bytes per item."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class SentApart(Generic[Item]):
    """Items of which a worker builds only those that it asks for.

    Spark sends each task the parts of all tasks. If a task built the objects of all parts, every
    task would take longer with each further task. The bytes are a part of Spark's own pickled
    command, and never of a file.

    Args:
        items: The items, in order.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._pieces = tuple(pickle.dumps(each, pickle.HIGHEST_PROTOCOL) for each in items)

    def __getitem__(self, at: int) -> Item:
        found: Item = pickle.loads(self._pieces[at])
        return found
