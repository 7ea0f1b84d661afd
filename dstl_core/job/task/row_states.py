"""The states that a function by row registers: in columns while they fit, else in tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dstl_core.codec.columnar.types.input import one_array
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError, InvariantViolation
from dstl_core.job.task.column_forms import ColumnForm, column_form_of, with_values
from dstl_core.state.backends.backend import HashMapKeyedStateBackend, KeyedStateBackend
from dstl_core.state.backends.keyed_access import State, ValueState
from dstl_core.state.held.held_values import HeldValues
from dstl_core.state.tables.descriptor import StateDescriptor, ValueStateDescriptor
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.state_table import ValueTable

Changed = npt.NDArray[np.bool_]


class _BatchOfColumns(HashMapKeyedStateBackend):
    """The held values of the keys of a batch, whose states are columns. Its tables stay empty."""

    def __init__(self, empty: KeyedState, key_serializer: AnySerializer) -> None:
        super().__init__(empty, key_serializer)
        self.forms: dict[str, ColumnForm] = {}
        """How the values of each state are held, by its name."""
        self.before: pa.Table | None = None
        """The states of the keys of the present batch; null is no value."""

    def held_values(self, table: ValueTable) -> HeldValues | None:
        form = self.forms.get(table.meta.name)
        if form is None:
            return super().held_values(table)
        held = self._held.get(table.meta.name)
        if held is None:
            held = self._held[table.meta.name] = HeldValues(table, form)
        return held

    def hold(self, held: HeldValues) -> bool:
        """Reads the values of a state when the function first accesses it in a batch."""
        if self.before is None:
            return False
        name = held.table.meta.name
        values = self.forms[name].from_column(one_array(self.before.column(name)))
        held.slots[:] = values
        held.changed[:] = bytes(len(values))
        return True


class RowStates:
    """Gives a function its states when it opens.

    They are in columns while the function asks for value states without a time to live, of types
    that ``column_form_of`` knows. Any other request puts all of them into tables. The state
    objects that the function has got before access the tables from then on.

    Args:
        empty: A state without entries, of the subtask's key groups.
        key_serializer: The type of the keys.
        open_tables: Restores the state into tables.
    """

    def __init__(
        self,
        empty: KeyedState,
        key_serializer: AnySerializer,
        open_tables: Callable[[], KeyedStateBackend],
    ) -> None:
        self.current = _BatchOfColumns(empty, key_serializer)
        """Its ``slot`` is the number of the current key in the batch."""
        self.descriptors: dict[str, ValueStateDescriptor] = {}
        """The states in columns, by name."""
        self.failure: Exception | None = None
        """Why the state could not be restored into tables."""
        self._open_tables = open_tables
        self._tables: KeyedStateBackend | None = None
        self._is_open = False
        self._held: dict[str, HeldValues] = {}
        self._given: list[tuple[AnySerializer, StateDescriptor, ValueState]] = []

    def get_or_create_keyed_state(
        self, namespace_serializer: AnySerializer, descriptor: StateDescriptor
    ) -> State[Any]:
        """As the method of ``KeyedStateBackend``.

        Raises:
            ConfigError: The function works on columns, and its ``open`` did not ask for this state.
        """
        if self._tables is not None:
            return self._tables.get_or_create_keyed_state(namespace_serializer, descriptor)
        known = self.descriptors.get(descriptor.name)
        form = _form_of(descriptor)
        if form is not None and known is not None and known.type != form.kind:
            form = None
        if self._is_open and (known is None or form is None):
            expected = ", ".join(map(_described, self.descriptors.values()))
            raise ConfigError(
                f"The function asks for the state {descriptor.name!r} of type "
                f"{descriptor.serializer.type_name} after it was opened; expected one of the "
                f"states of its open(): {expected}; ask for it there."
            )
        if form is None:
            return self.in_tables().get_or_create_keyed_state(namespace_serializer, descriptor)
        self.current.forms.setdefault(descriptor.name, form)
        state: Any = self.current.get_or_create_keyed_state(namespace_serializer, descriptor)
        if not self._is_open and isinstance(state, ValueState):
            self._given.append((namespace_serializer, descriptor, state))
        if known is None and isinstance(descriptor, ValueStateDescriptor):
            self.descriptors[descriptor.name] = descriptor
            held = self.current.held_values(state.table)
            if held is not None:
                self._held[descriptor.name] = held
        return state  # type: ignore[no-any-return]  # the descriptor says which kind

    def in_tables(self) -> KeyedStateBackend:
        """Restores the state into tables, unless it is there. The function keeps its objects."""
        if self._tables is None:
            try:
                self._tables = self._open_tables()
            except Exception as error:
                self.failure = error
                raise
            for namespace_serializer, descriptor, state in self._given:
                of_tables: Any = self._tables.get_or_create_keyed_state(
                    namespace_serializer, descriptor
                )
                state.move_to(of_tables)
        return self._tables

    def opened(self) -> bool:
        """Ends the registration of states; returns whether all states are in columns."""
        self._is_open = True
        return self._tables is None and bool(self.descriptors)

    def begin(self, states: pa.Table) -> None:
        """Begins a batch whose keys have these states; null is no value."""
        self.current.before = states

    def is_large(self, numbers: Sequence[int], *, in_order: bool) -> bool:
        """Whether the batch should end, because values without a bound on their size are large.

        Args:
            numbers: The keys that the function has had since the last call.
            in_order: Whether they are in ascending order, without gaps.
        """
        large = False
        for name, held in self._held.items():
            if held.slots and self.current.forms[name].has_size:
                values: Iterable[Any] = (
                    held.slots[numbers[0] : numbers[-1] + 1]
                    if in_order
                    else map(held.slots.__getitem__, set(numbers))
                )
                large |= not held.grows(sum(map(len, filter(None, values))))
        return large

    def end(self) -> tuple[pa.Table, list[Changed]]:
        """Ends the batch.

        Returns:
            The states, a row per key, and for each state which values were set or cleared.

        Raises:
            ColumnValueError: A column cannot have a value.
        """
        before = self.current.before
        if before is None:
            raise InvariantViolation("no batch has begun")
        columns, changed = [], []
        for kind in before.schema:
            held, column = self._held[kind.name], one_array(before.column(kind.name))
            of_state = np.zeros(len(column), np.bool_)
            if any(held.changed):
                of_state = np.frombuffer(bytes(held.changed), np.bool_)
                values = held.slots if of_state.all() else list(compress(held.slots, held.changed))
                new = self.current.forms[kind.name].to_column(values, kind.type)
                column = new if of_state.all() else with_values(column, of_state, new)
            columns.append(column)
            changed.append(of_state)
            held.release()
        self.current.slot, self.current.before = -1, None
        return pa.Table.from_arrays(columns, schema=before.schema), changed


def _described(descriptor: ValueStateDescriptor) -> str:
    return f"{descriptor.name!r} ({descriptor.serializer.type_name})"


def _form_of(descriptor: StateDescriptor) -> ColumnForm | None:
    """How the values of a state are held in a batch; None if it is not in columns."""
    if not isinstance(descriptor, ValueStateDescriptor) or descriptor.ttl is not None:
        return None
    return column_form_of(descriptor.type)
