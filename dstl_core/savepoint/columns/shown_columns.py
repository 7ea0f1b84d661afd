"""Columns of states whose values are bytes that a person, or a descriptor set, explains."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from dstl_core.codec.columnar.types.type_layouts import ColumnOptions
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.protobuf.message_states import MessageStates
from dstl_core.codec.pyflink.states import PythonStates
from dstl_core.savepoint.columns.python_states import python_columns
from dstl_core.savepoint.columns.state_messages import messages_of_state


class ShownColumns(Protocol):
    """What makes the columns of a state of those that are stored. A made column stays as it is."""

    def type_of(self, stored: pa.DataType) -> pa.DataType: ...

    def column(self, stored: pa.Array) -> pa.Array: ...

    def key_type(self, stored: pa.DataType) -> pa.DataType: ...

    def keys(self, stored: pa.Array) -> pa.Array: ...


def shown_columns(
    record_format: RecordFormat, forms: object, options: ColumnOptions
) -> ShownColumns | None:
    """What makes the columns of a state; None if they are as they are stored.

    Args:
        record_format: Of the state.
        forms: What a person says of the operator's states: ``PythonStates``, ``MessageStates``.
        options: Representation of types as columns.
    """
    if record_format.kind is None:
        return None
    if isinstance(forms, PythonStates):
        return python_columns(record_format.meta.name, record_format.kind.value.lower(), forms)
    declared = forms if isinstance(forms, MessageStates) else None
    return messages_of_state(record_format, declared, options)
