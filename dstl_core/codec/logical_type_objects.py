"""SQL types by name, and as the Java objects that serializer snapshots contain.

Source: ``org.apache.flink.table.types.logical`` of Flink 2.2.1 (every class has the serial version
1), and the "Object Serialization Stream Protocol" of the Java platform, version 2.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

from dstl_core.codec.java_stream import STREAM_MAGIC, STREAM_VERSION
from dstl_core.codec.logical_types import LogicalType
from dstl_core.errors import ConfigError

_PACKAGE = "org.apache.flink.table.types.logical."
_MAX_LENGTH = 0x7FFFFFFF
_SERIALIZABLE, _ENUM = 2, 0x12
_BASE_HANDLE = 0x7E0000


@dataclass(frozen=True)
class _Java:
    """The Java object of a SQL type: its class, its root constant, its own int fields, and its
    constant of ``TimestampKind``.
    """

    name: str
    root: str
    fields: tuple[str, ...] = ()
    kind: str | None = None


_JAVA = {
    "CHAR": _Java("Char", "CHAR", ("length",)),
    "VARCHAR": _Java("VarChar", "VARCHAR", ("length",)),
    "BOOLEAN": _Java("Boolean", "BOOLEAN"),
    "BINARY": _Java("Binary", "BINARY", ("length",)),
    "VARBINARY": _Java("VarBinary", "VARBINARY", ("length",)),
    "DECIMAL": _Java("Decimal", "DECIMAL", ("precision", "scale")),
    "TINYINT": _Java("TinyInt", "TINYINT"),
    "SMALLINT": _Java("SmallInt", "SMALLINT"),
    "INT": _Java("Int", "INTEGER"),
    "BIGINT": _Java("BigInt", "BIGINT"),
    "FLOAT": _Java("Float", "FLOAT"),
    "DOUBLE": _Java("Double", "DOUBLE"),
    "DATE": _Java("Date", "DATE"),
    "TIME": _Java("Time", "TIME_WITHOUT_TIME_ZONE", ("precision",)),
    "TIMESTAMP": _Java("Timestamp", "TIMESTAMP_WITHOUT_TIME_ZONE", ("precision",), "REGULAR"),
    "TIMESTAMP_LTZ": _Java(
        "LocalZonedTimestamp", "TIMESTAMP_WITH_LOCAL_TIME_ZONE", ("precision",), "REGULAR"
    ),
}

# ------------------------------------------------------------------------------------- by name

_NAME = re.compile(r"([A-Z_]+)\s*(?:\(\s*(\d{1,10})\s*(?:,\s*(\d{1,10})\s*)?\))?(\s+NOT\s+NULL)?")
_ALIASES = {
    "STRING": ("VARCHAR", _MAX_LENGTH),
    "BYTES": ("VARBINARY", _MAX_LENGTH),
    "INTEGER": ("INT", None),
    "NUMERIC": ("DECIMAL", None),
    "DEC": ("DECIMAL", None),
}
_DEFAULTS = {"TIME": 0, "TIMESTAMP": 6, "TIMESTAMP_LTZ": 6, "DECIMAL": 10}
_MOST_DIGITS = {"TIME": 9, "TIMESTAMP": 9, "TIMESTAMP_LTZ": 9, "DECIMAL": 38}


def parse_logical_type(name: str) -> LogicalType:
    """A SQL type from its name, e.g. ``BIGINT NOT NULL``, ``DECIMAL(10, 2)``, ``STRING``.

    Raises:
        ConfigError: It is none, or one with types inside, or its numbers cannot be.
    """
    match = _NAME.fullmatch(name.strip().upper())
    root, length = (match[1], None) if match else ("", None)
    root, length = _ALIASES.get(root, (root, length))
    if match is None or root not in _JAVA:
        raise ConfigError(
            f"The SQL type {name!r} is not known: expected one of {', '.join(_JAVA)}; "
            f"take types of rows, arrays and maps from a template savepoint."
        )
    first, second = (None if each is None else int(each) for each in match.group(2, 3))
    nullable = match[4] is None
    fields = _JAVA[root].fields
    if (first is not None and not fields) or (second is not None and "scale" not in fields):
        raise ConfigError(f"A SQL type has too many numbers: {name!r}.")
    if "length" in fields:
        length = length or (1 if first is None else first)
        if not 1 <= length <= _MAX_LENGTH:
            raise ConfigError(f"A SQL type's length is wrong: expected 1..2147483647 in {name!r}.")
        return LogicalType(root, nullable, length=length)
    if not fields:
        return LogicalType(root, nullable)
    digits = _DEFAULTS[root] if first is None else first
    least = 1 if root == "DECIMAL" else 0
    if not least <= digits <= _MOST_DIGITS[root] or (second or 0) > digits:
        raise ConfigError(
            f"A SQL type's precision is wrong: expected {least}..{_MOST_DIGITS[root]}, and a scale "
            f"that is not above it, in {name!r}."
        )
    return LogicalType(root, nullable, precision=digits, scale=second or 0)


# ---------------------------------------------------------------------------------- as objects


@dataclass
class _Stream:
    """A Java stream that is being written; repeated classes and texts become references."""

    parts: list[bytes] = field(default_factory=lambda: [_shorts(STREAM_MAGIC, STREAM_VERSION)])
    handles: dict[str, int] = field(default_factory=dict)
    count: int = 0

    def new(self, name: str | None = None) -> None:
        """Assigns the next handle to the value just written."""
        if name is not None:
            self.handles[name] = _BASE_HANDLE + self.count
        self.count += 1

    def _seen(self, name: str) -> bool:
        if name not in self.handles:
            return False
        self.parts.append(b"q" + struct.pack(">i", self.handles[name]))
        return True

    def text(self, text: str) -> None:
        self.parts.append(b"t" + _utf(text))
        self.new()

    def signature(self, name: str) -> None:
        """Writes the type of a field, as a text."""
        if not self._seen(f"signature {name}"):
            self.text(f"L{name.replace('.', '/')};")
            self.handles[f"signature {name}"] = _BASE_HANDLE + self.count - 1

    def class_of(
        self,
        name: str,
        version: int,
        flags: int,
        fields: tuple[tuple[str, str], ...],
        *parents: tuple[str, int, int, tuple[tuple[str, str], ...]],
    ) -> None:
        """Writes a class and its superclasses; a field is (``I``, ``Z`` or a class, name)."""
        if self._seen(name):
            return
        self.parts.append(b"r" + _utf(name) + struct.pack(">qBH", version, flags, len(fields)))
        self.new(name)
        for kind, field_name in fields:
            is_object = len(kind) > 1
            self.parts.append((b"L" if is_object else kind.encode()) + _utf(field_name))
            if is_object:
                self.signature(kind)
        self.parts.append(b"x")
        if parents:
            self.class_of(*parents[0], *parents[1:])
        else:
            self.parts.append(b"p")

    def constant(self, enum: str, name: str) -> None:
        self.parts.append(b"~")
        self.class_of(enum, 0, _ENUM, (), ("java.lang.Enum", 0, _ENUM, ()))
        self.new()
        self.text(name)


def _shorts(*values: int) -> bytes:
    return struct.pack(f">{len(values)}H", *values)


def _utf(text: str) -> bytes:
    return _shorts(len(text)) + text.encode()


def java_object_of(kind: LogicalType) -> bytes:
    """The bytes of Java's stream for a SQL type without element types.

    Raises:
        ConfigError: The type has element types, or its class is not supported.
    """
    how = _JAVA.get(kind.root)
    if how is None:
        raise ConfigError(
            f"The SQL type {kind} cannot be written by its name; take it from a template savepoint."
        )
    stream = _Stream()
    members: tuple[tuple[str, str], ...] = tuple(("I", name) for name in how.fields)
    if how.kind is not None:
        members += ((_PACKAGE + "TimestampKind", "kind"),)
    above = (("Z", "isNullable"), (_PACKAGE + "LogicalTypeRoot", "typeRoot"))
    stream.parts.append(b"s")
    stream.class_of(
        f"{_PACKAGE}{how.name}Type",
        1,
        _SERIALIZABLE,
        members,
        (_PACKAGE + "LogicalType", 1, _SERIALIZABLE, above),
    )
    stream.new()
    stream.parts.append(struct.pack(">?", kind.nullable))
    stream.constant(_PACKAGE + "LogicalTypeRoot", how.root)
    for name in how.fields:
        stream.parts.append(struct.pack(">i", getattr(kind, name)))
    if how.kind is not None:
        stream.constant(_PACKAGE + "TimestampKind", how.kind)
    return b"".join(stream.parts)
