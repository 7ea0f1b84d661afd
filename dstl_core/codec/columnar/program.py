"""Builds programs: instructions, jumps, and the operands that buffers of a batch fill in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from dstl_core.codec.columnar.instructions import INSTRUCTION_BYTES, WORDS
from dstl_core.errors import InvariantViolation

Int64s = npt.NDArray[np.int64]


class Field(IntEnum):
    """An operand that belongs to a column: its index in the table that a program is bound to."""

    VALUES = 0
    VALID = 1
    DATA = 2
    LIMIT = 3
    EXTRA = 4


FIELDS = len(Field)


@dataclass(frozen=True, slots=True)
class Operand:
    """A field of a column."""

    column: int
    field: Field


@dataclass(slots=True)
class Label:
    """A place in a program; ``index`` is set when it is reached."""

    index: int = -1


Word = int | Operand | Label


@dataclass(frozen=True)
class Program:
    """Instructions with holes where the operands of columns go."""

    words: Int64s
    places: Int64s
    """Which words (in the flat program) to fill."""
    sources: Int64s
    """From where in the flat table of columns and fields."""

    def bind(self, columns: Int64s) -> Int64s:
        """A runnable copy; ``columns`` is ``[columns, FIELDS]``. A kernel writes into it."""
        bound = self.words.copy()
        bound.reshape(-1)[self.places] = columns.reshape(-1)[self.sources]
        return bound


class Code:
    """A program in the making, to decode or to encode."""

    def __init__(self, *, encoding: bool = False) -> None:
        self.encoding = encoding
        self._words: list[tuple[int, list[Word]]] = []
        self.columns = 0

    def add_column(self) -> int:
        """The number of a new column."""
        self.columns += 1
        return self.columns - 1

    def emit(self, op: int, *words: Word) -> None:
        if len(words) >= WORDS:
            raise InvariantViolation("an instruction has too many words")
        self._words.append((op, list(words)))

    def place(self, label: Label) -> None:
        """The label stands for the next instruction."""
        label.index = len(self._words)

    def finish(self) -> Program:
        words = np.zeros((len(self._words), WORDS), np.int64)
        places, sources = [], []
        for at, (op, operands) in enumerate(self._words):
            words[at, 0] = op
            for i, operand in enumerate(operands, 1):
                if isinstance(operand, Operand):
                    places.append(at * WORDS + i)
                    sources.append(operand.column * FIELDS + operand.field)
                elif isinstance(operand, Label):
                    if operand.index < 0:
                        raise InvariantViolation("a jump goes nowhere")
                    words[at, i] = operand.index * INSTRUCTION_BYTES
                else:
                    words[at, i] = operand
        return Program(words, np.array(places, np.int64), np.array(sources, np.int64))
