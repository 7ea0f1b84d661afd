"""What Kryo 5 knows of type arguments while it writes or reads a value.

A field pushes its type with its arguments. The serializer of its value takes the arguments if they
were pushed one level above. A class with type parameters binds them while its fields are written,
for all objects below. What Kryo takes for a type decides whether a class stands in the bytes, so
its detours are followed.

Source: ``DefaultGenerics``, ``Generics`` and ``GenericsUtil`` of Kryo 5.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dstl_core.codec.classfile.class_file import OBJECT, ClassFile
from dstl_core.codec.classfile.generic_types import JavaType, array_name

Variable = tuple[str, str]
"""A type parameter: the class that declares it, and its name."""


@dataclass(frozen=True, slots=True)
class GenericType:
    """A type with its arguments.

    Args:
        type: The name of a class, or a type parameter.
        arguments: None for a type without arguments.
    """

    type: str | Variable
    arguments: tuple[GenericType, ...] | None = None


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """The type parameters of a class and its superclasses.

    Args:
        of_class: How many the class itself has.
        groups: For each parameter, itself and the parameters of superclasses that it is passed to.
    """

    of_class: int = 0
    groups: tuple[tuple[Variable, ...], ...] = ()


NO_PARAMETERS = Hierarchy()


class Generics:
    """The state of one value. ``depth`` is how many objects are open."""

    __slots__ = ("_bound", "_types", "depth")

    def __init__(self) -> None:
        self.depth = 0
        self._types: list[tuple[GenericType, int]] = []
        self._bound: list[tuple[Variable, str]] = []

    @property
    def variables(self) -> set[Variable]:
        """The type parameters that have an argument."""
        return {variable for variable, _ in self._bound}

    def push(self, declared: GenericType) -> None:
        self._types.append((declared, self.depth))

    def pop(self) -> None:
        """Takes away the last type, unless it was pushed above the object that is open."""
        if self._types and self._types[-1][1] >= self.depth:
            self._types.pop()

    def next_arguments(self) -> tuple[GenericType, ...] | None:
        """The type arguments of the object that is open. The last one is pushed."""
        if not self._types:
            return None
        declared, depth = self._types[-1]
        if declared.arguments is None or depth != self.depth - 1:
            return None
        self.push(declared.arguments[-1])
        return declared.arguments

    def resolve(self, declared: GenericType) -> str | None:
        """The class of a type; None for a type parameter that is not bound."""
        if isinstance(declared.type, str):
            return declared.type
        for variable, name in reversed(self._bound):
            if variable == declared.type:
                return name
        return None

    def bind(self, parameters: Hierarchy) -> int:
        """Binds the type parameters of the object that is open. Returns what ``unbind`` takes."""
        arguments = self.next_arguments()
        groups = parameters.groups
        if arguments is None or not groups:
            return 0
        if not parameters.of_class <= len(arguments) <= len(groups):
            return 0
        variables = [variable for group in groups for variable in group]
        before, at = len(self._bound), 0
        for group, argument in zip(groups, arguments, strict=False):
            name = self.resolve(argument)
            if name is None:
                continue  # Kryo binds the parameters of this one to the next argument
            self._bound += [(variable, name) for variable in variables[at : at + len(group)]]
            at += len(group)
        return len(self._bound) - before

    def unbind(self, bound: int) -> None:
        if bound:
            del self._bound[-bound:]
        self.pop()


# ------------------------------------------------------------------------ types of fields


def parameters_of(chain: Sequence[ClassFile]) -> Hierarchy:
    """The type parameters of the first class; the others are its superclasses, nearest first."""
    groups = []
    for start, declaring in enumerate(chain):
        for name in declaring.generic.parameters:
            group = [(declaring.name, name)]
            for at in range(start, len(chain) - 1):
                above = chain[at].generic.superclass
                if above is None or not above.arguments:
                    break
                names = chain[at + 1].generic.parameters
                for other, argument in zip(names, above.arguments, strict=False):
                    if _is_variable(argument, group[-1], chain[at].name):
                        group.append((chain[at + 1].name, other))
            groups.append(tuple(group))
    return Hierarchy(len(chain[0].generic.parameters), tuple(groups))


def _is_variable(argument: JavaType | None, variable: Variable, declaring: str) -> bool:
    return (
        argument is not None
        and argument.variable == variable[1]
        and declaring == variable[0]
        and not argument.name.startswith("[")
    )


def generic_type(chain: Sequence[ClassFile], owner: int, declared: JavaType | None) -> GenericType:
    """The type of a field.

    Args:
        chain: The class of the object and its superclasses, nearest first.
        owner: The place of the class that declares the field.
        declared: Its type; None for a wildcard.
    """
    if declared is None:
        return GenericType(OBJECT)
    if declared.variable is not None:
        resolved = _resolved(chain, owner, 0, (chain[owner].name, declared.variable), is_first=True)
        if isinstance(resolved, str):
            resolved = _array_of(resolved, declared.name)
        return GenericType(resolved)
    if declared.arguments and not declared.is_bound:
        arguments = tuple(generic_type(chain, owner, each) for each in declared.arguments)
        return GenericType(declared.name, arguments)
    return GenericType(declared.name)


def _array_of(component: str, array: str) -> str:
    """The array class with as many dimensions as another."""
    for _ in range(len(array) - len(array.lstrip("["))):
        component = array_name(component)
    return component


def _resolved(
    chain: Sequence[ClassFile], owner: int, at: int, variable: Variable, *, is_first: bool
) -> str | Variable:
    """What a class passes to a type parameter of the owner. Names decide, whatever declares them;
    a superclass without type arguments ends the search.
    """
    above = chain[at].generic.superclass
    if above is None or not above.arguments or at + 1 == len(chain):
        return variable
    if at + 1 != owner:
        resolved = _resolved(chain, owner, at + 1, variable, is_first=False)
        if isinstance(resolved, str):
            return resolved
        variable = resolved
    names = chain[at + 1].generic.parameters
    for name, argument in zip(names, above.arguments, strict=False):
        if name != variable[1] or argument is None:
            continue
        if argument.variable is None:
            return argument.name
        if argument.name.startswith("["):
            inner = (chain[at].name, argument.variable)
            part = _resolved(chain, owner, at, inner, is_first=True)
            return _array_of(part, argument.name) if isinstance(part, str) else part
        return variable if is_first else (chain[at].name, argument.variable)
    return variable
