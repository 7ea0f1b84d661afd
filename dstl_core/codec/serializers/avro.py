"""Avro records, as ``flink-avro`` stores them.

Flink does not use Avro's own binary encoding here. Its encoder writes big-endian fixed-size numbers
(int, enum index and union index as i32, long as i64), bytes and strings with an i32 length, and
arrays and maps as blocks ``varint count, items`` up to a count of 0.

    snapshot := version 2: utf class, utf schema | version 3: string class, string schema

Written from the sources of flink-avro (``AvroSerializerSnapshot``, ``DataOutputEncoder``,
``DataInputDecoder``). Not checked against bytes of a running Flink.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import (
    JsonValue,
    SnapshotContext,
    SnapshotReader,
    TypeSerializer,
    bad_value,
)
from dstl_core.codec.serializers.primitives import float_text
from dstl_core.codec.serializers.strings import (
    read_string_value,
    read_varint,
    write_string_value,
    write_varint,
)
from dstl_core.errors import FormatError, UnsupportedVersionError

_MAX_DEPTH = 64
_NAMED = ("record", "error", "enum", "fixed")
_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def _parse_schema(text: str) -> tuple[Any, dict[str, Any]]:
    """Parses a schema; returns it with its named types by full name."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise bad_value("An Avro schema is not JSON", 0, "JSON", type(error).__name__) from error
    named: dict[str, Any] = {}
    _collect(schema, "", named, 0, 0)
    return schema, named


def _collect(schema: Any, space: str, named: dict[str, Any], at: int, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise bad_value("An Avro schema is nested too deeply", at, f"<= {_MAX_DEPTH}", depth)
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, space, named, at, depth + 1)
        return
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    _check_parts(kind, schema, at)
    if kind in _NAMED:
        name = str(schema.get("name", ""))
        space = str(schema.get("namespace", name.rpartition(".")[0] or space))
        named[f"{space}.{name.rpartition('.')[2]}".lstrip(".")] = schema
    for inner in schema["fields"] if kind in ("record", "error") else ():
        _collect(inner["type"], space, named, at, depth + 1)
    for key in ("items", "values", "type"):
        if isinstance(schema.get(key), dict | list):
            _collect(schema[key], space, named, at, depth + 1)


def _check_parts(kind: Any, schema: Mapping[str, Any], at: int) -> None:
    """Checks that a schema has the parts that reading its values needs."""
    match kind:
        case "record" | "error":
            fields = schema.get("fields")
            if not isinstance(fields, list) or not all(map(_is_field, fields)):
                raise bad_value("An Avro record lacks its fields", at, "names and types", fields)
        case "enum":
            symbols = schema.get("symbols")
            if not isinstance(symbols, list) or not all(isinstance(of, str) for of in symbols):
                raise bad_value("An Avro enum lacks its symbols", at, "a list of texts", symbols)
        case "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise bad_value("A fixed type of Avro lacks its size", at, ">= 0", size)
        case "array" | "map":
            key = "items" if kind == "array" else "values"
            if key not in schema:
                raise bad_value(f"An Avro {kind} lacks the type of its {key}", at, key, "none")


def _is_field(field_schema: Any) -> bool:
    is_named = isinstance(field_schema, dict) and isinstance(field_schema.get("name"), str)
    return is_named and "type" in field_schema


