"""What goes from the keyed state of one operator, and how much of it went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dstl_core.cached_property import cached_property
from dstl_core.codec.serializers import AnySerializer, key_groups_of, serialize_key
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import SavepointError
from dstl_core.model.handle import KeyedStateHandle
from dstl_core.model.key_group import KeyGroupRange, key_group_prefix_bytes
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog

if TYPE_CHECKING:
    from dstl_core.codec.columnar.keyed.marked_keys import KeyMarks
    from dstl_core.codec.columnar.keyed.spans import SpanBatch
    from dstl_core.savepoint.purge.rules import Rule

TIME_BYTES = 8
"""The time of a timer, which stands before its key."""


@dataclass(frozen=True)
class Purge:
    """Keys that go, with all that an operator holds of them, and rules for what stays of states.

    A stored key starts with its key group and the bytes of the key, whatever the state: namespace
    and map key follow. A timer has its time in between.

    Args:
        max_parallelism: Number of key groups of the operator.
        keys: The bytes of the keys.
        key_groups: The key groups that can have each key.
        rules: What stays of states, by name.
    """

    max_parallelism: int
    keys: Sequence[bytes] = ()
    key_groups: Sequence[Sequence[int]] = ()
    rules: Mapping[str, Rule] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter, init=False)
    """Entries that went, by state."""
    timers: dict[str, set[bytes]] = field(default_factory=dict, init=False, repr=False)
    """Stored timers that went from files of RocksDB, by state; of each state that was read."""
    _pending: Counter[str] = field(default_factory=Counter, init=False, repr=False)

    def with_keys(self, operator: OperatorCatalog, keys: Iterable[Any]) -> Purge:
        """The same, with some keys that go.

        Args:
            operator: The operator; it has keyed state.
            keys: Values of the type of its keys; equal ones count once.
        """
        key_type = operator.key_type
        assert key_type is not None  # of keyed state
        own = key_type.serializer
        groups = {
            serialize_key(own, key): tuple(key_groups_of(own, key, operator.max_parallelism))
            for key in keys
        }
        if b"" in groups:
            raise SavepointError(
                f"Keys of operator {operator.label!r} ({own.type_name}) have no bytes, so they "
                f"cannot be told apart; remove the operator."
            )
        return replace(self, keys=tuple(groups), key_groups=tuple(groups.values()))

    @property
    def prefix_bytes(self) -> int:
        return key_group_prefix_bytes(self.max_parallelism)

    @cached_property
    def stored_keys(self) -> list[bytes]:
        """What the stored keys start with, except for timers."""
        size = self.prefix_bytes
        pairs = zip(self.key_groups, self.keys, strict=True)
        return sorted(at.to_bytes(size, "big") + key for groups, key in pairs for at in groups)

    @cached_property
    def marks(self) -> KeyMarks:
        """Finds the keys in rows."""
        from dstl_core.codec.columnar.keyed.marked_keys import KeyMarks  # loads the compiler

        return KeyMarks(self.keys)

    def ranges_of_groups(self) -> Iterator[KeyGroupRange]:
        """The key groups that have a key, in ascending order; neighbours together."""
        groups = sorted({at for own in self.key_groups for at in own})
        start = 0
        for at in range(1, len(groups) + 1):
            if at == len(groups) or groups[at] != groups[at - 1] + 1:
                yield KeyGroupRange(groups[start], groups[at - 1])
                start = at

    # ------------------------------------------------------------------------------- selection

    def kept(
        self, meta: StateMetaInfoSnapshot, key_type: AnySerializer, batch: SpanBatch
    ) -> SpanBatch:
        """The records that stay. Keys of spans start after their key group."""
        number = 0
        if self.keys:
            gone = self.marks.of(batch.spans, TIME_BYTES if meta.is_queue else 0)
            number = int(gone.sum())
            batch = batch.take(~gone) if number else batch
        rule = self.rules.get(meta.name)
        if rule is not None and len(batch):
            batch, more = rule.kept(meta, key_type, self.prefix_bytes, batch)
            number += more
        if number:
            self._pending[meta.name] += number
        return batch

    def take(self) -> Counter[str]:
        """How many entries went since the last call."""
        taken = self._pending.copy()
        self._pending.clear()
        return taken

    def give(self, counts: Counter[str]) -> None:
        """Adds what went."""
        self.counts.update(counts)

    def note_timers(self, timers: Mapping[str, set[bytes]]) -> None:
        """Adds timers that go."""
        for state, stored in timers.items():
            self.timers.setdefault(state, set()).update(stored)

    def touches(self, operator: OperatorCatalog, handle: KeyedStateHandle) -> bool:
        """Whether a handle that is not files of RocksDB has an entry that goes."""
        return bool(self.found(operator, handle))

    def found(self, operator: OperatorCatalog, handle: KeyedStateHandle) -> Counter[str]:
        """The entries of a handle that go, by state; only key groups of the keys are read, unless
        there are rules.
        """
        import numpy as np  # these load the compiler

        from dstl_core.savepoint.read.stored_records import open_part

        everything = [handle.key_group_range]
        for own in everything if self.rules else self.ranges_of_groups():
            part = own.get_intersection(handle.key_group_range)
            stored = open_part(operator, handle, part) if len(part) else None
            if stored is None:
                continue
            states, key_type = stored.header.states, stored.header.key_serializer
            wanted = [bool(self.keys) or meta.name in self.rules for meta in states]
            with stored.context():
                for batch in stored.records(wanted):
                    for at in np.unique(batch.states).tolist():
                        self.kept(states[at], key_type, batch.take(batch.states == at))
        return self.take()
