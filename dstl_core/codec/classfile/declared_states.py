"""State types that the classes of a job declare, found in their bytecode. Nothing is run.

A descriptor is a constructor call: the name of the state as a constant, then for each type a class
constant, or an instance of an anonymous subclass of ``TypeHint``, whose signature has the type:

    new ValueStateDescriptor<>("orders", TypeInformation.of(new TypeHint<List<Order>>() {}))

Types that are computed in another way are not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dstl_core.codec.classfile.class_file import ClassCode, methods_with_code
from dstl_core.codec.classfile.generic_types import JavaType, class_name_of
from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.data_io import DataInput
from dstl_core.errors import FormatError, error_context

_DESCRIPTOR = "StateDescriptor"
_TYPE_HINT = "org.apache.flink.api.common.typeinfo.TypeHint"

_TWO_BYTES = frozenset((16, 18, *range(21, 26), *range(54, 59), 169, 188))
_THREE_BYTES = frozenset(
    (17, 19, 20, 132, *range(153, 169), *range(178, 185), 187, 189, 192, 193, 198, 199)
)
_FIVE_BYTES = frozenset((185, 186))
_WIDE_BRANCHES = (200, 201)
_LDC, _LDC_W, _GETSTATIC, _INVOKESPECIAL, _INVOKESTATIC, _NEW = 18, 19, 178, 183, 184, 187
_TABLESWITCH, _LOOKUPSWITCH, _WIDE, _MULTIANEWARRAY = 170, 171, 196, 197


@dataclass(frozen=True)
class DeclaredState:
    """A descriptor: its class, and its types; None is one that is not known."""

    descriptor: str
    types: tuple[JavaType | None, ...]


@dataclass
class _Call:
    """The constructor call of a descriptor: the name of the state, and its types so far."""

    name: str
    types: list[JavaType | None] = field(default_factory=list)


def declared_states(classes: JobClasses, names: set[str]) -> dict[str, DeclaredState]:
    """The declarations of some states, by name. A state that is declared in two ways is left out.

    Raises:
        FormatError: A class file is damaged.
    """
    wanted = [name.encode() for name in names]
    by_name: dict[str, set[DeclaredState]] = {}
    for place, raw in classes.class_files():
        if _DESCRIPTOR.encode() in raw and any(name in raw for name in wanted):
            with error_context(location=place):
                for code in methods_with_code(raw):
                    for name, state in _calls(code, classes):
                        if name in names:
                            by_name.setdefault(name, set()).add(state)
    return {name: each for name, states in by_name.items() if len(states) == 1 for each in states}


def _calls(code: ClassCode, classes: JobClasses) -> Iterator[tuple[str, DeclaredState]]:
    call: _Call | None = None
    for opcode, index in instructions(code.code):
        if opcode in (_LDC, _LDC_W):
            text = code.pool.string_at(index)
            if text is not None:
                call = _Call(text)
            elif call is not None:
                call.types.append(_class_constant(code.pool.class_or_none(index)))
        elif call is None:
            continue
        elif opcode == _NEW:
            hint = _type_hint(code.pool.class_or_none(index), classes)
            if hint is not None:
                call.types.append(hint)
        elif opcode == _GETSTATIC:
            call.types.append(None)
        elif opcode == _INVOKESTATIC:
            owner, _ = code.pool.member_at(index)
            if not owner.endswith("TypeInformation"):
                call.types.append(None)
        elif opcode == _INVOKESPECIAL:
            owner, name = code.pool.member_at(index)
            if name == "<init>" and owner.endswith(_DESCRIPTOR):
                yield call.name, DeclaredState(owner, tuple(call.types))
                call = None


def _class_constant(name: str | None) -> JavaType | None:
    return None if name is None else JavaType(class_name_of(name) if "[" in name else name)


def _type_hint(name: str | None, classes: JobClasses) -> JavaType | None:
    hint_class = None if name is None else classes.get(name)
    if hint_class is None or hint_class.superclass != _TYPE_HINT:
        return None
    parent = hint_class.generic.superclass
    return parent.arguments[0] if parent is not None and len(parent.arguments) == 1 else None


def instructions(code: bytes) -> Iterator[tuple[int, int]]:
    """The opcodes, each with the index of its constant, or 0."""
    data = DataInput(code)
    while data.remaining:
        start = data.position
        opcode = data.read_u8("opcode")
        index = 0
        if opcode in _TWO_BYTES:
            index = data.read_u8("operand")
        elif opcode in _THREE_BYTES:
            index = data.read_u16("operand")
        elif opcode in _FIVE_BYTES:
            index = data.read_u16("operand")
            data.read_bytes(2, "operand")
        elif opcode in _WIDE_BRANCHES:
            data.read_bytes(4, "operand")
        elif opcode == _MULTIANEWARRAY:
            data.read_bytes(3, "operand")
        elif opcode == _WIDE:
            data.read_bytes(5 if data.read_u8("opcode") == 132 else 2, "operand")
        elif opcode in (_TABLESWITCH, _LOOKUPSWITCH):
            data.read_bytes(-(start + 1) % 4, "padding")
            data.read_i32("default")
            if opcode == _TABLESWITCH:
                low, high = data.read_i32("low"), data.read_i32("high")
                count, size = high - low + 1, 4
            else:
                count, size = data.read_i32("pairs"), 8
            if count < 0:
                raise FormatError("A switch in a class file is malformed", offset=start)
            data.read_bytes(count * size, "switch")
        yield opcode, index
