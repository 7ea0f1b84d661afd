"""Keyed states of PyFlink as the job sees them: their names, kinds, keys and values.

In process mode a state has the name ``python-state-`` and its own. Value, list, reducing and
aggregating states are lists of ``byte[]``; one ``byte[]`` may hold several elements. A map has
keys and values of ``byte[]``. In thread mode names and kinds are the job's own, and a ``byte[]`` is
a pickle. Both modes keep a key as a row of one field.

Source: ``pyflink.fn_execution.state_impl`` and savepoints of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dstl_core.codec.pyflink.coders import PICKLED, STRING, Coder, pickled
from dstl_core.codec.pyflink.declared import PythonStateType
from dstl_core.codec.serializers.arrays import BytePrimitiveArraySerializer
from dstl_core.codec.serializers.base import AnySerializer, JsonValue, OpaqueValue, value_text
from dstl_core.codec.serializers.collections import text_key
from dstl_core.codec.serializers.runtime import TtlValue
from dstl_core.codec.serializers.structs import Row, RowSerializer
from dstl_core.errors import ConfigError, FormatError, UnreadableValueError
from dstl_core.model.shown_state import ShownState

PREFIX = "python-state-"
STREAM_KEY = "_stream_key_by_map_operator"
"""The operator that PyFlink puts before one with keyed state."""
_PROTOCOL = b"\x80"
_ONE_VALUE = ("value", "reducing", "aggregating")


@dataclass(frozen=True)
class PythonStates:
    """How the keyed states of one operator of PyFlink are read.

    Args:
        types: What the job declares of them, by the names that it gave.
    """

    types: Mapping[str, PythonStateType] = field(default_factory=dict)

    def key_text(self, key_type: AnySerializer, key: Any) -> JsonValue:
        """The key without the row around it. A key without a declared type is a pickle."""
        inner = key_in_row(key_type)
        if inner is None or not isinstance(key, Row) or key.kind:
            return value_text(key_type, key)
        [value] = key.fields
        if isinstance(value, bytes):
            try:
                return _pickled_or_hex(value)
            except UnreadableValueError:
                return value.hex()
        return None if value is None else inner.to_text(value)

    def shown(self, name: str, kind: str, value_type: AnySerializer, value: Any) -> ShownState:
        """A state's value as the job sees it.

        Args:
            name: The stored name.
            kind: The stored kind.
            value_type: The stored type of the whole value.
            value: The whole value: that of a value state, all elements, all pairs.

        Raises:
            UnreadableValueError: A pickle would call something.
            FormatError: The bytes are not of the declared type.
        """
        state = self._shown(name, kind, value_type, value)
        return replace(state, has_stored_form=True)

    def _shown(self, name: str, kind: str, value_type: AnySerializer, value: Any) -> ShownState:
        state = name.removeprefix(PREFIX)
        declared = self.types.get(state)
        if declared is not None:
            check_kind(state, kind, declared, is_process=state != name)
        if isinstance(value, OpaqueValue) or state == name:
            return self._of_thread(state, kind, declared, value_type, value)
        if kind == "map":
            return self._map(state, declared, value)
        items = _listed(value)
        if declared is None:
            return _undeclared(state, kind, items)
        values = [each for item in items for each in _element(item, declared.value.every)]
        if declared.kind == "list":
            return ShownState(state, "list", values)
        only = only_value(state, declared.value, values)
        return ShownState(state, declared.kind or "value", only)

    def _map(self, state: str, declared: PythonStateType | None, value: Any) -> ShownState:
        if declared is not None and declared.key is not None:
            key = declared.key
            pairs = [
                [key.only(_raw(stored)), _only(item, declared.value.only)]
                for stored, item in _paired(value)
            ]
            return ShownState(state, "map", _sorted_pairs(pairs))
        guesses: set[str | None] = set()
        pairs = [
            [_noted(_raw(map_key), guesses), _only(item, lambda raw: _noted(raw, guesses))]
            for map_key, item in _paired(value)
        ]
        return ShownState(state, "map", _sorted_pairs(pairs), _one(guesses))

    def _of_thread(
        self,
        state: str,
        kind: str,
        declared: PythonStateType | None,
        value_type: AnySerializer,
        value: Any,
    ) -> ShownState:
        shown_kind = kind if declared is None or declared.kind is None else declared.kind
        _check_items(value)
        if not isinstance(value, OpaqueValue) and _holds_bytes(value_type):
            if kind == "map":
                key_type, item_type = value_type.nested[-2:]
                pairs = [
                    [_from_java(key_type, key), _from_java(item_type, item)] for key, item in value
                ]
                return ShownState(state, shown_kind, _sorted_pairs(pairs))
            if kind == "list":
                element = value_type.nested[0]
                return ShownState(state, shown_kind, [_from_java(element, item) for item in value])
            return ShownState(state, shown_kind, _from_java(value_type, value))
        return ShownState(state, shown_kind, value_text(value_type, value))


def key_in_row(key_type: AnySerializer) -> AnySerializer | None:
    """The type of the one field of a row, which PyFlink puts around a key."""
    if isinstance(key_type, RowSerializer) and len(key_type.fields) == 1:
        return key_type.fields[0]
    return None


def check_kind(state: str, stored: str, declared: PythonStateType, *, is_process: bool) -> None:
    """Raises ConfigError if a state of this stored kind cannot be what the job declares."""
    expected = (declared.kind or stored) if not is_process else None
    if is_process:
        fits = (stored == "map") == (declared.kind == "map")
    else:
        fits = stored == ("value" if expected in _ONE_VALUE else expected)
    if not fits:
        raise ConfigError(
            f"State {state!r} is stored as {stored}, and cannot be a {declared.kind or 'value'}; "
            f"give its kind with its type, such as map[STRING, LONG] or list[LONG]."
        )


def _holds_bytes(value_type: AnySerializer) -> bool:
    return isinstance(value_type, BytePrimitiveArraySerializer) or any(
        map(_holds_bytes, value_type.nested)
    )


def _from_java(value_type: AnySerializer, value: Any) -> JsonValue:
    """A value of thread mode: bytes are pickles, all else has the type of Java."""
    if isinstance(value, TtlValue):
        return {"v": _from_java(value_type.nested[0], value.value), "ts": value.last_access}
    if isinstance(value, bytes):
        return _pickled_or_hex(value)
    return None if value is None else value_text(value_type, value)


def _element(item: Any, read: Callable[[bytes], list[JsonValue]]) -> list[JsonValue]:
    """The values in one stored element, each with its time to live."""
    if isinstance(item, TtlValue):
        return [{"v": each, "ts": item.last_access} for each in read(_raw(item.value))]
    return read(_raw(item))


def _only(item: Any, read: Callable[[bytes], JsonValue]) -> JsonValue:
    if item is None:
        return None
    if isinstance(item, TtlValue):
        return {"v": _only(item.value, read), "ts": item.last_access}
    return read(_raw(item))


def _check_items(value: Any) -> None:
    """Raises UnreadableValueError if a part of a list, a map or a time to live is unreadable."""
    items = value if isinstance(value, list) else [value] if isinstance(value, TtlValue) else []
    for item in items:
        for part in item if isinstance(item, tuple) else [item]:
            inner = part.value if isinstance(part, TtlValue) else part
            if isinstance(inner, OpaqueValue):
                raise UnreadableValueError(
                    inner.reason or f"values of type {inner.java_class} need classes of the job"
                )


def _listed(value: Any) -> list[Any]:
    """The elements of a state of process mode."""
    if not isinstance(value, list):
        raise _no_bytes()
    return value


def _paired(value: Any) -> list[Any]:
    """The pairs of a map of process mode."""
    pairs = _listed(value)
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise _no_bytes()
    return pairs


def _raw(item: Any) -> bytes:
    if not isinstance(item, bytes):
        raise _no_bytes()
    return item


def _no_bytes() -> UnreadableValueError:
    return UnreadableValueError("The state has the name of one of PyFlink, and holds no bytes")


def _undeclared(state: str, kind: str, value: Any) -> ShownState:
    """A list whose elements are pickles or texts, if all of them look so; else their bytes."""
    raws = [_raw(item.value if isinstance(item, TtlValue) else item) for item in value]
    for coder in (PICKLED, STRING):
        if all(_looks(coder, raw) for raw in raws):
            values = [each for item in value for each in _element(item, coder.every)]
            return ShownState(state, kind, values, coder.name)
    return ShownState(state, kind, [_only(item, bytes.hex) for item in value])


def _looks(coder: Coder, raw: bytes) -> bool:
    """Whether bytes are values of a coder that starts with a length. Such values are no numbers by
    chance: a pickle has a protocol, and a text has only signs that can be printed.

    Raises:
        UnreadableValueError: They are a pickle that would call something.
    """
    if coder is PICKLED and raw[4:5] != _PROTOCOL:
        return False
    try:
        values = coder.every(raw)
    except UnreadableValueError:
        raise
    except FormatError:
        return False
    return bool(values) and (
        coder is PICKLED or all(text and text.isprintable() for text in values)
    )


def _guessed(raw: bytes) -> tuple[JsonValue, str | None]:
    """Bytes as the pickle or the text that they are, and which of these; else as hex."""
    for coder in (PICKLED, STRING):
        if _looks(coder, raw) and len(values := coder.every(raw)) == 1:
            return values[0], coder.name
    return raw.hex(), None


def _pickled_or_hex(raw: bytes) -> JsonValue:
    """Bytes of thread mode, which have no length of their own."""
    if raw[:1] != _PROTOCOL:
        return raw.hex()
    try:
        return pickled(raw)
    except UnreadableValueError:
        raise
    except FormatError:
        return raw.hex()


def _noted(raw: bytes, guesses: set[str | None]) -> JsonValue:
    text, guess = _guessed(raw)
    guesses.add(guess)
    return text


def _one(guesses: Iterable[str | None]) -> str | None:
    """The guesses as one text."""
    named = sorted(each for each in guesses if each is not None)
    return ", ".join(named) or None


def _sorted_pairs(pairs: list[list[JsonValue]]) -> list[list[JsonValue]]:
    return sorted(pairs, key=lambda pair: text_key(pair[0]))


def only_value(state: str, kind: Coder, values: list[Any]) -> Any:
    """The value of a state that is kept as a list of one. Raises FormatError if it has others."""
    if len(values) != 1:
        raise FormatError(
            f"State {state!r} holds more or less than a value of type {kind.name}; a list has the "
            f"type list[{kind.name}]",
            expected=1,
            got=len(values),
        )
    return values[0]
