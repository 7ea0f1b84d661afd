"""Priority queues of keyed state (timers), in the order of their elements."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat, takewhile
from typing import Any

from dstl_core.codec.change_payload import StateChangeOperation
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers import TimerSerializer, deserialize_exactly
from dstl_core.errors import FormatError
from dstl_core.state.tables.state_table import StateTable
from dstl_core.state.tables.store import Shape


class QueueTable(StateTable[None]):
    """A priority queue. The scope is the element. Timers sort by their bytes in order of time."""

    shape = Shape.ELEMENTS
    _order: QueueOrder | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._least: dict[int, bytes] = {}
        """For some key groups, bytes that no element is before."""

    def load(self, stored_key: bytes, value: bytes) -> None:
        size = self.codec.prefix_bytes
        if len(stored_key) <= size or value:
            raise FormatError(
                f"A record of queue {self.meta.name!r} is damaged",
                expected=f"a key of more than {size} bytes and no value",
                got=f"{len(stored_key)} and {len(value)} bytes",
            )
        self.group(int.from_bytes(stored_key[:size], "big"))[stored_key[size:]] = None

    def records(self, key_group: int) -> Iterator[tuple[bytes, bytes]]:
        prefix = key_group.to_bytes(self.codec.prefix_bytes, "big")
        for element in self.groups.get(key_group, {}):
            yield prefix + element, b""

    def load_entry(
        self, key_group: int, scope: bytes, value: bytes, pairs: Iterable[tuple[bytes, bytes]]
    ) -> None:
        self.group(key_group)[scope] = None

    def _scope(self, body: DataInput) -> bytes:
        return b""  # the change of a queue has no scope

    def _apply(
        self, operation: StateChangeOperation, key_group: int, scope: bytes, body: DataInput
    ) -> None:
        element = self.meta.value_serializer
        match operation:
            case StateChangeOperation.ADD_ELEMENT:
                for _ in range(body.read_count("queue elements", 1)):
                    self.add(key_group, body.read_value(element))
            case StateChangeOperation.REMOVE_ELEMENT:
                self.remove(key_group, body.read_value(element))
            case _:
                raise self._unknown(operation)
        body.expect_end("a queue change")

    def add(self, key_group: int, element: bytes) -> bool:
        """Adds an element; returns False if the queue already had it."""
        group = self.group(key_group)
        if element in group:
            return False
        group[element] = None
        if self._order is not None:
            self._order.added(key_group, element)
        if key_group in self._least and element < self._least[key_group]:
            self._least[key_group] = element
        return True

    def remove(self, key_group: int, element: bytes) -> bool:
        """Removes an element; returns False if the queue did not have it."""
        group = self.group(key_group)
        if element not in group:
            return False
        del group[element]
        return True

    def add_new(self, key_groups: Sequence[int], elements: Sequence[bytes]) -> None:
        """Adds elements that the queue does not have."""
        for key_group in set(key_groups):
            self.group(key_group)
        self.store_groups.add_many(self.groups, key_groups, elements)
        self._order = None
        least = self._least
        for key_group, element in zip(key_groups, elements, strict=True):
            if key_group in least and element < least[key_group]:
                least[key_group] = element

    def take_before(self, bound: bytes | None, most: int) -> tuple[list[int], list[bytes]]:
        """Removes the elements before a bound, or all; returns them with their key groups.

        In a store with sorted groups it takes at most ``most`` elements, the first ones of a group
        first. In another store it takes whole groups, until it has so many.
        """
        is_sorted = self.store_groups.is_sorted
        groups: list[int] = []
        elements: list[bytes] = []
        for key_group, group in self.groups.items():
            if len(elements) >= most:
                break
            if bound is not None and self._least.get(key_group, b"") >= bound:
                continue
            if bound is None:
                before: Iterable[bytes] = iter(group)
            else:
                before = (
                    takewhile(bound.__gt__, group) if is_sorted else filter(bound.__gt__, group)
                )
            due = list(islice(before, most - len(elements)) if is_sorted else before)
            groups += repeat(key_group, len(due))
            elements += due
            if not due and not is_sorted and group:
                self._least[key_group] = min(group)
        self.store_groups.remove_many(self.groups, groups, elements)
        self._order = None
        return groups, elements

    def first(self) -> tuple[int, bytes] | None:
        """``(key group, element)`` of the first element, or None if there is none."""
        if self._order is None:
            self._order = QueueOrder(self)
        return self._order.first()

    def decode(self, scope: bytes, stored: None) -> tuple[Any, Any, Any]:
        serializer = self.meta.value_serializer
        if not isinstance(serializer, TimerSerializer):
            raise FormatError(
                f"Queue {self.meta.name!r} has another type",
                expected="Timer",
                got=serializer.type_name,
            )
        timer = deserialize_exactly(serializer, scope)
        return timer.key, timer.namespace, timer


class QueueOrder:
    """The order of a queue's elements over all its key groups.

    Invariant: the heap has every element of the queue. If the store keeps groups sorted, the heap
    has at least the first element of each group. It may also have removed elements.
    """

    def __init__(self, table: QueueTable) -> None:
        self._table = table
        self._sorted = table.store_groups.is_sorted
        self._heap: list[tuple[bytes, int]] = []
        for key_group, group in table.groups.items():
            if not self._sorted:
                self._heap += [(element, key_group) for element in group]
            else:
                self._push_first(key_group)
        heapq.heapify(self._heap)

    def _push_first(self, key_group: int) -> None:
        first = next(iter(self._table.groups[key_group]), None)
        if first is not None:
            heapq.heappush(self._heap, (first, key_group))

    def added(self, key_group: int, element: bytes) -> None:
        if self._sorted:
            # Only the first element of a sorted group has to be in the heap.
            if next(iter(self._table.groups[key_group])) == element:
                heapq.heappush(self._heap, (element, key_group))
            return
        heapq.heappush(self._heap, (element, key_group))

    def first(self) -> tuple[int, bytes] | None:
        heap = self._heap
        while heap:
            element, key_group = heap[0]
            if element in self._table.groups[key_group]:
                return key_group, element
            heapq.heappop(heap)
            if self._sorted:
                self._push_first(key_group)
        return None
