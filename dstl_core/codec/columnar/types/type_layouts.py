"""Registers the layouts of all types on import.

Use ``layout_for`` to register a function for another type.
"""

from __future__ import annotations

from dstl_core.codec.columnar.types import java_types, sql_types
from dstl_core.codec.columnar.types.type_registry import (
    DEFAULT_OPTIONS,
    EXACT_OPTIONS,
    ColumnOptions,
    bounded_layout,
    layout_for,
    layout_of,
    list_state_layout,
)

__all__ = [
    "DEFAULT_OPTIONS",
    "EXACT_OPTIONS",
    "ColumnOptions",
    "bounded_layout",
    "java_types",
    "layout_for",
    "layout_of",
    "list_state_layout",
    "sql_types",
]
