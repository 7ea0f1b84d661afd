"""The states that a function by row registers: in columns while they fit, else in tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError
from dstl_core.job.task.python_rows import values_of
from dstl_core.state.backends.backend import HashMapKeyedStateBackend, KeyedStateBackend
from dstl_core.state.backends.keyed_access import State, ValueState
from dstl_core.state.held.held_values import HeldValues, form_of
from dstl_core.state.tables.descriptor import StateDescriptor, ValueStateDescriptor
from dstl_core.state.tables.keyed_state import KeyedState

Changed = npt.NDArray[np.bool_]


class RowStates:
    """Gives a function its states when it opens.

    They are in columns while the function asks for value states of numbers without a time to live.
    Any other request puts all of them into tables. The state objects that the function has got
    before access the tables from then on.

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
        self.current = HashMapKeyedStateBackend(empty, key_serializer)
        """Its ``slot`` is the number of the current key in the batch. Its tables stay empty."""
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
        fits = _fits(descriptor) and (known or descriptor).serializer == descriptor.serializer
        if self._is_open and (known is None or not fits):
            expected = ", ".join(map(_described, self.descriptors.values()))
            raise ConfigError(
                f"The function asks for the state {descriptor.name!r} of type "
                f"{descriptor.serializer.type_name} after it was opened; expected one of the "
                f"states of its open(): {expected}; ask for it there."
            )
        if not fits:
            return self.in_tables().get_or_create_keyed_state(namespace_serializer, descriptor)
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
        """Gives the state objects the values of the keys of a batch; null is no value."""
        for name, held in self._held.items():
            values = values_of(states.column(name).combine_chunks())
            held.slots[:] = values
            held.changed[:] = bytes(len(values))

    def end(self, schema: pa.Schema) -> tuple[pa.Table, list[Changed]]:
        """Takes the values from the state objects.

        Returns:
            The states, a row per key, and for each state which values were set or cleared.
        """
        columns, changed = [], []
        for each in schema:
            held = self._held[each.name]
            columns.append(pa.array(held.slots, each.type))
            changed.append(np.frombuffer(bytes(held.changed), np.bool_))
            held.drop()
        self.current.slot = -1
        return pa.Table.from_arrays(columns, schema=schema), changed


def _described(descriptor: ValueStateDescriptor) -> str:
    return f"{descriptor.name!r} ({descriptor.serializer.type_name})"


def _fits(descriptor: StateDescriptor) -> bool:
    """Whether a state is one of plain numbers, a column of which is a list of Python's numbers."""
    return (
        isinstance(descriptor, ValueStateDescriptor)
        and descriptor.ttl is None
        and form_of(descriptor.serializer).exact is not None
    )
