"""Elements that a batch of rows adds to the lists of a state, until the batch ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from dstl_core.codec.change_payload import StateChangeOperation
from dstl_core.state.held.change_logger import StateChangeLogger
from dstl_core.state.held.held_values import MOST_BYTES, HeldForm
from dstl_core.state.tables.state_table import ListTable, join_elements

if TYPE_CHECKING:
    from dstl_core.state.held.key_batch import KeyBatch

_OBJECT_BYTES = 64


def append_elements(
    table: ListTable,
    key_groups: Sequence[int],
    scopes: Sequence[bytes],
    added: Sequence[Sequence[bytes]],
) -> None:
    """Appends the elements of each of some distinct places to its list."""
    old = table.get_many(key_groups, scopes)
    new = [
        join_elements(parts if stored is None else [stored, *parts])
        for stored, parts in zip(old, added, strict=True)
    ]
    table.put_many(key_groups, scopes, new)


class AddedElements:
    """What a batch has added so far, by the number of the key.

    Args:
        table: The state.
        form: How its elements are held.
    """

    def __init__(self, table: ListTable, form: HeldForm) -> None:
        self.table = table
        self.form = form
        self._added: dict[int, list[Any]] = {}
        self._room = MOST_BYTES

    def add(self, slot: int, element: Any) -> bool:
        """Adds an element; False if it is time to write them back."""
        elements = self._added.get(slot)
        if elements is None:
            self._added[slot] = [element]
        else:
            elements.append(element)
        self._room -= _OBJECT_BYTES + (len(element) if isinstance(element, bytes) else 0)
        return self._room >= 0

    def take(self, slot: int) -> Sequence[bytes]:
        """The elements of a key, which are no longer held."""
        elements = self._added.pop(slot, None)
        return () if elements is None else self.form.encode(elements)

    def write_back(self, batch: KeyBatch, logger: StateChangeLogger | None) -> None:
        """Appends the elements to their lists and logs them."""
        if not self._added:
            return
        places, added = batch.places, self._added
        key_groups = [places.key_groups[slot] for slot in added]
        scopes = [places.scopes[slot] for slot in added]
        counts = list(map(len, added.values()))
        raw = self.form.encode(list(chain.from_iterable(added.values())))
        one_by_one = iter(raw)
        parts = [[next(one_by_one) for _ in range(count)] for count in counts]
        append_elements(self.table, key_groups, scopes, parts)
        if logger is not None:
            logger.logged_batch(
                self.table.meta,
                StateChangeOperation.ADD_ELEMENT,
                list(chain.from_iterable(map(repeat, key_groups, counts))),
                list(chain.from_iterable(map(repeat, scopes, counts))),
                raw,
            )
        self.release()

    def release(self) -> None:
        """Forgets what was added."""
        self._added.clear()
        self._room = MOST_BYTES
