"""Reads pickles without running them.

A pickle is a program that may call anything. This reader knows the instructions that build plain
data, and builds it by itself: it imports nothing and calls nothing that a pickle names. Names of
classes are texts here. Dates, decimals, rows of PyFlink and containers of the standard library
become values of this module; objects of other classes become an ``Instance`` with what the pickle
stores of them. A pickle that would call anything else is refused with the name of that.

Source: ``pickletools`` of Python 3.11, and ``pyflink.common.types`` of Flink 2.2.1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.pyflink.known_calls import KNOWN_CALLS
from dstl_core.codec.pyflink.pickled_values import Global, Instance, Pairs, PickledItems
from dstl_core.errors import FormatError, UnreadableValueError

MAX_LONG_BYTES = 1024
"""Of an integer: Python refuses to print larger ones."""
MAX_PROTOCOL = 5
MAX_HELD = 1 << 22
"""Containers, marks and memos of one pickle: each takes a byte of it, and a hundred of memory."""
_PROTO, _STOP = 0x80, ord(".")
_DOUBLE = struct.Struct(">d")


def read_pickle(data: DataInput) -> Any:
    """Reads one pickle and moves behind it.

    Raises:
        UnreadableValueError: It would call something that is not plain data. The message names it.
        FormatError: The bytes are no pickle.
    """
    at = data.position
    if data.read_u8("pickle") != _PROTO:
        raise FormatError("A pickle has no protocol", offset=at, expected=f"{_PROTO:#x}")
    protocol = data.read_u8("pickle protocol")
    if not 2 <= protocol <= MAX_PROTOCOL:
        raise FormatError(
            "A pickle has an unknown protocol",
            offset=at,
            expected=f"2 to {MAX_PROTOCOL}",
            got=protocol,
        )
    return _Machine(data).run()


@dataclass
class _Machine:
    """The stack and the memo of a pickle. Each instruction takes at least a byte of input."""

    data: DataInput
    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)
    held: int = 0

    def run(self) -> Any:
        while True:
            at = self.data.position
            code = self.data.read_u8("pickle instruction")
            if code == _STOP:
                value = self.pop()
                if self.stack or self.marks:
                    raise FormatError("A pickle ends with values on its stack", offset=at)
                return value
            instruction = _INSTRUCTIONS.get(code)
            if instruction is None:
                raise self._unknown(code, at)
            instruction(self)

    def _unknown(self, code: int, at: int) -> Exception:
        if chr(code) in _REFUSED:
            return UnreadableValueError(
                f"A pickle would use {_REFUSED[chr(code)]}; dstl runs nothing that a pickle names",
                offset=at,
            )
        return FormatError("A pickle has an unknown instruction", offset=at, got=f"{code:#04x}")

    def pop(self) -> Any:
        low = self.marks[-1] if self.marks else 0
        if len(self.stack) <= low:
            raise FormatError("A pickle takes a value that is not there", offset=self.data.position)
        return self.stack.pop()

    def top(self) -> Any:
        value = self.pop()
        self.stack.append(value)
        return value

    def pop_to_mark(self) -> list[Any]:
        if not self.marks:
            raise FormatError("A pickle has no mark", offset=self.data.position)
        at = self.marks.pop()
        items = self.stack[at:]
        del self.stack[at:]
        return items

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def hold(self, value: Any) -> None:
        """Pushes a container."""
        self.count_held()
        self.stack.append(value)

    def mark(self) -> None:
        self.count_held()
        self.marks.append(len(self.stack))

    def count_held(self) -> None:
        self.held += 1
        if self.held > MAX_HELD:
            raise UnreadableValueError(
                f"A pickle holds more than {MAX_HELD} containers, marks and memos",
                offset=self.data.position,
            )

    def count(self, size: int) -> int:
        raw = self.data.read_bytes(size, "pickle length")
        return int.from_bytes(raw, "little")

    def raw(self, size: int) -> bytes:
        return self.data.read_bytes(size, "pickle bytes")

    def text(self, size: int) -> str:
        try:
            return self.raw(size).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise self.wrong("a text that is not UTF-8") from error

    def integer(self, size: int) -> int:
        if size > MAX_LONG_BYTES:
            raise UnreadableValueError(
                f"A pickle has an integer of {size} bytes; expected at most {MAX_LONG_BYTES}",
                offset=self.data.position,
            )
        return int.from_bytes(self.raw(size), "little", signed=True)

    def remember(self, index: int) -> None:
        self.count_held()
        self.memo[index] = self.top()

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise self.wrong(f"a memo {index} that it did not write")
        self.stack.append(self.memo[index])

    def wrong(self, what: str) -> FormatError:
        return FormatError(f"A pickle has {what}", offset=self.data.position)

    # ------------------------------------------------------------------ what calls would do

    def named(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise self.wrong("a class whose name is no text")
        self.stack.append(Global(f"{module}.{name}"))

    def line(self) -> str:
        taken = bytearray()
        while (byte := self.data.read_u8("pickle name")) != 0x0A:
            taken.append(byte)
        try:
            return taken.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.wrong("a name that is not UTF-8") from error

    def reduce(self) -> None:
        arguments, called = self.pop(), self.pop()
        if not isinstance(arguments, PickledItems) or arguments.kind != "tuple":
            raise self.wrong("a call without a tuple of arguments")
        name = called.name if isinstance(called, Global) else "an object of the pickle"
        make = KNOWN_CALLS.get(name)
        if make is None:
            raise UnreadableValueError(
                f"A pickle would call {name}; dstl runs nothing that a pickle names",
                offset=self.data.position,
            )
        try:
            self.stack.append(make(*arguments.items))
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise self.wrong(f"arguments that {name} does not take") from error

    def new_object(self, *, named: bool) -> None:
        keywords = self.pop() if named else None
        arguments, made = self.pop(), self.pop()
        if not isinstance(made, Global) or not isinstance(arguments, PickledItems):
            raise self.wrong("an object without a class")
        if isinstance(keywords, Pairs) and keywords.pairs:
            raise UnreadableValueError(
                f"A pickle makes a {made.name} with named arguments; dstl does not know their order"
            )
        self.stack.append(Instance(made.name, list(arguments.items)))

    def build(self) -> None:
        state, made = self.pop(), self.top()
        if not isinstance(made, Instance):
            name = type(made).__name__ if not isinstance(made, Global) else made.name
            raise UnreadableValueError(
                f"A pickle would set the state of a {name}; dstl runs nothing that a pickle names",
                offset=self.data.position,
            )
        made.states.append(state)

    # ----------------------------------------------------------------------------- containers

    def extend(self, items: list[Any], *kinds: str) -> None:
        made = self.top()
        if isinstance(made, PickledItems) and made.kind in kinds:
            made.items += items
        elif isinstance(made, Instance) and "list" in kinds:
            made.items += items  # a subclass of list
        else:
            raise self.wrong("items of something that takes none")

    def set_items(self, flat: list[Any]) -> None:
        if len(flat) % 2:
            raise self.wrong("a key without a value")
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        made = self.top()
        if not isinstance(made, Pairs | Instance):
            raise self.wrong("keys of something that takes none")
        made.pairs += pairs

    def take_pair(self) -> None:
        value, key = self.pop(), self.pop()
        self.set_items([key, value])

    def take_item(self) -> None:
        self.extend([self.pop()], "list")

    def stack_global(self) -> None:
        name, module = self.pop(), self.pop()
        self.named(module, name)

    def tuple_of(self, size: int) -> None:
        items = [self.pop() for _ in range(size)]
        self.hold(PickledItems("tuple", items[::-1]))

    def pop_or_mark(self) -> None:
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self.pop()


_Instruction = Callable[[_Machine], object]
_SIGNS: dict[str | int, _Instruction] = {
    "(": _Machine.mark,
    "0": _Machine.pop_or_mark,
    "1": _Machine.pop_to_mark,
    "N": lambda m: m.push(None),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    "K": lambda m: m.push(m.count(1)),
    "M": lambda m: m.push(m.count(2)),
    "J": lambda m: m.push(m.integer(4)),
    0x8A: lambda m: m.push(m.integer(m.count(1))),
    0x8B: lambda m: m.push(m.integer(m.count(4))),
    "G": lambda m: m.push(_DOUBLE.unpack(m.raw(8))[0]),
    "X": lambda m: m.push(m.text(m.count(4))),
    0x8C: lambda m: m.push(m.text(m.count(1))),
    0x8D: lambda m: m.push(m.text(m.count(8))),
    "B": lambda m: m.push(m.raw(m.count(4))),
    "C": lambda m: m.push(m.raw(m.count(1))),
    0x8E: lambda m: m.push(m.raw(m.count(8))),
    0x96: lambda m: m.push(m.raw(m.count(8))),
    "]": lambda m: m.hold(PickledItems("list")),
    "}": lambda m: m.hold(Pairs()),
    0x8F: lambda m: m.hold(PickledItems("set")),
    ")": lambda m: m.hold(PickledItems("tuple")),
    "t": lambda m: m.hold(PickledItems("tuple", m.pop_to_mark())),
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    0x91: lambda m: m.hold(PickledItems("set", m.pop_to_mark())),
    "a": _Machine.take_item,
    "e": lambda m: m.extend(m.pop_to_mark(), "list"),
    0x90: lambda m: m.extend(m.pop_to_mark(), "set"),
    "s": _Machine.take_pair,
    "u": lambda m: m.set_items(m.pop_to_mark()),
    0x94: lambda m: m.remember(len(m.memo)),
    "q": lambda m: m.remember(m.count(1)),
    "r": lambda m: m.remember(m.count(4)),
    "h": lambda m: m.recall(m.count(1)),
    "j": lambda m: m.recall(m.count(4)),
    0x95: lambda m: m.count(8),  # the length of a frame; frames are for streams
    "c": lambda m: m.named(m.line(), m.line()),
    0x93: _Machine.stack_global,
    "R": _Machine.reduce,
    0x81: lambda m: m.new_object(named=False),
    0x92: lambda m: m.new_object(named=True),
    "b": _Machine.build,
}
_INSTRUCTIONS = {ord(sign) if isinstance(sign, str) else sign: _SIGNS[sign] for sign in _SIGNS}
_REFUSED = {
    "P": "a persistent id",
    "Q": "a persistent id",
    "\x82": "an extension code",
    "\x83": "an extension code",
    "\x84": "an extension code",
    "i": "a call (INST)",
    "o": "a call (OBJ)",
    "\x97": "a buffer outside of the pickle",
    "\x98": "a buffer outside of the pickle",
}
