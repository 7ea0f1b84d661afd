"""What a pickle holds, and its text form.

A pickle may name one value many times, so a small pickle can stand for a text of any size. The text
form stops at a size that grows with that of the pickle.
"""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass, field
from typing import Any

from dstl_core.codec.serializers.base import JsonValue
from dstl_core.codec.serializers.collections import text_key
from dstl_core.errors import UnreadableValueError

MAX_DEPTH = 64
_SMALL = 1 << 16
_CHARACTERS_OF_A_BYTE = 64


@dataclass(eq=False, slots=True)
class PickledItems:
    """A list, tuple or set."""

    kind: str
    items: list[Any] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Pairs:
    """A dict, by its pairs."""

    pairs: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass(frozen=True, eq=False, slots=True)
class Plain:
    """A date, a decimal or another value with a text."""

    text: JsonValue
    source: Any = None
    """The value of Python that others need to be made of it."""


@dataclass(frozen=True, eq=False, slots=True)
class Global:
    """The name of a class or function. Nothing is looked up by it."""

    name: str


@dataclass(eq=False, slots=True)
class Instance:
    """An object: the name of its class, and what the pickle stores of it."""

    name: str
    arguments: list[Any]
    states: list[Any] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)
    """Of a subclass of list."""
    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    """Of a subclass of dict."""


def pickled_text(value: Any, size: int) -> JsonValue:
    """The text form of what a pickle of ``size`` bytes holds.

    Raises:
        UnreadableValueError: The text is too large, or the value holds itself.
    """
    return _PickleTexts(_SMALL + _CHARACTERS_OF_A_BYTE * size).of(value, 0)


class _PickleTexts:
    def __init__(self, limit: int) -> None:
        self._left = limit

    def of(self, value: Any, depth: int) -> JsonValue:
        if depth > MAX_DEPTH:
            raise UnreadableValueError(
                f"A pickled value nests more than {MAX_DEPTH} levels, or holds itself"
            )
        self._spend(_weight(value))
        match value:
            case float() if not math.isfinite(value):
                return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            case bytes():
                return value.hex()
            case PickledItems():
                texts = [self.of(each, depth + 1) for each in value.items]
                return sorted(texts, key=text_key) if value.kind == "set" else texts
            case Pairs():
                return self._pairs(value.pairs, depth)
            case Plain():
                return value.text
            case Global():
                return {"@class": value.name}
            case Instance():
                return self._instance(value, depth)
        return value

    def _spend(self, weight: int) -> None:
        self._left -= weight
        if self._left < 0:
            raise UnreadableValueError(
                "A pickle stands for a text that is too large for its size; it names a value many "
                "times"
            )

    def _pairs(self, pairs: list[tuple[Any, Any]], depth: int) -> list[JsonValue]:
        texts = [[self.of(key, depth + 1), self.of(item, depth + 1)] for key, item in pairs]
        return sorted(texts, key=lambda pair: text_key(pair[0]))

    def _instance(self, value: Instance, depth: int) -> JsonValue:
        """An object with the names of its attributes; what has no name is numbered."""
        if value.name == "uuid.UUID" and (text := _uuid_text(value)) is not None:
            return text
        shown: dict[str, JsonValue] = {"@class": value.name}
        for at, argument in enumerate(value.arguments, 1):
            shown[f"_{at}"] = self.of(argument, depth + 1)
        for state in _attributes(value):
            if _has_names(state):
                shown |= {key: self.of(item, depth + 1) for key, item in state.pairs}
            elif state is not None:
                shown["@state"] = self.of(state, depth + 1)
        if value.items:
            shown["@items"] = [self.of(each, depth + 1) for each in value.items]
        if value.pairs:
            shown["@pairs"] = self._pairs(value.pairs, depth)
        return shown


def _uuid_text(value: Instance) -> str | None:
    for state in value.states:
        number = dict(state.pairs).get("int") if _has_names(state) else None
        if isinstance(number, int) and 0 <= number < 1 << 128:
            return str(uuid.UUID(int=number))
    return None


def _has_names(state: Any) -> bool:
    return isinstance(state, Pairs) and all(isinstance(key, str) for key, _ in state.pairs)


def _attributes(value: Instance) -> list[Any]:
    """The states of an object. One with ``__slots__`` has a pair: attributes, and slots."""
    attributes: list[Any] = []
    for state in value.states:
        is_pair = (
            isinstance(state, PickledItems) and state.kind == "tuple" and len(state.items) == 2
        )
        parts = state.items if is_pair else [state]
        if all(each is None or isinstance(each, Pairs) for each in parts):
            attributes += parts
        else:
            attributes.append(state)
    return attributes


def _weight(value: Any) -> int:
    """Characters of a text, without those of its parts."""
    match value:
        case str():
            return 2 + len(value)
        case bytes():
            return 2 + 2 * len(value)
        case int():
            return 1 + value.bit_length() // 3
        case Plain():
            return 8 + len(str(value.text))
        case Global() | Instance():
            return 16 + len(value.name)
    return 8
