"""The one parser of names that people write: ``OP``, ``OP/STATE``, ``OLD=NEW`` and their like.

A uid may hold ``/`` and ``=``, and so may a state, a file or a path. So a name is cut at every
sign, and the cut counts whose parts are in the snapshot. If two cuts fit, the name is ambiguous,
and a hash in place of the operator makes it clear: ``hash:4f4e08edb113719daae8771fa33f994e/count``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from dstl_core.cached_property import cached_property
from dstl_core.errors import ConfigError
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot

Fits = Callable[[str, str], bool]
Key = TypeVar("Key")
Value = TypeVar("Value")
_ROOT = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
_NAMES_SHOWN = 20
"""Names that a message lists."""


def cuts(text: str, sign: str) -> Iterator[tuple[str, str]]:
    """Every way to cut a text at a sign into two parts that are not empty."""
    for at, character in enumerate(text):
        if character == sign and 0 < at < len(text) - 1:
            yield text[:at], text[at + 1 :]


def cut_pair(option: str, text: str, form: str, fits: Fits) -> tuple[str, str]:
    """Cuts ``LEFT=RIGHT`` where both parts fit. If no cut fits, the first one counts, and what asks
    for the parts says which of them is missing.

    Args:
        option: What messages call the value.
        text: The value.
        form: Its form, for messages.
        fits: Whether two parts are what they should be.

    Raises:
        ConfigError: There is no cut, or several fit.
    """
    every = list(cuts(text, "="))
    if not every:
        raise ConfigError(f"{option} is wrong: expected {form}, got {text!r}.")
    fitting = [each for each in every if fits(*each)]
    if len(fitting) > 1:
        raise _ambiguous(option, text, [f"{left!r} and {right!r}" for left, right in fitting])
    return (fitting or every)[0]


def cut_pairs(option: str, texts: Iterable[str] | None, form: str, fits: Fits) -> dict[str, str]:
    """Cuts several values ``LEFT=RIGHT``.

    Raises:
        ConfigError: A value has another form or is ambiguous, or a left part is there twice.
    """
    pairs: dict[str, str] = {}
    for text in texts or ():
        left, right = cut_pair(option, text, form, fits)
        put_once(option, pairs, left, repr(left), right)
    return pairs


def put_once(option: str, values: dict[Key, Value], key: Key, shown: str, value: Value) -> None:
    """Adds the value of what an option names, in whatever way it names it.

    Raises:
        ConfigError: It has another value already.
    """
    if key in values:
        raise ConfigError(
            f"{option} is given twice for {shown}: {values[key]!r} and {value!r}; leave one of "
            f"them out."
        )
    values[key] = value


def is_last(_: str, right: str) -> bool:
    """Cuts at the last ``=``: the value is a type, a number or a duration, which holds none."""
    return "=" not in right


def relocations(option: str, texts: Iterable[str] | None) -> dict[str, str]:
    """Old and new places of files. ``=`` may stand in folders, as in ``dt=2026-11-25``; then the
    new place starts with ``/`` or a scheme.

    Raises:
        ConfigError: See ``cut_pairs``.
    """
    return cut_pairs(option, texts, "OLD=NEW", lambda _, new: _ROOT.match(new) is not None)


def lines_of_file(option: str, file: str | None, what: str) -> list[str]:
    """The lines of the file that an option names; none without a file.

    Raises:
        ConfigError: The file cannot be read, or is empty.
    """
    if file is None:
        return []
    try:
        with open(file, encoding="utf-8") as lines:
            text = lines.read()  # ends of lines of an editor; a key may hold other separators
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The file of {what}s {file!r} cannot be read ({error}); give a file in UTF-8 with a "
            f"{what} a line ({option})."
        ) from error
    if not text:
        raise ConfigError(
            f"The file of {what}s {file!r} is empty; give a {what} a line ({option})."
        )
    return text.removesuffix("\n").split("\n")


@dataclass(frozen=True)
class OperatorOrState:
    """An operator, or one of its states. ``state`` may be one that the operator lacks."""

    operator: OperatorSnapshot
    state: str | None = None

    def __str__(self) -> str:
        label = self.operator.label
        return f"operator {label!r}" if self.state is None else f"{label!r}, state {self.state!r}"


class SnapshotNames:
    """Finds operators and states of a snapshot by the names that people write.

    An operator is its uid, its hash or its name; the prefixes ``uid:``, ``hash:`` and ``name:``
    select one of these.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[OperatorID, frozenset[str]] = {}

    def keys_of_files(self, option: str, texts: Iterable[str]) -> dict[str, list[str]]:
        """The keys of ``OP=FILE``, or of ``FILE`` for each operator with keyed state, by
        ``hash:..``. Timers on the heap may be all that an operator has.
        """
        keys: dict[str, list[str]] = {}
        for text in texts:
            fitting = [(name, file) for name, file in cuts(text, "=") if self.is_operator(name)]
            name, file = (fitting or [("", text)])[0]
            lines = lines_of_file(option, file, "key")
            for operator in [self._snapshot[name]] if name else self._snapshot.operators:
                if not (name or operator.keyed_handles or operator.with_timer_queues.keyed_handles):
                    continue
                keys.setdefault(f"hash:{operator.operator_id.hex}", []).extend(lines)
        return keys

    def is_operator(self, name: str) -> bool:
        return self._operator(name) is not None

    def text_of(self, operator: OperatorSnapshot, state: str | None = None) -> str:
        """A text that selects an operator or its state in every option, for advice: the label if
        nothing else in the snapshot has such a name, and the hash otherwise.
        """
        text = operator.label if state is None else f"{operator.label}/{state}"
        whole = self._operator(text)
        places = [*([] if whole is None else [OperatorOrState(whole)]), *self._states(text)]
        if state is not None:
            places += self._of_any_operator(text)
        if places == [OperatorOrState(operator, state)]:
            return text
        by_hash = f"hash:{operator.operator_id.hex}"
        return by_hash if state is None else f"{by_hash}/{state}"

    def renaming_text(self, operator: OperatorSnapshot, new: str) -> str:
        """The text ``OLD=NEW`` that ``renaming`` reads as these two, for advice."""
        text = f"{operator.label}={new}"
        fitting = [cut for cut in cuts(text, "=") if self.is_operator(cut[0])]
        if fitting == [(operator.label, new)] and self._operator(operator.label) is operator:
            return text
        return f"hash:{operator.operator_id.hex}={new}"

    def operator_or_state(self, option: str, name: str) -> OperatorOrState:
        """The operator or the state that ``OP`` or ``OP/STATE`` names.

        Raises:
            ConfigError: The name is ambiguous.
            NoSuchOperatorError: No operator has such a name.
        """
        whole = self._operator(name)
        fitting = [] if whole is None else [OperatorOrState(whole)]
        fitting += self._states(name)
        return self._only(option, name, fitting) or self._nearest(name)

    def state(self, option: str, name: str) -> OperatorOrState:
        """The state that ``OP/STATE`` names. If the operator lacks it, what asks for it says so.

        Raises:
            ConfigError: The name has another form, or is ambiguous.
            NoSuchOperatorError: No operator has such a name.
        """
        if not list(cuts(name, "/")):
            raise ConfigError(f"{option} is wrong: expected OP/STATE, got {name!r}.")
        return self._only(option, name, self._states(name)) or self._nearest(name)

    def is_state(self, name: str) -> bool:
        """Whether ``states`` finds something, or finds too much."""
        return bool(self._states(name) or self._of_any_operator(name))

    def states(
        self, option: str, name: str, form: str = "STATE or OP/STATE"
    ) -> list[OperatorOrState]:
        """The states that ``STATE`` or ``OP/STATE`` names: those of every operator, or of one.

        Args:
            option: What messages call the name.
            name: The name.
            form: How names are written, for messages.

        Raises:
            ConfigError: The name is ambiguous, or no state has it. The message lists the states.
        """
        of_one, of_any = self._states(name), self._of_any_operator(name)
        if of_any and of_one:
            every = [f"state {name!r}", *map(str, of_one)]
            raise _ambiguous(option, name, every)
        if (place := self._only(option, name, of_one)) is not None:
            return [place]
        if of_any:
            return of_any
        known = (
            f"{operator.label}/{state}"
            for operator in self._snapshot.operators
            for state in self._names_in(operator)
        )
        raise self._unknown(option, f"no state has the name {name!r}", known, form)

    def states_among(
        self, option: str, name: str, operators: Sequence[OperatorSnapshot]
    ) -> list[OperatorOrState]:
        """The states that ``STATE`` of some operators, or ``OP/STATE`` of any one, names. If no
        operator has it, ``OP/STATE`` is a state that its operator lacks.

        Raises:
            ConfigError: The name is ambiguous.
        """
        of_own = [
            OperatorOrState(operator, name)
            for operator in operators
            if any(info.name == name for info in operator.states_or_none())
        ]
        of_one = self._states(name)
        if of_own and of_one:
            raise _ambiguous(option, name, [f"state {name!r}", *map(str, of_one)])
        self._only(option, name, of_one)
        if of_own or of_one:
            return of_own or of_one
        is_of_one = any(self.is_operator(left) for left, _ in cuts(name, "/"))
        return [self._nearest(name)] if is_of_one else []

    def split_key(
        self, option: str, name: str, splits: Mapping[tuple[OperatorID, str], Value]
    ) -> tuple[OperatorID, str]:
        """The split that ``SPLIT`` or ``OP:SPLIT`` names, of those of all sources.

        Raises:
            ConfigError: The name is ambiguous, or no split has it. The message lists the splits.
        """
        fitting = [key for key in splits if key[1] == name]
        for left, right in cuts(name, ":"):
            operator = self._operator(left)
            if operator is not None:
                key = operator.operator_id, right
                fitting += [key] if key in splits and key not in fitting else []
        if len(fitting) == 1:
            return fitting[0]
        labels = {each.operator_id: each.label for each in self._snapshot.operators}
        if fitting:
            every = [f"split {split!r} of {labels[op]!r}" for op, split in fitting]
            raise _ambiguous(option, name, every, form="OP:SPLIT")
        known = (f"{labels[op]}:{split}" for op, split in splits)
        problem = f"no source has the split {name!r}"
        raise self._unknown(option, problem, known, "SPLIT or OP:SPLIT")

    def _unknown(self, option: str, problem: str, known: Iterable[str], form: str) -> ConfigError:
        """The error for a name of nothing; it lists the first names that the snapshot has."""
        names = sorted(known)
        more = ", .." if len(names) > _NAMES_SHOWN else ""
        shown = ", ".join(map(repr, names[:_NAMES_SHOWN])) or "none"
        return ConfigError(
            f"{option} is wrong: {problem}; the snapshot has: {shown}{more}; name one as {form}.",
            location=str(self._snapshot.folder),
        )

    def places(self, option: str, texts: Iterable[str]) -> list[tuple[str, str]]:
        """The hash of an operator and the state for each ``OP/STATE``."""
        every = [self.state(option, name) for name in texts]
        return [(f"hash:{each.operator.operator_id.hex}", each.state or "") for each in every]

    def renaming(
        self, option: str, texts: Iterable[str] | None, form: str = "OLD=NEW"
    ) -> dict[str, str]:
        """Old and new names of operators, in the form that messages show."""
        return cut_pairs(option, texts, form, lambda old, _: self.is_operator(old))

    def merging(self, option: str, texts: Iterable[str] | None) -> dict[str, str]:
        """Operators and those that take their states: ``OP=INTO``."""

        def fits(name: str, into: str) -> bool:
            return self.is_operator(name) and self.is_operator(into)

        return cut_pairs(option, texts, "OP=INTO", fits)

    def renaming_states(
        self, option: str, texts: Iterable[str], form: str = "OP/STATE=NEW"
    ) -> dict[tuple[str, str], str]:
        """States and their new names, or what else ``form`` says. Operators are named by hash."""
        new_names: dict[tuple[str, str], str] = {}
        for place, new in self._states_and_news(option, texts, form):
            put_once(option, new_names, place, f"state {place[1]!r}", new)
        return new_names

    def splitting(self, option: str, texts: Iterable[str]) -> dict[tuple[str, str], list[str]]:
        """States of each operator and new uid: ``OP/STATE=NEW``. Operators are named by hash."""
        states: dict[tuple[str, str], list[str]] = {}
        for (operator, state), new in self._states_and_news(option, texts, "OP/STATE=NEW"):
            states.setdefault((operator, new), []).append(state)
        return states

    def _states_and_news(
        self, option: str, texts: Iterable[str], form: str
    ) -> Iterator[tuple[tuple[str, str], str]]:
        for text in texts:
            name, new = cut_pair(option, text, form, lambda name, _: bool(self._states(name)))
            if not list(cuts(name, "/")):
                raise ConfigError(f"{option} is wrong: expected {form}, got {text!r}.")
            [place] = self.places(option, [name])
            yield place, new

    def _operator(self, name: str) -> OperatorSnapshot | None:
        operators = self._snapshot.named(name)
        return operators[0] if len(operators) == 1 else None

    def _states(self, name: str) -> list[OperatorOrState]:
        """Every reading as an operator and one of its states, each state once."""
        places: dict[tuple[str, str], OperatorOrState] = {}
        for left, right in cuts(name, "/"):
            operator = self._operator(left)
            if operator is not None and right in self._names_in(operator):
                places[operator.operator_id.hex, right] = OperatorOrState(operator, right)
        return list(places.values())

    def _names_in(self, operator: OperatorSnapshot) -> frozenset[str]:
        """The states of an operator; none if their headers are damaged, which readers report."""
        names = self._known.get(operator.operator_id)
        if names is None:
            names = frozenset(info.name for info in operator.states_or_none())
            self._known[operator.operator_id] = names
        return names

    def _of_any_operator(self, name: str) -> list[OperatorOrState]:
        return [OperatorOrState(operator, name) for operator in self._having.get(name, ())]

    @cached_property
    def _having(self) -> Mapping[str, list[OperatorSnapshot]]:
        # Advice names the states of every operator, so a search would be quadratic.
        operators: dict[str, list[OperatorSnapshot]] = {}
        for operator in self._snapshot.operators:
            for state in self._names_in(operator):
                operators.setdefault(state, []).append(operator)
        return operators

    def _only(
        self, option: str, name: str, fitting: list[OperatorOrState]
    ) -> OperatorOrState | None:
        if len(fitting) > 1:
            raise _ambiguous(option, name, [str(each) for each in fitting])
        return fitting[0] if fitting else None

    def _nearest(self, name: str) -> OperatorOrState:
        """The operator with the longest name before a slash, and a state that it lacks."""
        for left, right in reversed(list(cuts(name, "/"))):
            operator = self._operator(left)
            if operator is not None:
                return OperatorOrState(operator, right)
        return OperatorOrState(self._snapshot[name])


