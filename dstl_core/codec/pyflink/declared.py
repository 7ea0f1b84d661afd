"""Types of PyFlink as a person writes them: ``LONG``, ``reducing[LONG]``, ``map[STRING, INT]``.

Text from a job works, too: ``Types.TUPLE([Types.INT(), Types.STRING()])``. A savepoint of a job in
process mode has no types, and its value, list, reducing and aggregating states look alike.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from dstl_core.codec.pyflink.coders import (
    LEAVES,
    PRIMITIVES,
    Coder,
    list_coder,
    map_coder,
    primitive_array_coder,
    row_coder,
    tuple_coder,
)
from dstl_core.errors import ConfigError

KINDS = ("value", "list", "map", "reducing", "aggregating")
MAX_NESTING = 32
MAX_LENGTH = 10_000
_LISTS = ("LIST", "BASIC_ARRAY", "OBJECT_ARRAY")
_WORD = re.compile(r"\s*(?:Types\.)?(?:(\w+)|'([^']*)'|\"([^\"]*)\"|([\[\](),]))\s*")
_ALIASES = {"PICKLED_BYTE_ARRAY": "PICKLED", "BIG_INTEGER": "BIG_INT", "DECIMAL": "BIG_DEC"}
_FORMS = "LONG, PICKLED, TUPLE[INT, STRING], list[DOUBLE], map[STRING, LONG], .."


@dataclass(frozen=True)
class PythonStateType:
    """What a job declares of a state.

    Args:
        kind: One of ``KINDS``; None if the text does not say.
        value: The type of a value, or of an element.
        key: The type of the keys of a map.
    """

    kind: str | None
    value: Coder
    key: Coder | None = None


@dataclass
class _Node:
    """A name with its arguments; no name for a list of Python."""

    name: str
    parts: list[_Node] = field(default_factory=list)
    text: str | None = None

    @property
    def flat(self) -> list[_Node]:
        """The arguments, without the brackets of lists of Python."""
        return [inner for part in self.parts for inner in (part.parts if not part.name else [part])]


def parse_python_type(text: str) -> PythonStateType:
    """The type of a state.

    Raises:
        ConfigError: The text is no type of PyFlink.
    """
    try:
        node = _parse(text)
        if node.name not in KINDS:
            return PythonStateType(None, _coder(node))
        if node.name == "map":
            key, value = map(_coder, _parts(node, 2))
            return PythonStateType("map", value, key)
        [element] = _parts(node, 1)
        return PythonStateType(node.name, _coder(element))
    except _WrongTypeError as error:
        raise ConfigError(
            f"Type {text[:80]!r} is no type of PyFlink: {error}; expected e.g. {_FORMS}"
        ) from error


class _WrongTypeError(Exception):
    """What is wrong, as a part of a sentence."""


def _parse(text: str) -> _Node:
    if len(text) > MAX_LENGTH:
        raise _WrongTypeError("it is too long")
    words = _words(text)
    root = _Node("")
    _fill(root, words, 0)
    if words or len(root.parts) != 1 or not root.parts[0].name:
        raise _WrongTypeError("it is not one name with its arguments")
    return root.parts[0]


def _words(text: str) -> list[re.Match[str]]:
    words, at = [], 0
    while at < len(text):
        match = _WORD.match(text, at)
        if match is None:
            raise _WrongTypeError(f"{text[at : at + 10]!r} cannot stand there")
        words.append(match)
        at = match.end()
    return words[::-1]


def _fill(node: _Node, words: list[re.Match[str]], depth: int) -> None:
    """Reads arguments up to the bracket that ends them."""
    if depth > MAX_NESTING:
        raise _WrongTypeError(f"it nests more than {MAX_NESTING} levels")
    while words and words[-1][4] not in ("]", ")"):
        name, single, double, sign = words.pop().groups()
        if sign == ",":
            continue
        if sign in ("[", "("):
            inner = _Node("")
        elif name is None:
            node.parts.append(_Node("'", text=single if single is not None else double))
            continue
        else:
            inner = _Node(name)
            if not words or words[-1][4] not in ("[", "("):
                node.parts.append(inner)
                continue
            words.pop()
        node.parts.append(inner)
        _fill(inner, words, depth + 1)
        if not words:
            raise _WrongTypeError("a bracket does not end")
        words.pop()


def _parts(node: _Node, count: int) -> list[_Node]:
    parts = node.flat
    if len(parts) != count:
        raise _WrongTypeError(f"{node.name} has {count} types, not {len(parts)}")
    return parts


def _coder(node: _Node) -> Coder:
    name = _ALIASES.get(node.name, node.name)
    if name in LEAVES:
        _parts(node, 0)
        return LEAVES[name]
    if name in ("TUPLE", "ROW"):
        parts = [_coder(part) for part in node.flat]
        return tuple_coder(parts) if name == "TUPLE" else row_coder(parts)
    if name == "ROW_NAMED":
        if len(node.parts) != 2 or any(part.text is None for part in node.parts[0].parts):
            raise _WrongTypeError("ROW_NAMED has a list of names and a list of types")
        names = [part.text or "" for part in node.parts[0].parts]
        types = [_coder(part) for part in node.parts[1].parts]
        if len(names) != len(types):
            raise _WrongTypeError("ROW_NAMED has as many names as types")
        return row_coder(types, names)
    if name in _LISTS:
        return list_coder(name, _coder(_parts(node, 1)[0]))
    if name == "PRIMITIVE_ARRAY":
        [part] = _parts(node, 1)
        if part.name not in PRIMITIVES:
            raise _WrongTypeError(f"PRIMITIVE_ARRAY has one of {', '.join(PRIMITIVES)}")
        return primitive_array_coder(_coder(part))
    if name == "MAP":
        key, value = map(_coder, _parts(node, 2))
        return map_coder(key, value)
    raise _WrongTypeError(f"{node.name or 'a list'!r} is no type")
