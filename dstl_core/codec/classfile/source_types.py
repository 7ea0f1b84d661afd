"""Java types as a person writes them: ``Map<String, List<shop.Line>>``.

    type := name [ '<' type (',' type)* '>' ] ('[' ']')*  |  '?'

Names of ``java.lang`` and ``java.util`` and Flink's tuples need no package. A nested class is
``shop.Cart$Line``. ``Types.LIST<..>``, ``Types.MAP<..>``, ``Types.SET<..>`` and ``Types.ROW<..>``
are what these methods of Flink give; the first three differ from the types of ``List``, ``Map`` and
``Set``.
"""

from __future__ import annotations

import re

from dstl_core.codec.classfile.generic_types import (
    MAX_TYPE_NESTING,
    PRIMITIVE_NAMES,
    JavaType,
    array_name,
)
from dstl_core.errors import ConfigError

OF_FLINK = {
    "Types.LIST": "java.util.List",
    "Types.SET": "java.util.Set",
    "Types.MAP": "java.util.Map",
    "Types.ROW": "org.apache.flink.types.Row",
}
"""Names of methods of Flink, with the class whose values their types store."""
_LANG = "Boolean Byte Character Double Float Integer Long Number Object Short String Void"
_UTIL = (
    "ArrayDeque ArrayList Collection Date Deque HashMap HashSet LinkedHashMap LinkedHashSet "
    "LinkedList List Map Optional Queue Set SortedMap SortedSet TreeMap TreeSet UUID"
)
_EITHER = "org.apache.flink.types.Either"
_TUPLE = "org.apache.flink.api.java.tuple.Tuple"
_SHORT = {
    **{name: f"java.lang.{name}" for name in _LANG.split()},
    **{name: f"java.util.{name}" for name in _UTIL.split()},
    **{f"Tuple{size}": f"{_TUPLE}{size}" for size in range(1, 26)},
    "Either": _EITHER,
}
_ARGUMENTS = {
    "java.util.List": 1,
    "java.util.Collection": 1,
    "java.util.Set": 1,
    "java.util.Map": 2,
    "Types.LIST": 1,
    "Types.SET": 1,
    "Types.MAP": 2,
    _EITHER: 2,
    **{f"{_TUPLE}{size}": size for size in range(1, 26)},
}
_PRIMITIVES = frozenset(PRIMITIVE_NAMES.values()) - {"void"}
_TOKEN = re.compile(r"\s*([\w$.]+|[<>,?]|\[\s*\])")


def parse_source_type(text: str, what: str = "A type") -> JavaType:
    """The type that a text names.

    Args:
        text: The text.
        what: What it is, for messages.

    Raises:
        ConfigError: It is no type, or it has a wrong number of arguments.
    """
    parser = _SourceTypeParser(text, what)
    java_type = parser.type(0)
    if java_type is None or parser.peek():
        raise parser.wrong()
    return java_type


class _SourceTypeParser:
    def __init__(self, text: str, what: str) -> None:
        self._text = text
        self._what = what
        self._tokens: list[str] = []
        at = 0
        rest = text.rstrip()
        while at < len(rest):
            match = _TOKEN.match(rest, at)
            if match is None:
                raise self.wrong()
            self._tokens.append(match[1])
            at = match.end()
        self._at = 0

    def wrong(self) -> ConfigError:
        return ConfigError(
            f"{self._what} is malformed: expected a Java type, such as Map<String, "
            f"List<shop.Line>>, got {self._text[:200]!r}."
        )

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self.peek()
        self._at += 1
        return token

    def type(self, depth: int) -> JavaType | None:
        name = self._next()
        if name == "?" and depth:
            return None
        if depth > MAX_TYPE_NESTING or not name.replace(".", "_").replace("$", "_").isidentifier():
            raise self.wrong()
        java_type = JavaType(_SHORT.get(name, name), self._arguments(depth))
        expected = _ARGUMENTS.get(java_type.name)
        if java_type.arguments and expected not in (None, len(java_type.arguments)):
            raise ConfigError(
                f"Type {name} has wrong arguments: expected {expected}, got "
                f"{len(java_type.arguments)}, in {self._text[:200]!r}."
            )
        while self.peek().startswith("["):
            self._next()
            java_type = JavaType(array_name(java_type.name), java_type.arguments)
        if depth and java_type.name in _PRIMITIVES:
            raise ConfigError(
                f"Type {name} is no type argument: expected a class, such as Integer or Long, "
                f"got {self._text[:200]!r}."
            )
        return java_type

    def _arguments(self, depth: int) -> tuple[JavaType | None, ...]:
        if self.peek() != "<":
            return ()
        arguments: list[JavaType | None] = []
        while self._next() in ("<", ","):
            arguments.append(self.type(depth + 1))
        if self._tokens[self._at - 1 : self._at] != [">"]:
            raise self.wrong()
        return tuple(arguments)
