"""The names of a case class's fields, which only its class file has.

The fields that Flink stores are the parameters of the primary constructor. Scala 2.12 and later
records their names (``MethodParameters``). An earlier class file has a field for each parameter but
those of type ``Unit``, in the same order.
"""

from __future__ import annotations

import re

from dstl_core.codec.classfile.class_file import ClassFile, Flag, Member

_CONSTRUCTOR = "<init>"
_OUTER = "$outer"
_SIGNS = {
    "tilde": "~",
    "eq": "=",
    "less": "<",
    "greater": ">",
    "bang": "!",
    "hash": "#",
    "percent": "%",
    "up": "^",
    "amp": "&",
    "bar": "|",
    "times": "*",
    "div": "/",
    "plus": "+",
    "minus": "-",
    "colon": ":",
    "bslash": "\\",
    "qmark": "?",
    "at": "@",
}
_ENCODED = re.compile(rf"\$(?:u([0-9a-fA-F]{{4}})|({'|'.join(_SIGNS)}))")


def case_class_fields(class_file: ClassFile, count: int) -> tuple[str, ...]:
    """The names of ``count`` fields as in the source; empty if the class does not tell."""
    constructors = [each for each in class_file.methods if each.name == _CONSTRUCTOR]
    accessors = {each.name for each in class_file.methods if each.descriptor.startswith("()")}
    named = [
        names
        for constructor in constructors
        if len(names := tuple(n for n in constructor.parameters or () if n != _OUTER)) == count
    ]
    if named:
        # A second constructor may have as many parameters, but these have no accessors.
        best = max(named, key=lambda names: len(accessors.intersection(names)))
        return _distinct(best)
    return _distinct(_stored_fields(class_file.fields, constructors, count))


def _stored_fields(
    fields: tuple[Member, ...], constructors: list[Member], count: int
) -> tuple[str, ...]:
    """The first fields, if a constructor takes exactly their types."""
    stored = [each for each in fields if not each.has(Flag.STATIC)]
    outer = "".join(each.descriptor for each in stored if each.name == _OUTER)
    parameters = [each for each in stored if each.name != _OUTER][:count]
    takes = f"({outer}{''.join(each.descriptor for each in parameters)})V"
    fits = len(parameters) == count and any(each.descriptor == takes for each in constructors)
    return tuple(each.name for each in parameters) if fits else ()


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    decoded = tuple(map(source_name, names))
    return decoded if len(set(decoded)) == len(decoded) else names


def source_name(encoded: str) -> str:
    """A name as Scala's source has it: ``a$minusb`` is ``a-b``."""

    def sign(match: re.Match[str]) -> str:
        code, word = match.groups()
        return chr(int(code, 16)) if code else _SIGNS[word]

    return _ENCODED.sub(sign, encoded)
