"""Shared by readers: names of operators, checks of declared types, rows of functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from dstl_core.codec.declared_type import TypeLike, declared_type, flink_type
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError, SavepointError
from dstl_core.model.ids import OperatorIdentifier

Identifier = OperatorIdentifier | str
"""An operator: an identifier, or a text with its uid, hash or unique name."""


def name_of(identifier: Identifier) -> str:
    """The text of an identifier for ``snapshot[..]``."""
    if isinstance(identifier, str):
        return identifier
    if identifier.uid:
        return f"uid:{identifier.uid}"
    return f"hash:{identifier.operator_id.hex}"


def check_type(what: str, stored: AnySerializer, declared: TypeLike | None) -> None:
    """Checks a declared type, in any form, against the stored one.

    Raises:
        ConfigError: The declared type is not a type.
        SavepointError: The stored type is another one.
    """
    if declared is None:
        return
    wanted = flink_type(declared_type(declared, what))
    if wanted != stored:
        raise SavepointError(
            f"{what} has another type: expected {stored.type_name} (from the snapshot), got "
            f"{wanted.type_name} (declared)."
        )


ROWS_PER_BATCH = 10_000


def batches_of_rows(rows: Iterable[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of a user's function (dicts or tuples) as record batches."""
    part: list[dict[str, Any]] = []
    for row in rows:
        part.append(_known(row, schema) if isinstance(row, Mapping) else _named(row, schema))
        if len(part) == ROWS_PER_BATCH:
            yield pa.RecordBatch.from_pylist(part, schema=schema)
            part = []
    if part:
        yield pa.RecordBatch.from_pylist(part, schema=schema)


def _known(row: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    for name in row:
        if schema.get_field_index(name) < 0:
            raise ConfigError(
                f"A function returned a row with the unknown column {name!r}; out_type has: "
                f"{', '.join(schema.names)}."
            )
    return dict(row)


def _named(row: Any, schema: pa.Schema) -> dict[str, Any]:
    values = tuple(row) if isinstance(row, tuple | list) else (row,)
    if len(values) != len(schema):
        raise ConfigError(
            f"A function returned a row of {len(values)} values; out_type has {len(schema)} "
            f"columns."
        )
    return dict(zip(schema.names, values, strict=True))
