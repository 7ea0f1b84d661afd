"""Types as text: SQL DDL, Spark DDL and names of Flink types.

    type    := name | name '(' number {',' number} ')' | name '<' part {',' part} '>' | name '[]'
    part    := type | field ':' type                   -- the fields of a struct have names
    columns := column {',' column}
    column  := name [':'] type ['NOT' 'NULL'] ['COMMENT' text]

Case does not matter in names of types. Names of fields and columns keep their case, and stand in
backticks if they contain other characters than letters, digits and ``_``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError
from dstl_core.flink_text import whole_number


@dataclass(frozen=True)
class DeclaredType:
    """A type as its canonical name and its parts.

    Args:
        name: A canonical name from ``LEAF_NAMES`` or ``COMPOSITE_NAMES``, or ``flink``.
        parts: Types of the elements, of key and value, or of the fields.
        names: Names of the fields of a struct.
        precision: Precision of a decimal, if given.
        scale: Scale of a decimal, if given.
        made: Dataclass of the values of a struct; None for dicts.
        flink: The Flink type, if the user gave one.
    """

    name: str
    parts: tuple[DeclaredType, ...] = ()
    names: tuple[str, ...] = ()
    precision: int | None = None
    scale: int = 0
    made: type | None = None
    flink: AnySerializer | None = None


LEAF_NAMES = {
    name: canonical
    for canonical, names in {
        "void": "void",
        "boolean": "boolean bool",
        "byte": "byte tinyint",
        "short": "short smallint",
        "int": "int integer",
        "long": "long bigint",
        "float": "float real",
        "double": "double",
        "char": "char character",
        "string": "string varchar",
        "binary": "binary bytes varbinary byte[]",
        "decimal": "decimal dec numeric bigdec bigdecimal",
        "biginteger": "biginteger",
        "date": "date localdate",
        "time": "time localtime",
        "timestamp": "timestamp timestamp_ltz instant",
        "timestamp_ntz": "timestamp_ntz localdatetime",
        "java.util.date": "java.util.date",
        "java.sql.date": "java.sql.date",
        "java.sql.time": "java.sql.time",
        "java.sql.timestamp": "java.sql.timestamp",
        "string[]": "string[]",
    }.items()
    for name in names.split()
}
COMPOSITE_NAMES = {
    "array": "array",
    "list": "array",
    "map": "map",
    "struct": "struct",
    "row": "row",
    "tuple": "tuple",
    "set": "set",
    "either": "either",
    "nullable": "nullable",
}
_USUAL = [each for each in dict.fromkeys(LEAF_NAMES.values()) if each not in ("void", "string[]")]
"""The canonical names, for error messages."""
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_][\w.$]*(?:\[\])?)|`(?P<quoted>(?:[^`]|``)+)`|(?P<number>-?\d+)"
    r"|(?P<text>'(?:[^'\\]|\\.)*')|(?P<sign>[<>(),:]))"
)
_SIZED = ("decimal", "string", "char", "binary", "timestamp", "timestamp_ntz", "time")
_MAX_DEPTH = 32
_MAX_DECIMAL = 38


def leaf(name: str) -> DeclaredType:
    """A type without parts."""
    return DeclaredType(name)


def parse_type_text(text: str) -> DeclaredType:
    """Parses a type.

    Raises:
        ConfigError: The text is not a type. The message names the place and the known types.
    """
    parser = _TypeTextParser(text)
    parsed = parser.type(0)
    parser.end()
    return parsed


def parse_columns(text: str) -> DeclaredType:
    """Parses columns from DDL text into a struct.

    Raises:
        ConfigError: The text is not a list of columns. The message names the place.
    """
    parser = _TypeTextParser(text)
    fields = [parser.column()]
    while parser.take(","):
        fields.append(parser.column())
    parser.end()
    return DeclaredType("struct", tuple(each for _, each in fields), tuple(n for n, _ in fields))


class _TypeTextParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def _peek(self) -> re.Match[str] | None:
        return _TOKEN.match(self._text, self._at)

    def take(self, sign: str) -> bool:
        """Consumes a sign if it comes next; returns whether it did."""
        token = self._peek()
        if token is None or token["sign"] != sign:
            return False
        self._at = token.end()
        return True

    def _word(self, word: str) -> bool:
        token = self._peek()
        if token is None or (token["name"] or "").upper() != word:
            return False
        self._at = token.end()
        return True

    def _need(self, sign: str) -> None:
        if not self.take(sign):
            raise self._wrong(f"{sign!r}")

    def end(self) -> None:
        if self._text[self._at :].strip():
            raise self._wrong("the end")

    def _wrong(self, expected: str) -> ConfigError:
        rest = self._text[self._at :].strip()
        return ConfigError(
            f"Not a type: expected {expected} {f'before {rest!r}' if rest else 'at the end'} of "
            f"{self._text!r}."
        )

    def column(self) -> tuple[str, DeclaredType]:
        name = self._field_name("the name of a column")
        self.take(":")
        if not self._text[self._at :].strip():
            raise ConfigError(
                f"expected columns as 'name type, ..', got {self._text!r}, where {name!r} has no "
                f"type."
            )
        column_type = self.type(0)
        if self._word("NOT") and not self._word("NULL"):
            raise self._wrong("NULL")
        if self._word("COMMENT"):
            comment = self._peek()
            if comment is None or comment["text"] is None:
                raise self._wrong("a comment in quotes")
            self._at = comment.end()
        return name, column_type

    def _field_name(self, what: str) -> str:
        token = self._peek()
        if token is None or (token["name"] is None and token["quoted"] is None):
            raise self._wrong(what)
        self._at = token.end()
        quoted: str | None = token["quoted"]
        return str(token["name"]) if quoted is None else quoted.replace("``", "`")

    def type(self, depth: int) -> DeclaredType:
        token = self._peek()
        if token is None or token["name"] is None or depth > _MAX_DEPTH:
            raise self._wrong("a type")
        written = str(token["name"])
        name = re.sub(r"^tuple\d+$", "tuple", written.lower())
        if name in LEAF_NAMES:
            self._at = token.end()
            return self._leaf(LEAF_NAMES[name])
        if name not in COMPOSITE_NAMES:
            raise ConfigError(
                f"Not a type: expected one of {', '.join(_USUAL)}, or "
                f"{', '.join(f'{each}<..>' for each in COMPOSITE_NAMES)}, got {written!r}."
            )
        self._at = token.end()
        self._need("<")
        if COMPOSITE_NAMES[name] == "struct":
            return self._struct(depth)
        parts = [self.type(depth + 1)]
        while self.take(","):
            parts.append(self.type(depth + 1))
        self._need(">")
        return DeclaredType(COMPOSITE_NAMES[name], tuple(parts))

    def _struct(self, depth: int) -> DeclaredType:
        names, parts = [], []
        while True:
            names.append(self._field_name("the name of a field"))
            self.take(":")
            parts.append(self.type(depth + 1))
            if self._word("NOT") and not self._word("NULL"):
                raise self._wrong("NULL")
            if not self.take(","):
                self._need(">")
                return DeclaredType("struct", tuple(parts), tuple(names))

    def _leaf(self, name: str) -> DeclaredType:
        if name not in _SIZED or not self.take("("):
            return leaf(name)
        sizes = [self._number()]
        while self.take(","):
            sizes.append(self._number())
        self._need(")")
        if name != "decimal":
            # The types here have no length; char(10) is a text, not a character.
            return leaf("string" if name == "char" else name)
        precision, scale = (*sizes, 0)[:2]
        if len(sizes) > 2 or not (1 <= precision <= _MAX_DECIMAL and 0 <= scale <= precision):
            raise ConfigError(
                f"A decimal has 1 to {_MAX_DECIMAL} digits and a scale of at most that number, "
                f"got {self._text!r}."
            )
        return DeclaredType("decimal", precision=precision, scale=scale)

    def _number(self) -> int:
        token = self._peek()
        if token is None or token["number"] is None:
            raise self._wrong("a number")
        number = whole_number(token["number"])
        if number is None:
            raise self._wrong("a number of up to 19 digits")
        self._at = token.end()
        return number