@dataclass(frozen=True)
class AvroSerializer(TypeSerializer[Any]):
    """A record is a dict, an array a list, a map a dict, an enum its name, a union its value."""

    java_class: str
    schema_text: str
    version: int = 3
    schema: Any = field(init=False, compare=False, repr=False)
    named: Mapping[str, Any] = field(init=False, compare=False, repr=False)
    snapshot_class: ClassVar[str] = "org.apache.flink.formats.avro.typeutils.AvroSerializerSnapshot"

    def __post_init__(self) -> None:
        schema, named = _parse_schema(self.schema_text)
        object.__setattr__(self, "schema", schema)
        object.__setattr__(self, "named", named)

    @property
    def snapshot_version(self) -> int:  # type: ignore[override]  # two versions are read
        return self.version

    @property
    def type_name(self) -> str:
        return f"Avro<{self.java_class}>"

    def deserialize(self, data: DataInput) -> Any:
        return self._read(self.schema, "", _AvroInput(data), 0)

    def serialize(self, value: Any, out: DataOutput) -> None:
        self._write(self.schema, "", value, out)

    def write_snapshot_payload(self, out: DataOutput) -> None:
        if self.version == 2:
            out.write_utf(self.java_class)
            out.write_utf(self.schema_text)
        else:
            write_string_value(out, self.java_class)
            write_string_value(out, self.schema_text)

    def to_text(self, value: Any) -> JsonValue:
        if isinstance(value, dict):
            return {key: self.to_text(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.to_text(item) for item in value]
        if isinstance(value, AvroBranch):
            return self.to_text(value.value)
        if isinstance(value, bytes):
            return value.hex()
        return float_text(value) if isinstance(value, float) else value

    def _resolve(self, schema: Any, space: str) -> tuple[str, Any, str]:
        """Kind, schema and namespace; resolves names of types."""
        if isinstance(schema, list):
            return "union", schema, space
        if isinstance(schema, dict):
            kind = schema.get("type")
            if isinstance(kind, dict | list):
                return self._resolve(kind, space)
            if kind in _NAMED:
                name = str(schema.get("name", ""))
                space = str(schema.get("namespace", name.rpartition(".")[0] or space))
                return str(kind), schema, space
            if isinstance(kind, str) and kind not in _PRIMITIVES and kind not in ("array", "map"):
                return self._resolve(kind, space)
            return str(kind), schema, space
        if schema in _PRIMITIVES:
            return str(schema), schema, space
        for full in (str(schema), f"{space}.{schema}"):
            if full in self.named:
                return self._resolve(self.named[full], full.rpartition(".")[0])
        raise FormatError("An Avro schema names an unknown type", got=str(schema)[:100])

    def _read(self, schema: Any, space: str, source: _AvroInput, depth: int) -> Any:
        source.enter(depth)
        data = source.data
        kind, schema, space = self._resolve(schema, space)
        match kind:
            case "record" | "error":
                return {
                    str(schema_field["name"]): self._read(
                        schema_field["type"], space, source, depth + 1
                    )
                    for schema_field in schema.get("fields", ())
                }
            case "union":
                branch = _index(data, "union branch", len(schema))
                return AvroBranch(branch, self._read(schema[branch], space, source, depth + 1))
            case "array":
                return [
                    self._read(schema["items"], space, source, depth + 1) for _ in _blocks(data)
                ]
            case "map":
                return {
                    _read_text(data): self._read(schema["values"], space, source, depth + 1)
                    for _ in _blocks(data)
                }
            case "enum":
                return schema["symbols"][_index(data, "enum", len(schema["symbols"]))]
            case "fixed":
                return data.read_bytes(schema["size"], "fixed")
        return _read_primitive(kind, data)

    def _write(self, schema: Any, space: str, value: Any, out: DataOutput) -> None:
        kind, schema, space = self._resolve(schema, space)
        match kind:
            case "record" | "error":
                for schema_field in schema.get("fields", ()):
                    self._write(schema_field["type"], space, value[schema_field["name"]], out)
            case "union":
                out.write_i32(value.branch)
                self._write(schema[value.branch], space, value.value, out)
            case "array":
                if value:
                    write_varint(out, len(value))
                for item in value:
                    self._write(schema["items"], space, item, out)
                out.write_u8(0)
            case "map":
                if value:
                    write_varint(out, len(value))
                for key, item in value.items():
                    _write_bytes(out, key.encode())
                    self._write(schema["values"], space, item, out)
                out.write_u8(0)
            case "enum":
                out.write_i32(schema["symbols"].index(value))
            case "fixed":
                out.write_bytes(value)
            case _:
                _write_primitive(kind, value, out)


class _AvroInput:
    """Reads the bytes of one value.

    A schema can ask for many parts that take no bytes. A part for each byte is free of charge.
    """

    __slots__ = ("_start", "_values", "data")

    def __init__(self, data: DataInput) -> None:
        self.data = data
        self._start = data.position
        self._values = 0

    def enter(self, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise bad_value(
                "An Avro value is nested too deeply",
                self.data.position,
                f"<= {_MAX_DEPTH} levels",
                depth,
            )
        self._values += 1
        if self._values > self.data.position - self._start:
            self.data.count_free(1)
            self._values -= 1


@dataclass(frozen=True)
class AvroBranch:
    """A value of a union, with the index of its type."""

    branch: int
    value: Any


def _index(data: DataInput, field_name: str, count: int) -> int:
    at = data.position
    index = data.read_i32(field_name)
    if not 0 <= index < count:
        raise bad_value("An Avro index is out of bounds", at, f"0..{count - 1}", index)
    return index


def _blocks(data: DataInput) -> Any:
    """Yields once for each item of an array or map."""
    while True:
        at = data.position
        count = read_varint(data, "Avro block size", 10)
        if count == 0:
            return
        if count > max(data.remaining, 1):
            raise bad_value("An Avro block is too large", at, f"<= {data.remaining}", count)
        yield from range(count)


def _read_text(data: DataInput) -> str:
    at = data.position
    raw = data.read_bytes(data.read_length("Avro string size"), "Avro string")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise bad_value("An Avro string is not UTF-8", at, "UTF-8", raw[:8].hex()) from error


def _write_bytes(out: DataOutput, raw: bytes) -> None:
    out.write_sized(raw)


def _read_primitive(kind: str, data: DataInput) -> Any:
    match kind:
        case "null":
            return None
        case "boolean":
            return data.read_bool("Avro boolean")
        case "int":
            return data.read_i32("Avro int")
        case "long":
            return data.read_i64("Avro long")
        case "float":
            return data.read_f32("Avro float")
        case "double":
            return data.read_f64("Avro double")
        case "bytes":
            return data.read_bytes(data.read_length("Avro bytes size"), "Avro bytes")
        case "string":
            return _read_text(data)
    raise FormatError("An Avro schema has an unknown type", got=kind[:100])


def _write_primitive(kind: str, value: Any, out: DataOutput) -> None:
    match kind:
        case "null":
            return
        case "boolean":
            out.write_bool(value)
        case "int":
            out.write_i32(value)
        case "long":
            out.write_i64(value)
        case "float":
            out.write_f32(value)
        case "double":
            out.write_f64(value)
        case "bytes":
            _write_bytes(out, value)
        case "string":
            _write_bytes(out, value.encode())
        case _:
            raise FormatError("An Avro schema has an unknown type", got=kind[:100])


def _read_avro(data: DataInput, version: int, context: SnapshotContext) -> AvroSerializer:
    at = data.position
    if version == 2:
        return AvroSerializer(data.read_utf("Avro class"), data.read_utf("Avro schema"), 2)
    if version != 3:
        raise UnsupportedVersionError(
            "An Avro snapshot has an unknown version", offset=at, expected="2 or 3", got=version
        )
    java_class, schema = read_string_value(data), read_string_value(data)
    if java_class is None or schema is None:
        raise bad_value("An Avro snapshot lacks its class or schema", at, "a text", "null")
    return AvroSerializer(java_class, schema, 3)


READERS: dict[str, SnapshotReader] = {AvroSerializer.snapshot_class: _read_avro}
