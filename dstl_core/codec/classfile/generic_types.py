"""Java types as descriptors and ``Signature`` attributes write them.

    descriptor := B | C | D | F | I | J | S | Z | 'L' class ';' | '[' descriptor
    signature  := the same with type arguments: 'L' class '<' argument+ '>' ('.' inner)* ';'
                  and type variables: 'T' name ';'
    argument   := '*' | ['+' | '-'] signature

Source: The Java Virtual Machine Specification, sections 4.3 and 4.7.9.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dstl_core.errors import FormatError

MAX_TYPE_NESTING = 32
PRIMITIVE_NAMES = {
    "B": "byte",
    "C": "char",
    "D": "double",
    "F": "float",
    "I": "int",
    "J": "long",
    "S": "short",
    "Z": "boolean",
    "V": "void",
}


@dataclass(frozen=True, slots=True)
class JavaType:
    """A type of a field.

    Args:
        name: As ``Class.getName()`` gives it: ``int``, ``java.util.List``, ``[Ljava.util.List;``.
        arguments: Type arguments; of an array, those of its elements. None is a wildcard without
            a bound.
        variable: The type variable, whose bound ``name`` is.
        is_bound: Whether it is the bound of a wildcard.
        is_lower: Whether that is a lower bound.
    """

    name: str
    arguments: tuple[JavaType | None, ...] = ()
    variable: str | None = None
    is_bound: bool = False
    is_lower: bool = False

    @property
    def is_primitive(self) -> bool:
        return self.name in _PRIMITIVES

    @property
    def raw(self) -> JavaType:
        """The type without arguments."""
        return JavaType(self.name)


_PRIMITIVES = frozenset(PRIMITIVE_NAMES.values())


@dataclass(frozen=True, slots=True)
class ClassSignature:
    """Type parameters of a class, and its superclass with type arguments."""

    parameters: tuple[str, ...] = ()
    superclass: JavaType | None = None


def component_name(array_name: str) -> str:
    """The class name of the elements of an array class.

    Raises:
        FormatError: No array has such elements.
    """
    if array_name == "[V":
        raise _bad("V")
    return class_name_of(array_name[1:].replace(".", "/"))


def array_name(component: str) -> str:
    """The class name of an array with such elements."""
    if component.startswith("["):
        return f"[{component}"
    for code, name in PRIMITIVE_NAMES.items():
        if name == component:
            return f"[{code}"
    return f"[L{component};"


def class_name_of(descriptor: str) -> str:
    """The class name of a descriptor.

    Raises:
        FormatError: It is none.
    """
    if descriptor.startswith("["):
        return descriptor.replace("/", ".")
    if descriptor in PRIMITIVE_NAMES:
        return PRIMITIVE_NAMES[descriptor]
    if descriptor.startswith("L") and descriptor.endswith(";"):
        return descriptor[1:-1].replace("/", ".")
    raise _bad(descriptor)


def parse_field_type(descriptor: str, signature: str | None) -> JavaType:
    """The type of a field.

    Raises:
        FormatError: The descriptor or the signature does not follow its grammar.
    """
    erased = class_name_of(descriptor)
    if signature is None:
        return JavaType(erased)
    parser = _SignatureParser(signature)
    field_type = parser.type(0)
    parser.end()
    if field_type is None:
        raise _bad(signature)
    return field_type if field_type.variable is None else replace(field_type, name=erased)


def parse_class_signature(text: str) -> ClassSignature:
    """Type parameters and superclass.

    Raises:
        FormatError: The signature does not follow its grammar.
    """
    parser = _SignatureParser(text)
    return ClassSignature(parser.parameters(), parser.type(0))


class _SignatureParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _until(self, signs: str) -> str:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in signs:
            self._at += 1
        if self._at == len(self._text):
            raise _bad(self._text)
        return self._text[start : self._at]

    def end(self) -> None:
        if self._at != len(self._text):
            raise _bad(self._text)

    def parameters(self) -> tuple[str, ...]:
        if self._peek() != "<":
            return ()
        self._at += 1
        names = []
        while self._peek() != ">":
            names.append(self._until(":"))
            while self._peek() == ":":
                self._at += 1
                if self._peek() not in (":", ">"):
                    self.type(0)
        self._at += 1
        return tuple(names)

    def type(self, depth: int) -> JavaType | None:
        if depth > MAX_TYPE_NESTING:
            raise _bad(self._text)
        sign = self._peek()
        self._at += 1
        if sign in ("+", "-", "*"):
            bound = None if sign == "*" else self.type(depth + 1)
            return bound and replace(bound, is_bound=True, is_lower=sign == "-")
        if sign == "T":
            name = self._until(";")
            self._at += 1
            return JavaType("java.lang.Object", (), name)
        if sign == "[":
            component = self.type(depth + 1)
            if component is None:
                raise _bad(self._text)
            return JavaType(array_name(component.name), component.arguments, component.variable)
        if sign == "L":
            return self._class(depth)
        if sign in PRIMITIVE_NAMES and sign:
            return JavaType(PRIMITIVE_NAMES[sign])
        raise _bad(self._text)

    def _class(self, depth: int) -> JavaType:
        name = self._until("<.;")
        arguments: tuple[JavaType | None, ...] = ()
        while True:
            sign = self._peek()
            self._at += 1
            if sign == ";":
                return JavaType(name.replace("/", "."), arguments)
            if sign == "<":
                types = []
                while self._peek() != ">":
                    types.append(self.type(depth + 1))
                self._at += 1
                arguments = tuple(types)
            elif sign == ".":
                name += f"${self._until('<.;')}"
                arguments = ()
            else:
                raise _bad(self._text)


def _bad(text: str) -> FormatError:
    return FormatError("A type in a class file is malformed", got=repr(text[:80]))
