"""JSON files that dstl writes for itself: one object, no NaN and no infinity."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from dstl_core.errors import ConfigError, FormatError

CONVERSION_ERRORS = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What taking a damaged document apart may raise."""


def parse_json_object(raw: bytes, what: str) -> dict[str, Any]:
    """The object in ``raw``.

    Raises:
        FormatError: It is not UTF-8, not JSON, nested too deeply, or no object.
    """
    try:
        body = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what} is damaged ({error})") from error
    if not isinstance(body, dict):
        raise FormatError(f"{what} is damaged", expected="an object", got=type(body).__name__)
    return body


def write_json_object(body: Mapping[str, Any], what: str) -> bytes:
    """The bytes of a document; equal objects give equal bytes.

    Raises:
        ConfigError: Something in it is not JSON, so that no reader could read it.
    """
    try:
        return json.dumps(dict(body), indent=1, sort_keys=True, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{what} cannot be written ({error}); give plain JSON values.") from error


def as_read_back(body: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    """A document as it is read back after it was written: tuples are lists.

    Raises:
        ConfigError: Something in it is not JSON.
    """
    return parse_json_object(write_json_object(body, what), what)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
