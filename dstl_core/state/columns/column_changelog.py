"""The changelog and the base of value state that is stored in columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from dstl_core.changelog.interfaces import StateChangelogWriter
from dstl_core.codec.change_payload import StateChangeOperation, data_change
from dstl_core.codec.columnar.keyed.decoder import VALUE, key_roots, value_layout
from dstl_core.codec.columnar.keyed.encoder import EncodeProgram
from dstl_core.codec.columnar.types.layouts import Layout, Marker
from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.model.handle import (
    KeyGroupRangeOffsets,
)
from dstl_core.model.key_group import KeyGroupRange, key_group_prefix_bytes
from dstl_core.state.backends.state_changelog import CapturedState, StateChangelog
from dstl_core.state.columns.column_store import KEY, ColumnStore, batches_of, bytes_of
from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder
from dstl_core.state.columns.keyed_sections import KeyedSections
from dstl_core.state.columns.state_columns import KEY_COLUMN
from dstl_core.state.restore.carry_over import CarriedState
from dstl_core.state.tables.raw_sections import RawSections

_ENCODE_ROWS = 1 << 18


class ColumnChangelog(StateChangelog):
    """Logs the changes of many keys at a time.

    Args:
        writer: Writes the log of this run.
        key_groups: The key groups of the subtask.
        capture: Captures a point-in-time view of the state.
        above: The restored base and logs.
        key_type: The type of the keys.
        states: The states; the position of a state is its id.
    """

    def __init__(
        self,
        writer: StateChangelogWriter,
        key_groups: KeyGroupRange,
        capture: Callable[[], CapturedState],
        above: CarriedState,
        key_type: AnySerializer,
        states: Sequence[StateMetaInfoSnapshot],
    ) -> None:
        super().__init__(
            writer,
            key_groups,
            capture,
            base=above.base,
            restored_log=above.log,
            materialization_id=above.materialization_id,
        )
        self._key_type = key_type
        self._states = states
        self._programs: dict[tuple[int, StateChangeOperation], EncodeProgram] = {}

    def log_values(
        self,
        state_id: int,
        key_groups: Any,
        keys: pa.Array,
        values: pa.Array,
        operation: StateChangeOperation,
    ) -> None:
        """Logs one change of a state for each key; only ``SET`` uses ``values``."""
        if not len(keys):
            return
        self.describe(state_id, self._states[state_id])
        encoded = self._program(state_id, operation).encode({KEY: keys, VALUE: values}, len(keys))
        self._writer.append_batch(key_groups, bytes_of(encoded))
        self.changes += len(keys)
        self.log_bytes += int(encoded.ends[-1] - encoded.starts[0])

    def _program(self, state_id: int, operation: StateChangeOperation) -> EncodeProgram:
        """The program that encodes whole changes, with the same bytes as ``data_change``."""
        program = self._programs.get((state_id, operation))
        if program is None:
            record = RecordFormat(self._states[state_id], self._key_type)
            value = value_layout(record, DEFAULT_OPTIONS)
            head = data_change(operation, state_id, b"")
            roots: list[tuple[str, Layout]] = [
                (f"byte {at}", Marker(byte)) for at, byte in enumerate(head)
            ]
            roots += key_roots(record, DEFAULT_OPTIONS)
            if operation is StateChangeOperation.SET and value is not None:
                roots.append((VALUE, value))
            program = self._programs[state_id, operation] = EncodeProgram(roots)
        return program


class CapturedColumns:
    """A point-in-time view of a column store.

    Args:
        store: The store; later changes of it are not in the view.
        key_type: The type of the keys.
        states: The states; the position of a state is its id.
        key_groups: The key groups of the subtask.
        max_parallelism: The max parallelism of the operator.
    """

    def __init__(
        self,
        store: ColumnStore,
        key_type: AnySerializer,
        states: Sequence[StateMetaInfoSnapshot],
        key_groups: KeyGroupRange,
        max_parallelism: int,
    ) -> None:
        self._store = store.capture()
        self._encoder = KeyedStateEncoder(key_type, states, max_parallelism, key_groups=key_groups)

    def write_canonical_to(self, sink: Callable[[bytes], object]) -> KeyGroupRangeOffsets:
        """Writes all state in canonical form."""
        with self._sections() as sections:
            written = sections.stream()
            for part in written:
                sink(part)
            return written.offsets

    def raw_sections(self) -> RawSections:
        encoder = self._encoder
        prefix_bytes = key_group_prefix_bytes(encoder.max_parallelism)
        return RawSections(encoder.header, encoder.key_groups, prefix_bytes, self._by_key_group())

    def _by_key_group(self) -> Iterator[tuple[int, bytes]]:
        with self._sections() as sections:
            yield from sections.stream().raw_sections()

    @contextmanager
    def _sections(self) -> Iterator[KeyedSections]:
        encoder = self._encoder
        whole = self._store.whole().rename_columns([KEY_COLUMN, *self._store.schema.names])
        with KeyedSections(
            encoder.header, encoder.key_groups, encoder.max_parallelism, check_duplicates=False
        ) as sections:
            for batch in batches_of(whole, _ENCODE_ROWS):
                for runs in encoder.encode_keyed(batch):
                    sections.add(runs)
            yield sections