class ValuesOfStates(Generic[Value]):
    """Values that people give to states by ``STATE`` or ``OP/STATE``, which goes before ``STATE``.

    Args:
        names: The parser of the names.
        option: What messages call a name.
        form: How names are written, for messages.
    """

    def __init__(self, names: SnapshotNames, option: str, form: str = "STATE or OP/STATE") -> None:
        self._names, self._option, self._form = names, option, form
        self._of_all: dict[str, Value] = {}
        self._of_one: dict[tuple[OperatorID, str], Value] = {}

    def put(self, name: str, value: Value) -> None:
        """Gives a value to the states of a name.

        Raises:
            ConfigError: The name is ambiguous, no state has it, or the state has a value already.
        """
        places = self._names.states(self._option, name, self._form)
        if all(place.state == name for place in places):
            self._of_all[name] = value
            return
        for place in places:
            key = place.operator.operator_id, place.state or ""
            put_once(self._option, self._of_one, key, str(place), value)

    def get(self, operator_id: OperatorID, state: str) -> Value | None:
        """The value of a state; None if it has none."""
        return self._of_one.get((operator_id, state), self._of_all.get(state))


def _ambiguous(option: str, text: str, readings: list[str], form: str | None = None) -> ConfigError:
    example = "" if form is None else f" in {form}"
    return ConfigError(
        f"{option} is ambiguous: {text!r} is {', or '.join(readings)}; name the operator by its "
        f"hash{example} (hash:.., dstl inspect shows it)."
    )
