"""Builds programs: instructions, jumps, and operands that are set from the buffers of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from dstl_core.codec.columnar.kernels.instructions import FRAME, INSTRUCTION_BYTES, WORDS
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.errors import InvariantViolation

Int64s = npt.NDArray[np.int64]


class Field(IntEnum):
    """An operand of a column: its index in the table that a program is bound to."""

    VALUES = 0
    VALID = 1
    DATA = 2
    LIMIT = 3
    EXTRA = 4
    WANTED = 5


FIELDS = len(Field)


@dataclass(frozen=True, slots=True)
class Operand:
    """A field of a column."""

    column: int
    field: Field


@dataclass(slots=True)
class Label:
    """A position in a program; ``index`` is set when the position is reached."""

    index: int = -1


@dataclass(frozen=True, slots=True)
class Constant:
    """Address of constant bytes that belong to the program."""

    offset: int


Word = int | Operand | Label | Constant


@dataclass(frozen=True)
class Program:
    """Instructions whose column operands are not set yet."""

    words: Int64s
    places: Int64s
    """Indices of the words to set, in the flat program."""
    sources: Int64s
    """Their values' indices in the flat table of columns and fields."""
    constants: npt.NDArray[np.uint8]
    addresses: Int64s
    """Indices of words that are offsets into the constants."""

    @property
    def operations(self) -> frozenset[int]:
        return frozenset(self.words[:, 0].tolist())

    def bind(self, columns: Int64s) -> Int64s:
        """A runnable copy; ``columns`` is ``[columns, FIELDS]``. Kernels write into the copy."""
        bound = self.words.copy()
        flat = bound.reshape(-1)
        flat[self.places] = columns.reshape(-1)[self.sources]
        if len(self.addresses):
            flat[self.addresses] += address_of(self.constants)
        return bound


class Code:
    """Collects the instructions of a program, to decode or to encode."""

    def __init__(self, *, encoding: bool = False) -> None:
        self.encoding = encoding
        self._words: list[tuple[int, list[Word]]] = []
        self._frames: list[Label] = []
        self._constants = bytearray()
        self.columns = 0

    def add_column(self) -> int:
        """Adds a column; returns its number."""
        self.columns += 1
        return self.columns - 1

    def emit(self, op: int, *words: Word) -> None:
        if len(words) >= WORDS:
            raise InvariantViolation("an instruction has too many words")
        self._words.append((op, list(words)))

    def add_frame(self) -> Label:
        """Adds two lines of words that are never executed."""
        self._frames.append(Label())
        return self._frames[-1]

    def add_constant(self, raw: bytes) -> Constant:
        constant = Constant(len(self._constants))
        self._constants += raw
        return constant

    def place(self, label: Label) -> None:
        """Binds the label to the next instruction."""
        label.index = len(self._words)

    def finish(self) -> Program:
        for frame in self._frames:
            self.place(frame)
            self.emit(FRAME)
            self.emit(FRAME)
        words = np.zeros((len(self._words), WORDS), np.int64)
        places, sources, addresses = [], [], []
        for at, (op, operands) in enumerate(self._words):
            words[at, 0] = op
            for i, operand in enumerate(operands, 1):
                if isinstance(operand, Operand):
                    places.append(at * WORDS + i)
                    sources.append(operand.column * FIELDS + operand.field)
                elif isinstance(operand, Label):
                    if operand.index < 0:
                        raise InvariantViolation("a jump has no target")
                    words[at, i] = operand.index * INSTRUCTION_BYTES
                elif isinstance(operand, Constant):
                    addresses.append(at * WORDS + i)
                    words[at, i] = operand.offset
                else:
                    words[at, i] = operand
        return Program(
            words,
            np.array(places, np.int64),
            np.array(sources, np.int64),
            np.frombuffer(bytes(self._constants) or b"\0", np.uint8),
            np.array(addresses, np.int64),
        )
