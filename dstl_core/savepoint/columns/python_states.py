"""States of PyFlink in columns of the types that a person has declared.

In process mode Flink keeps bytes, and value, list, reducing and aggregating states all as lists. A
number, a truth value and a text have a column of their type. Values of all other types are texts of
JSON, as ``dstl dump`` prints them. One Python call a value makes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dstl_core.codec.pyflink.coders import Coder
from dstl_core.codec.pyflink.declared import PythonStateType
from dstl_core.codec.pyflink.states import PREFIX, PythonStates, check_kind, only_value
from dstl_core.codec.serializers.base import JsonValue

_TYPES = {
    "BYTE": pa.int8(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "LONG": pa.int64(),
    "BIG_INT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "CHAR": pa.string(),
    "BIG_DEC": pa.string(),
}
_FLOATS = ("FLOAT", "DOUBLE")


@dataclass(frozen=True)
class PythonColumns:
    """The columns of one state of process mode.

    Args:
        name: The name that the job gave.
        declared: What it declared.
    """

    name: str
    declared: PythonStateType

    def type_of(self, stored: pa.DataType) -> pa.DataType:
        """The type of a column of values, whole maps or whole lists."""
        value = _type_of(self.declared.value)
        if pa.types.is_map(stored):
            return pa.map_(self.key_type(stored.key_type), value)
        return pa.list_(value) if self.declared.kind == "list" else value

    def key_type(self, stored: pa.DataType) -> pa.DataType:
        return stored if self.declared.key is None else _type_of(self.declared.key)

    def column(self, stored: pa.Array) -> pa.Array:
        """The values of a column.

        Raises:
            FormatError: Bytes are not of the declared type.
        """
        made = self.type_of(stored.type)
        if not _is_stored(stored.type):
            return stored
        return pa.array([self._whole(each) for each in stored.to_pylist()], made)

    def keys(self, stored: pa.Array) -> pa.Array:
        """The keys of a map, of a row each."""
        key = self.declared.key
        if key is None or not pa.types.is_binary(stored.type):
            return stored
        return pa.array([_value(key, key.only(raw)) for raw in stored.to_pylist()], _type_of(key))

    def _whole(self, stored: Any) -> Any:
        if stored is None:
            return None
        value, key = self.declared.value, self.declared.key
        if isinstance(stored, bytes):
            return _value(value, value.only(stored))
        if key is not None:
            return [
                (
                    _value(key, key.only(map_key)),
                    None if item is None else _value(value, value.only(_raw(item))),
                )
                for map_key, item in stored
            ]
        values = [_value(value, each) for item in stored for each in value.every(_raw(item))]
        if self.declared.kind == "list":
            return values
        return only_value(self.name, value, values)


def python_columns(stored_name: str, kind: str, states: PythonStates) -> PythonColumns | None:
    """What makes the columns of a state; None without a declared type, or in thread mode.

    Raises:
        ConfigError: It is stored as another kind of state.
    """
    state = stored_name.removeprefix(PREFIX)
    declared = states.types.get(state)
    if declared is None or state == stored_name:
        return None
    check_kind(state, kind, declared, is_process=True)
    return PythonColumns(state, declared)


def _is_stored(stored: pa.DataType) -> bool:
    """Whether a column has bytes yet, or lists or maps of bytes, maybe with times of access."""
    if pa.types.is_map(stored):
        return bool(pa.types.is_binary(stored.key_type))
    if pa.types.is_list(stored):
        return _is_stored(stored.value_type)
    return bool(pa.types.is_binary(stored) or pa.types.is_struct(stored))


def _raw(item: Any) -> bytes:
    raw: bytes = item["v"] if isinstance(item, dict) else item
    return raw


def _type_of(coder: Coder) -> pa.DataType:
    return _TYPES.get(coder.kind, pa.string())


def _value(coder: Coder, text: JsonValue) -> Any:
    if coder.kind in _FLOATS:
        return float(str(text))
    return text if coder.kind in _TYPES else json.dumps(text, ensure_ascii=False)
