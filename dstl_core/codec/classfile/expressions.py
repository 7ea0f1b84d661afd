"""Calls in bytecode with what their arguments are made of. Nothing is run.

A method is followed along straight code: constants, static fields, ``new`` and calls. Every other
instruction makes what lies on the stack unknown, and so does a branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dstl_core.codec.classfile.class_file import ClassCode
from dstl_core.codec.classfile.declared_states import instructions
from dstl_core.errors import FormatError

_LDC, _LDC_W, _DUP, _POP, _GETSTATIC = 18, 19, 89, 87, 178
_LOADS = (*range(1, 18), 20, *range(21, 46))
"""Small constants and local variables."""
_STORES = range(54, 79)
_VIRTUAL, _SPECIAL, _STATIC, _INTERFACE, _DYNAMIC, _NEW = 182, 183, 184, 185, 186, 187
_CHECKCAST = 192
_MAX_DEPTH = 256
_MAX_PARTS = 4096
"""A larger expression is unknown. Expressions share parts, so that reading one could take long."""


@dataclass(frozen=True)
class Expression:
    """A constant, a static field, a call or a new object.

    Args:
        kind: ``text``, ``class``, ``field``, ``call`` or ``new``.
        owner: The text; else the name of the class.
        name: Of the field or the method.
        arguments: Of the call or constructor; the object of a call is the first. None is unknown.
        parts: The number of expressions that it is made of.
    """

    kind: str
    owner: str
    name: str = ""
    arguments: tuple[Expression | None, ...] = ()
    parts: int = 1


def calls(code: ClassCode) -> Iterator[Expression]:
    """All calls and new objects of a method, in order.

    Raises:
        FormatError: The code is malformed.
    """
    stack: list[Expression | None] = []
    pool = code.pool
    for opcode, index in instructions(code.code):
        if opcode in (_LDC, _LDC_W):
            text, name = pool.string_at(index), pool.class_or_none(index)
            if text is not None:
                stack.append(Expression("text", text))
            else:
                stack.append(None if name is None else Expression("class", name))
        elif opcode == _GETSTATIC:
            owner, name = pool.member_at(index)
            stack.append(Expression("field", owner, name))
        elif opcode == _NEW:
            stack.append(Expression("new", str(pool.class_at(index))))
        elif opcode == _DUP:
            stack.append(stack[-1] if stack else None)
        elif opcode in _LOADS:
            stack.append(None)
        elif opcode == _CHECKCAST:
            continue
        elif opcode == _POP or opcode in _STORES:
            del stack[-1:]
        elif opcode in (_VIRTUAL, _INTERFACE, _STATIC, _SPECIAL):
            call, gives = _call(opcode, pool.typed_member_at(index), stack)
            yield call
            if gives:
                stack.append(call if call.parts <= _MAX_PARTS else None)
        elif opcode == _DYNAMIC:
            count, gives = _shape(pool.dynamic_call_at(index))
            _taken(stack, count)
            if gives:
                stack.append(None)
        else:
            stack.clear()
        del stack[:-_MAX_DEPTH]


def _call(
    opcode: int, member: tuple[str, str, str], stack: list[Expression | None]
) -> tuple[Expression, bool]:
    owner, name, descriptor = member
    count, gives = _shape(descriptor)
    arguments = _taken(stack, count)
    if opcode != _STATIC:
        made = _taken(stack, 1)
        if name == "<init>":
            of = made[0]
            is_new = of is not None and of.kind == "new" and not of.arguments
            # The object that ``dup`` left is this one, whose arguments are known now.
            if is_new and stack and stack[-1] is of:
                stack.pop()
                return Expression("new", owner, "", arguments, _size(arguments)), True
            return Expression("new", owner, "", arguments, _size(arguments)), False
        arguments = (*made, *arguments)
    return Expression("call", owner, name, arguments, _size(arguments)), gives


def _size(arguments: tuple[Expression | None, ...]) -> int:
    return 1 + sum(1 if each is None else each.parts for each in arguments)


def _taken(stack: list[Expression | None], count: int) -> tuple[Expression | None, ...]:
    taken = stack[len(stack) - min(count, len(stack)) :] if count else []
    del stack[len(stack) - len(taken) :]
    return (*[None] * (count - len(taken)), *taken)


def _shape(descriptor: str) -> tuple[int, bool]:
    """How many arguments a method takes, and whether it returns something."""
    inside, _, result = descriptor.removeprefix("(").partition(")")
    if not descriptor.startswith("(") or not result:
        raise FormatError("A method has a wrong descriptor", got=repr(descriptor[:80]))
    count = at = 0
    while at < len(inside):
        while at < len(inside) and inside[at] == "[":
            at += 1
        if at < len(inside) and inside[at] == "L":
            end = inside.find(";", at)
            at = len(inside) if end < 0 else end
        count, at = count + 1, at + 1
    return count, result != "V"
