"""What the browser shows of a snapshot: places, texts and pages of entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from dstl_core.cli.inspect_command import operator_lines, summary_lines
from dstl_core.cli.output import to_json
from dstl_core.display import cut_text, printable, printable_lines
from dstl_core.errors import ConfigError, DstlError
from dstl_core.savepoint.access.key_lookup import KeyLookup
from dstl_core.savepoint.access.key_text import key_of_operator
from dstl_core.savepoint.access.summary import operator_summary, snapshot_summary
from dstl_core.savepoint.read.entries import Entry, Unreadable, summarize
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot

PAGE = 200
"""Entries to read at once."""
_FIRST = ("state", "key", "value", "ts")
_PLACE = ("op", "kind", "state", "service")
_LONGEST_CELL = 40
_LONGEST_DETAIL = 20_000
"""Characters of an entry that are shown."""


@dataclass(frozen=True)
class BrowsedItem:
    """What is selected: the snapshot, an operator, or one of its states."""

    operator: OperatorSnapshot | None = None
    state: str | None = None


class EntrySource(Protocol):
    """Entries that are read while they are iterated, and what of them only Java can read."""

    unreadable: list[Unreadable]

    def __iter__(self) -> Iterator[Entry]: ...


class Pages:
    """The entries of a place, or of a key, as far as they were read."""

    def __init__(self, sources: list[EntrySource]) -> None:
        self._sources = sources
        self._entries = (entry for source in sources for entry in source)
        self.lines: list[dict[str, Any]] = []
        self.is_done = False
        self._problem: DstlError | OSError | None = None

    def read(self, count: int = PAGE) -> list[dict[str, Any]]:
        """Reads on, and returns the new lines of ``dstl dump``.

        Raises:
            DstlError: The next entry is damaged. Entries before it are returned first, and each
                later call raises again, since those behind it cannot be read.
            OSError: The same for an entry that could not be read.
        """
        lines: list[dict[str, Any]] = []
        try:
            if self._problem is None:
                self._read_into(lines, count)
        except (DstlError, OSError) as error:
            self._problem = error
        if self._problem is not None and not lines:
            raise self._problem
        self.lines += lines
        return lines

    def _read_into(self, lines: list[dict[str, Any]], count: int) -> None:
        for entry in self._entries:
            lines.append(entry.to_line())
            if len(lines) == count:
                return
        self.is_done = True

    @property
    def status(self) -> str:
        """How many entries were read, and what cannot be."""
        counted = f"{len(self.lines):,} entries" + ("" if self.is_done else ", and more")
        hidden = [part for source in self._sources for part in source.unreadable]
        problems = [] if self._problem is None else [str(self._problem)]
        return ". ".join([counted, *summarize(hidden), *problems])


def pages_of(place: BrowsedItem) -> Pages:
    """The entries of a state."""
    assert place.operator is not None, "a state is one of an operator"
    return Pages([place.operator.entries(place.state)])


def pages_of_key(snapshot: Snapshot, place: BrowsedItem, text: str) -> Pages:
    """The entries of a key: of the state, of the operator, or of all operators.

    Raises:
        ConfigError: The text is a key of none of them.
    """
    operators = [place.operator] if place.operator is not None else snapshot.operators
    keyed = [operator for operator in operators if operator.key_type is not None]
    if not keyed:
        raise ConfigError("There is no keyed state here.")
    stored = None if place.state is None else keyed[0].stored_name(place.state)
    lookups: list[EntrySource] = []
    problem: ConfigError | None = None
    for operator in keyed:
        try:
            lookups.append(KeyLookup(operator, [key_of_operator(operator, text)], stored))
        except ConfigError as error:
            problem = error
    if problem is not None and not lookups:
        raise problem
    return Pages(lookups)


def text_of(snapshot: Snapshot, place: BrowsedItem) -> str:
    """What ``dstl inspect`` says of a place."""
    if place.operator is None:
        lines = summary_lines(snapshot_summary(snapshot))
    elif place.state is None:
        lines = operator_lines(operator_summary(place.operator))
    else:
        return _state_text(place.operator, place.state)
    texts = (line if isinstance(line, str) else line[0] for line in lines)
    return "\n".join(printable(text) for text in texts)


def _state_text(operator: OperatorSnapshot, name: str) -> str:
    kinds = [
        (info.kind, info.type)
        for info in [*operator.states, *operator.operator_states]
        if info.name == name
    ]
    lines = [f"{operator.label} / {name}"]
    lines += [f"{kind} of {cut_text(type_name)}" for kind, type_name in kinds]
    if operator.key_type is not None:
        lines.append(f"key: {cut_text(operator.key_type.serializer.type_name)}")
    return "\n".join(map(printable, lines))


def states_of(operator: OperatorSnapshot) -> list[tuple[str, str]]:
    """The names and kinds of an operator's states."""
    infos = [*operator.states, *operator.operator_states]
    return [(info.name, info.kind) for info in infos]


def columns_of(lines: list[dict[str, Any]]) -> list[str]:
    """The columns of a table of entries: key and value first, without what is the same or empty
    everywhere.
    """
    names = dict.fromkeys(_FIRST) | {name: None for line in lines for name in line}
    states = {line.get("state", line.get("service")) for line in lines}
    left_out = _PLACE if len(states) < 2 else ()
    return [
        name
        for name in names
        if name not in left_out and any(line.get(name) is not None for line in lines)
    ]


def cells(line: dict[str, Any], columns: list[str]) -> list[str]:
    """A line as cells: texts as they are, other values as JSON."""
    return [_cell(line.get(name)) if name in line else "" for name in columns]


def _cell(value: object) -> str:
    text = printable(value if isinstance(value, str) else to_json(value))
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}.."


def detail(line: dict[str, Any]) -> str:
    """An entry as JSON on several lines."""
    text = printable_lines(to_json(line, 1))
    if len(text) <= _LONGEST_DETAIL:
        return text
    return f"{text[:_LONGEST_DETAIL]}.. ({len(text):,} characters)"
