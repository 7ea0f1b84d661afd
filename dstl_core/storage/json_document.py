"""Reads and writes JSON files of dstl: one object, without NaN and infinity."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from dstl_core.errors import ConfigError, FormatError

_quoted = json.encoder.encode_basestring_ascii
CONVERSION_ERRORS = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""Exceptions from reading fields of a damaged document."""


def parse_json_object(raw: bytes, what: str) -> dict[str, Any]:
    """Parses the object in ``raw``.

    Raises:
        FormatError: The bytes are not UTF-8, not JSON, nested too deeply, or not an object.
    """
    try:
        body = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what} is damaged ({error})") from error
    if not isinstance(body, dict):
        raise FormatError(f"{what} is damaged", expected="an object", got=type(body).__name__)
    return body


def write_json_object(body: Mapping[str, Any], what: str) -> bytes:
    """Encodes a document; equal objects have equal bytes.

    Raises:
        ConfigError: A value is not JSON, so that no reader could read it.
    """
    try:
        return _text(dict(body), "\n").encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{what} cannot be written ({error}); give plain JSON values.") from error


def _text(value: Any, line: str) -> str:
    """As ``json.dumps`` with ``indent=1`` and ``sort_keys``, which takes three times as long.

    Loops take one frame of the stack a level, and comprehensions two: what nests as deeply as
    ``json.loads`` allows is written.

    Args:
        value: A value of JSON.
        line: A new line with the indentation of the value.
    """
    if type(value) is str:
        return _quoted(value)
    if type(value) is int:
        return repr(value)
    if value and isinstance(value, dict) and all(type(key) is str for key in value):
        below = line + " "
        fields = []
        for key in sorted(value):
            fields.append(f"{_quoted(key)}: {_text(value[key], below)}")  # noqa: PERF401
        return f"{{{below}{f',{below}'.join(fields)}{line}}}"
    if value and isinstance(value, list | tuple):
        below = line + " "
        parts = []
        for part in value:
            parts.append(_text(part, below))  # noqa: PERF401
        return f"[{below}{f',{below}'.join(parts)}{line}]"
    text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False)
    return text.replace("\n", line)


def as_read_back(body: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    """Returns a document in the form that a reader gets: tuples are lists.

    Raises:
        ConfigError: A value is not JSON.
    """
    return parse_json_object(write_json_object(body, what), what)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
