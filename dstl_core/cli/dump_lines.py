"""The lines of ``dstl dump``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dstl_core.cli.options import duration_ms, require_state
from dstl_core.cli.output import Advance, complain, progress, write_json, write_lines
from dstl_core.clock import SystemClock
from dstl_core.errors import DstlError
from dstl_core.savepoint.read.entries import Entry, Expiry, KeyedEntry, Unreadable, summarize
from dstl_core.savepoint.read.entry_reader import EntryReader
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.state.restore.kernel_sizes import are_read_by_kernels


def dump_lines(
    snapshot: Snapshot,
    operators: list[OperatorSnapshot],
    state: str | None,
    *,
    opaque: bool,
    expiry: Expiry | None,
    named: bool,
) -> bool:
    """Prints the entries of operators. False if one cannot be read, while others may be.

    Args:
        snapshot: The snapshot of the operators.
        operators: What to print.
        state: Only this state.
        opaque: Whether values that only Java can read are printed.
        expiry: Leaves out expired values.
        named: Whether the user named the operators. The error of a single one is raised as it is.

    Raises:
        NoSuchStateError: None of the operators has the state.
    """
    total = sum(operator.state.state_size for operator in operators)
    with progress("reading", total, prints_lines=True) as advance:
        printer = _Printer(state, opaque, expiry, advance)
        if named and len(operators) == 1:
            printer.print(operators[0])
        else:
            printer.print_all(snapshot, operators)
    for sentence in printer.remarks:
        complain(sentence)
    return not printer.problems


def expiry_of(text: str | None) -> Expiry | None:
    """The value of ``--hide-expired``.

    Raises:
        ConfigError: It has another form.
    """
    if text is None:
        return None
    return Expiry(duration_ms("--hide-expired", text), SystemClock().now_ms())


class _Printer:
    """Prints operators; ``remarks`` are the sentences for stderr."""

    def __init__(
        self, state: str | None, opaque: bool, expiry: Expiry | None, advance: Advance
    ) -> None:
        self._state = state
        self._opaque = opaque
        self._expiry = expiry
        self._advance = advance
        self._unreadable: list[Unreadable] = []
        self._notes: list[str] = []
        self.problems: list[str] = []

    @property
    def remarks(self) -> list[str]:
        return [*self.problems, *self._notes, *summarize(self._unreadable)]

    def print_all(self, snapshot: Snapshot, operators: list[OperatorSnapshot]) -> None:
        found = self._state is None
        for operator in operators:
            try:
                if self._state is None or operator.has_state(self._state):
                    found = True
                    self.print(operator)
            except BrokenPipeError:
                raise
            except DstlError as error:
                self.problems.append(f"Operator {operator.label!r} cannot be dumped: {error}")
        if self._state is not None and not found and not self.problems:
            require_state(snapshot, operators, self._state)

    def print(self, operator: OperatorSnapshot) -> None:
        reader = operator.entries(self._state)
        reader.on_progress = self._advance
        by_columns = self._expiry is None and operator.python is None
        if by_columns and are_read_by_kernels(operator.keyed_size):
            self._print_by_columns(operator, reader)
        else:
            write_json(self._lines(iter(reader)))
        if self._opaque:
            shown = [each.entry for each in reader.unreadable if each.entry is not None]
            write_json(entry.to_line() for entry in shown)
            self._unreadable += [each for each in reader.unreadable if each.entry is None]
        else:
            self._unreadable += reader.unreadable
        if operator.keyed_handles and (found := operator.key_type) is not None and found.note:
            self._notes.append(f"operator {operator.label!r}: {found.note}")

    def _print_by_columns(self, operator: OperatorSnapshot, reader: EntryReader) -> None:
        # Loads Arrow and the compiler, which small state does not pay for.
        from dstl_core.savepoint.check.column_lines import ColumnLines

        columns = ColumnLines(operator, self._state)
        for handle, key_groups in reader.keyed_ranges():
            lines = columns.lines(handle, key_groups)
            if lines is None:
                write_json(self._lines(reader.readable_range(handle, key_groups)))
            else:
                write_lines(lines)
        write_json(self._lines(reader.readable_rest()))

    def _lines(self, entries: Iterator[Entry]) -> Iterator[dict[str, Any]]:
        for entry in entries:
            shown: Entry | None = entry
            if self._expiry is not None and isinstance(entry, KeyedEntry):
                shown = self._expiry.without_expired(entry)
            if shown is not None:
                yield shown.to_line()
