"""Declarations as YAML: plain values only, and never more of them than the text could spell out.

An alias of YAML stands for all that its anchor holds, and a merge key (``<<``) copies it. A text of
600 bytes can thus stand for more values than any memory holds. Aliases are welcome as long as the
declaration with all of them written out is no larger than a file may be.

Values are mappings, lists, texts, numbers, true, false and null. A date is a text. Source: YAML
1.1, whose other types PyYAML reads with errors of Python (``2021-99-99``, ``!!int x``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import yaml

from dstl_core.errors import ConfigError, in_one_line
from dstl_core.flink_text import whole_number

MAX_NESTING = 32
MAX_SIZE = 16 << 20
"""Characters of a declaration, with every alias written out."""
_PART_SIZE = 4
"""Characters of a value beside its text: what separates it from the next one."""
_MOST_DIGITS = 38
"""Of a whole number: the digits of the longest decimal."""


_OTHER = ("timestamp", "int", "float")
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"


class _YamlLoader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """Reads plain values. A number that cannot be is an error at its place, a date is a text."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # as the base class has it
        first: [(tag, form) for tag, form in resolvers if tag.rpartition(":")[2] not in _OTHER]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Composes a part of the declaration; stops before the composer's recursion does."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise _too_deep()
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def fetch_flow_collection_start(self, token_class: Any) -> None:
        """Stops the scanner, too: its time grows with the square of the brackets on a line."""
        if self.flow_level == MAX_NESTING:
            raise _too_deep()
        super().fetch_flow_collection_start(token_class)

    def construct_yaml_int(self, node: Any) -> int:
        number = whole_number(self._scalar(node), _MOST_DIGITS)
        if number is None:
            raise self._wrong(node, f"a whole number of up to {_MOST_DIGITS} digits")
        return number

    def construct_yaml_float(self, node: Any) -> float:
        try:
            number = float(self._scalar(node))
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self._wrong(node, "a number")
        return number

    def construct_yaml_bool(self, node: Any) -> bool:
        value = self.bool_values.get(self._scalar(node).lower())
        if value is None:
            raise self._wrong(node, "true or false")
        return bool(value)

    def _scalar(self, node: Any) -> str:
        return str(self.construct_scalar(node))

    def _wrong(self, node: Any, expected: str) -> yaml.YAMLError:
        got = repr(self._scalar(node)[:40])
        return yaml.constructor.ConstructorError(
            None, None, f"expected {expected}, got {got}", node.start_mark
        )


# The forms of YAML 1.2: 010, 0x10, 1_000 and 1:30 are texts, and not other numbers.
_YamlLoader.add_implicit_resolver(
    _INT, re.compile(r"[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789")
)
_YamlLoader.add_implicit_resolver(
    _FLOAT,
    re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)
_PLAIN = {"map": "construct_yaml_map", "seq": "construct_yaml_seq", "str": "construct_yaml_str"}
_PLAIN |= {name: f"construct_yaml_{name}" for name in ("null", "bool", "int", "float")}
_YamlLoader.yaml_constructors = {
    **{
        f"tag:yaml.org,2002:{name}": getattr(_YamlLoader, method) for name, method in _PLAIN.items()
    },
    None: yaml.SafeLoader.construct_undefined,
}


def read_declaration(text: str) -> Any:
    """The values that a YAML text spells.

    Raises:
        ConfigError: It is not YAML, has other values than plain ones, nests too deeply, is too
            large, or names a key twice in one mapping, of which YAML would keep the last.
    """
    if len(text) > MAX_SIZE:
        raise _too_large()
    try:
        loader = _YamlLoader(text)
        root = loader.get_single_node()
        _check_size(root, _parts_of_node, lambda node: len(getattr(node, "value", "")))
        _refuse_repeats(root)
        return None if root is None else loader.construct_document(root)
    except yaml.YAMLError as error:
        raise ConfigError(f"it is not YAML: {in_one_line(error)}.") from error


def check_declaration(values: Any) -> None:
    """Checks values that a program gives as a declaration, in which one object may stand often.

    Raises:
        ConfigError: With each object written out wherever it stands, they nest too deeply or are
            too large.
    """
    _check_size(values, _parts_of_value, lambda value: len(value) if _has_length(value) else 0)


def _check_size(
    root: Any, parts_of: Callable[[Any], Iterable[Any]], size_of: Callable[[Any], int]
) -> None:
    """Walks a graph once, and counts what it holds as a tree."""
    sizes: dict[int, int | None] = {}
    waiting = [(root, False)]
    depth = 0
    while waiting:
        part, is_done = waiting.pop()
        if is_done:
            depth -= 1
            inner = (sizes[id(each)] or 0 for each in parts_of(part))
            sizes[id(part)] = size = _PART_SIZE + size_of(part) + sum(inner)
            if size > MAX_SIZE:
                raise _too_large()
        elif id(part) not in sizes:
            depth += 1
            if depth > MAX_NESTING:
                raise _too_deep()
            sizes[id(part)] = None
            waiting.append((part, True))
            waiting += ((each, False) for each in parts_of(part))
        elif sizes[id(part)] is None:
            raise ConfigError("an alias in it stands for the part that it is in.")


def _parts_of_node(node: Any) -> Iterable[Any]:
    if isinstance(node, yaml.MappingNode):
        return (each for pair in node.value for each in pair)
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def _parts_of_value(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return (each for pair in value.items() for each in pair)
    return value if isinstance(value, list | tuple) else ()


def _has_length(value: Any) -> bool:
    return isinstance(value, str | bytes)


def _refuse_repeats(root: Any) -> None:
    waiting = [root]
    visited: set[int] = set()  # an alias is one node in many places
    while waiting:
        node = waiting.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        if not isinstance(node, yaml.MappingNode):
            continue
        seen: set[str] = set()
        for key, value in node.value:
            name = str(getattr(key, "value", key))
            if name in seen:
                line = key.start_mark.line + 1
                raise ConfigError(
                    f"it names {name!r} twice in one place (line {line}); name it once."
                )
            seen.add(name)
            waiting.append(value)


def _too_deep() -> ConfigError:
    return ConfigError(f"it nests deeper than {MAX_NESTING} levels.")


def _too_large() -> ConfigError:
    return ConfigError(
        f"it is larger than {MAX_SIZE >> 20} MiB with every alias written out; "
        f"write out less, or split it."
    )
