"""Objects that configuration and command lines name as ``package.module:name``."""

from __future__ import annotations

import importlib
from typing import Any

from dstl_core.codec.serializers import BUILT_IN, SerializerRegistry
from dstl_core.errors import ConfigError

SERIALIZERS = "Registry of types with readers of your own serializers: package.module:name."
"""The description of a field or an option that names a registry."""


def registry_from(named: SerializerRegistry | str | None, owner: str) -> SerializerRegistry:
    """A registry of types, from itself or from ``package.module:name``.

    Args:
        named: The registry or its name; None: that of the built-in types.
        owner: What it belongs to, for the error.

    Raises:
        ConfigError: It is none.
    """
    registry = load_object(named) if isinstance(named, str) else named or BUILT_IN
    if not isinstance(registry, SerializerRegistry):
        raise ConfigError(
            f"The serializers of {owner} are wrong: expected a SerializerRegistry, e.g. "
            f"BUILT_IN.copy(), got {registry!r}."
        )
    return registry


def load_object(path: str) -> Any:
    """The object that ``package.module:name`` names.

    Raises:
        ConfigError: There is none, or its module fails.
    """
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # a module of the user may raise any error
        raise ConfigError(
            f"Cannot import {path!r} ({type(error).__name__}: {error}); write it as "
            f"'package.module:name'."
        ) from error
