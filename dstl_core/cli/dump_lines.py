"""The lines of ``dstl dump``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dstl_core.cli.options import duration_ms, require_state
from dstl_core.cli.output import Advance, complain, progress, to_json, write_lines
from dstl_core.clock import SystemClock
from dstl_core.errors import ConfigError, DstlError
from dstl_core.savepoint.access.unit_pool import run_units
from dstl_core.savepoint.access.units import Jobs, Unit, jobs_for, units_of
from dstl_core.savepoint.read.entries import Entry, Expiry, KeyedEntry, UnreadableCounts
from dstl_core.savepoint.read.entry_reader import EntryReader
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.state.restore.kernel_sizes import SMALL_BYTES, are_read_by_kernels

if TYPE_CHECKING:
    from dstl_core.savepoint.access.column_lines import ColumnLines
from dstl_core.savepoint.read.snapshot_names import lines_of_file


def dump_lines(
    snapshot: Snapshot,
    operators: list[OperatorSnapshot],
    state: str | None,
    *,
    opaque: bool,
    expiry: Expiry | None,
    named: bool,
    jobs: Jobs = 1,
) -> bool:
    """Prints the entries of operators. False if one cannot be read, while others may be.

    Args:
        snapshot: The snapshot of the operators.
        operators: What to print.
        state: Only this state.
        opaque: Whether values that only Java can read are printed.
        expiry: Leaves out expired values.
        named: Whether the user named the operators. The error of a single one is raised as it is.
        jobs: Number of processes that read keyed state; None: all cores if the state is large.

    Raises:
        NoSuchStateError: None of the operators has the state.
    """
    total = sum(operator.state.state_size for operator in operators)
    with progress("reading", total, prints_lines=True) as advance:
        printer = _Printer(state, opaque, expiry, jobs, advance)
        if named and len(operators) == 1:
            printer.print(operators[0])
        else:
            printer.print_all(snapshot, operators)
    for sentence in printer.remarks:
        complain(sentence)
    return not printer.problems


def dump_keys(
    snapshot: Snapshot,
    operators: list[OperatorSnapshot],
    state: str | None,
    texts: list[str],
    *,
    opaque: bool,
    expiry: Expiry | None,
) -> None:
    """Prints the entries and timers of some keys, without a scan of the state.

    Args:
        snapshot: The snapshot of the operators.
        operators: Where to look; those whose keys are of another type have none of them.
        state: Only this state.
        texts: The keys: a string as it is, other keys as JSON.
        opaque: Whether values that only Java can read are printed.
        expiry: Leaves out expired values.

    Raises:
        ConfigError: A text is a key of none of the operators.
        NoSuchStateError: None of the operators has the state.
    """
    # Loads Arrow, which parses keys.
    from dstl_core.savepoint.access.key_lookup import KeyLookup
    from dstl_core.savepoint.access.key_text import key_of_operator

    if state is not None:
        require_state(snapshot, operators, state)
    unreadable = UnreadableCounts()
    fitting: set[str] = set()
    printed = 0
    problem: ConfigError | None = None
    for operator in operators:
        if operator.key_type is None or (state is not None and not operator.has_state(state)):
            continue
        keys = []
        for text in texts:
            try:
                keys.append(key_of_operator(operator, text))
                fitting.add(text)
            except ConfigError as error:
                problem = error
        stored = None if state is None else operator.stored_name(state)
        lookup = KeyLookup(operator, keys, stored)
        for line in map(_line, _shown(lookup, expiry)):
            write_lines([line])
            printed += 1
        for part in lookup.unreadable:
            if opaque and part.entry is not None:
                write_lines([_line(part.entry)])
                printed += 1
            else:
                unreadable.add(part)
    if problem is not None and fitting != set(texts):
        raise problem
    for sentence in unreadable.sentences():
        complain(sentence)
    if not printed:
        complain("nothing is stored under these keys")


def _shown(entries: Iterable[Entry], expiry: Expiry | None) -> Iterator[Entry]:
    """Entries without expired values."""
    for entry in entries:
        shown: Entry | None = entry
        if expiry is not None and isinstance(entry, KeyedEntry):
            shown = expiry.without_expired(entry)
        if shown is not None:
            yield shown


def keys_of(keys: list[str] | None, file: str | None) -> list[str]:
    """The values of ``--key``, and the lines of ``--key-file``.

    Raises:
        ConfigError: The file cannot be read, or is empty.
    """
    return [*(keys or []), *lines_of_file("--key-file", file, "key")]


def expiry_of(text: str | None) -> Expiry | None:
    """The value of ``--hide-expired``.

    Raises:
        ConfigError: It has another form.
    """
    if text is None:
        return None
    return Expiry(duration_ms("--hide-expired", text), SystemClock().now_ms())


@dataclass
class _Dumped:
    """The lines of some key groups, in parts, and what could not be read of them."""

    lines: Iterable[str]
    opaque: list[str]
    unreadable: UnreadableCounts


class _Dump:
    """Formats ranges of one operator; it keeps nothing of one for the next."""

    def __init__(
        self, operator: OperatorSnapshot, state: str | None, opaque: bool, expiry: Expiry | None
    ) -> None:
        self._operator = operator
        self.reads_all_of = operator if state is None else None
        self._state = state
        self._opaque = opaque
        self._expiry = expiry
        is_plain = expiry is None and operator.forms is None
        self._columns: ColumnLines | None = None
        if is_plain and are_read_by_kernels(operator.keyed_size):
            # Loads Arrow and the compiler, which small state does not pay for.
            from dstl_core.savepoint.access.column_lines import ColumnLines

            self._columns = ColumnLines(operator, state)

    def is_large(self, unit: Unit) -> bool:
        """Whether a unit is printed in pieces: what it has is too large to be held."""
        if self._columns is None:
            return False
        from dstl_core.savepoint.read.stored_records import is_large

        return is_large(self._operator, unit.key_groups, self._operator.keyed_handles[unit.handle])

    def __call__(self, unit: Unit) -> _Dumped:
        handle = self._operator.keyed_handles[unit.handle]
        if self._columns is not None and self.is_large(unit):
            pieces = self._columns.pieces(handle, unit.key_groups)
            if pieces is not None:
                return _Dumped(pieces, [], UnreadableCounts())
        if self._columns is not None and unit.size >= SMALL_BYTES:
            lines = self._columns.lines(handle, unit.key_groups)
            if lines is not None:
                return _Dumped(lines, [], UnreadableCounts())
        reader = self._operator.entries(self._state)
        entries = reader.readable_range(handle, unit.key_groups)
        return self._dumped(["".join(map(_line, _shown(entries, self._expiry)))], reader)

    def rest(self) -> _Dumped:
        """The entries outside ranges: timers in raw keyed state, and operator state."""
        reader = self._operator.entries(self._state)
        return self._dumped(
            ["".join(map(_line, _shown(reader.readable_rest(), self._expiry)))], reader
        )

    def _dumped(self, lines: list[str], reader: EntryReader) -> _Dumped:
        dumped = _Dumped(lines, [], UnreadableCounts())
        for part in reader.unreadable:
            if self._opaque and part.entry is not None:
                dumped.opaque.append(_line(part.entry))
            else:
                dumped.unreadable.add(part)
        return dumped


def _line(entry: Entry) -> str:
    return to_json(entry.to_line()) + "\n"


class _Printer:
    """Prints operators; ``remarks`` are the sentences for stderr."""

    def __init__(
        self,
        state: str | None,
        opaque: bool,
        expiry: Expiry | None,
        jobs: Jobs,
        advance: Advance,
    ) -> None:
        self._state = state
        self._opaque = opaque
        self._expiry = expiry
        self._jobs = jobs
        self._advance = advance
        self._unreadable = UnreadableCounts()
        self._notes: list[str] = []
        self.problems: list[str] = []

    @property
    def remarks(self) -> list[str]:
        return [*self.problems, *self._notes, *self._unreadable.sentences()]

    def print_all(self, snapshot: Snapshot, operators: list[OperatorSnapshot]) -> None:
        has_state = self._state is None
        for operator in operators:
            try:
                if self._state is None or operator.has_state(self._state):
                    has_state = True
                    self.print(operator)
            except BrokenPipeError:
                raise
            except DstlError as error:
                self.problems.append(f"Operator {operator.label!r} cannot be dumped: {error}")
        if self._state is not None and not has_state and not self.problems:
            require_state(snapshot, operators, self._state)

    def print(self, operator: OperatorSnapshot) -> None:
        if self._state is not None:
            operator.state_info(self._state)
        dump = _Dump(operator, self._state, self._opaque, self._expiry)
        opaque: list[str] = []
        processes = jobs_for(operator.keyed_size, self._jobs)
        units = units_of(operator)
        # Another process would have to hold what it sends.
        apart = [processes != 1 and dump.is_large(unit) for unit in units]
        others = [unit for unit, own in zip(units, apart, strict=True) if not own]
        with closing(run_units(dump, others, processes)) as results:
            for unit, is_apart in zip(units, apart, strict=True):
                opaque += self._print(dump(unit) if is_apart else next(results)[1])
                self._advance(unit.size)
        opaque += self._print(dump.rest())
        write_lines(opaque)
        if operator.keyed_handles and (key_type := operator.key_type) is not None and key_type.note:
            self._notes.append(f"operator {operator.label!r}: {key_type.note}")

    def _print(self, part: _Dumped) -> list[str]:
        write_lines(part.lines)
        self._unreadable.merge(part.unreadable)
        return part.opaque
