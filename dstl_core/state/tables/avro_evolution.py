"""Avro's schema resolution on values: converts values of an old schema to a new one.

Source: the section "Schema Resolution" of the Avro specification, without aliases and logical
types. Records match by their short name, as the specification requires.
"""

from __future__ import annotations

from typing import Any

from dstl_core.codec.serializers.avro import AvroBranch, AvroSerializer
from dstl_core.errors import StateMigrationError

_PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


class _Unresolvable(Exception):
    """The new schema cannot read the old one."""


def can_read_avro(old: AvroSerializer, new: AvroSerializer) -> bool:
    try:
        _check(old, old.schema, new, new.schema, set())
    except _Unresolvable:
        return False
    return old.java_class == new.java_class


def adapt_avro(old: AvroSerializer, new: AvroSerializer, value: Any) -> Any:
    """Converts a value of the old schema to the new one.

    Raises:
        StateMigrationError: The value cannot be converted; ``can_read_avro`` is false for the
            schemas.
    """
    try:
        return _adapt(old, old.schema, new, new.schema, value)
    except _Unresolvable as error:
        raise StateMigrationError(
            f"An Avro value cannot be read with the new schema: {error}."
        ) from error


def _resolved(serializer: AvroSerializer, schema: Any) -> Any:
    """The definition of a named schema; ``"int"`` for ``{"type": "int"}``."""
    if isinstance(schema, str):
        named = serializer.named.get(schema)
        if named is None:
            short = [each for full, each in serializer.named.items() if _short(full) == schema]
            named = short[0] if len(short) == 1 else None
        return schema if named is None else named
    if isinstance(schema, dict) and isinstance(schema.get("type"), dict | list):
        return _resolved(serializer, schema["type"])
    return schema


def _kind(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def _short(name: object) -> str:
    return str(name).rpartition(".")[2]


def _check(
    old: AvroSerializer,
    old_schema: Any,
    new: AvroSerializer,
    new_schema: Any,
    seen: set[tuple[str, str]],
) -> None:
    writer, reader = _resolved(old, old_schema), _resolved(new, new_schema)
    if isinstance(writer, list):
        for branch in writer:
            _check(old, branch, new, reader, seen)
        return
    if isinstance(reader, list):
        _branch(old, writer, new, reader, seen)
        return
    left, right = _kind(writer), _kind(reader)
    if left != right:
        if right not in _PROMOTED.get(left, ()):
            raise _Unresolvable(f"{left} cannot become {right}")
        return
    match left:
        case "record" | "error":
            _check_record(old, writer, new, reader, seen)
        case "array":
            _check(old, writer["items"], new, reader["items"], seen)
        case "map":
            _check(old, writer["values"], new, reader["values"], seen)
        case "enum":
            missing = set(writer["symbols"]) - set(reader["symbols"])
            if missing and "default" not in reader:
                raise _Unresolvable("a symbol of the enum was removed")
        case "fixed" if writer.get("size") != reader.get("size"):
            raise _Unresolvable("a fixed type has another size")


def _check_record(
    old: AvroSerializer, writer: Any, new: AvroSerializer, reader: Any, seen: set[tuple[str, str]]
) -> None:
    if _short(writer["name"]) != _short(reader["name"]):
        raise _Unresolvable("a record has another name")
    pair = (str(writer["name"]), str(reader["name"]))
    if pair in seen:
        return
    seen.add(pair)
    written = {field["name"]: field["type"] for field in writer["fields"]}
    for field in reader["fields"]:
        if field["name"] in written:
            _check(old, written[field["name"]], new, field["type"], seen)
        elif "default" not in field:
            raise _Unresolvable(f"field {field['name']} has no default")


def _branch(
    old: AvroSerializer, writer: Any, new: AvroSerializer, reader: list[Any], seen: set[Any]
) -> Any:
    """The first branch of the reader's union that reads the writer's type; the same kind first."""
    exact = [each for each in reader if _kind(_resolved(new, each)) == _kind(writer)]
    for branch in exact + [each for each in reader if each not in exact]:
        try:
            _check(old, writer, new, branch, set(seen))
        except _Unresolvable:
            continue
        return branch
    raise _Unresolvable(f"no branch of the union reads {_kind(writer)}")


def _adapt(
    old: AvroSerializer, old_schema: Any, new: AvroSerializer, new_schema: Any, value: Any
) -> Any:
    writer, reader = _resolved(old, old_schema), _resolved(new, new_schema)
    if isinstance(writer, list):
        return _adapt(old, writer[value.branch], new, reader, value.value)
    if isinstance(reader, list):
        branch = _branch(old, writer, new, reader, set())
        return AvroBranch(reader.index(branch), _adapt(old, writer, new, branch, value))
    match _kind(writer), _kind(reader):
        case (("record" | "error"), _):
            return _adapt_record(old, writer, new, reader, value)
        case "array", _:
            return [_adapt(old, writer["items"], new, reader["items"], each) for each in value]
        case "map", _:
            return {
                key: _adapt(old, writer["values"], new, reader["values"], part)
                for key, part in value.items()
            }
        case "enum", _:
            return value if value in reader["symbols"] else reader["default"]
        case _, ("float" | "double"):
            return float(value)
        case "string", "bytes":
            return value.encode()
        case "bytes", "string":
            return value.decode()
        case _:
            return value


def _adapt_record(
    old: AvroSerializer, writer: Any, new: AvroSerializer, reader: Any, value: Any
) -> Any:
    written = {field["name"]: field["type"] for field in writer["fields"]}
    record = {}
    for field in reader["fields"]:
        name = field["name"]
        if name in written:
            record[name] = _adapt(old, written[name], new, field["type"], value[name])
        else:
            # The default of a union field is a value of the union's first branch.
            is_union = isinstance(_resolved(new, field["type"]), list)
            record[name] = AvroBranch(0, field["default"]) if is_union else field["default"]
    return record
