"""How a changed job takes over aggregates and states that it declares otherwise."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import Any, Literal

from dstl_core.errors import ConfigError


@dataclass(frozen=True)
class StateChanges:
    """What ``migrate`` of a job does with names. A name has one change.

    Args:
        rename: Old names of aggregates, or of states of a function, to new ones.
        drop: Names whose state goes.
        start_empty: Names that begin anew, with another definition or another type.
        backfill: Aggregates that get the values of all inputs until now.
        rekey: New keys by uid of the operator, as expressions over ``key``, the old one.

    Raises:
        ConfigError: A name is no text, or stands twice.
    """

    rename: Mapping[str, str] = field(default_factory=dict)
    drop: Sequence[str] = ()
    start_empty: Sequence[str] = ()
    backfill: Sequence[str] = ()
    rekey: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.rename, Mapping):
            raise ConfigError(
                f"rename is wrong: expected old names to new ones, got {self.rename!r}."
            )
        if not isinstance(self.rekey, Mapping) or not all(
            isinstance(text, str) for pair in self.rekey.items() for text in pair
        ):
            raise ConfigError(
                f"rekey is wrong: expected uids of operators to expressions over key, got "
                f"{self.rekey!r}."
            )
        for option in ("drop", "start_empty", "backfill"):
            names = getattr(self, option)
            if isinstance(names, str) or not isinstance(names, Iterable):
                raise ConfigError(f"{option} is wrong: expected a list of names, got {names!r}.")
        names = [*self.rename, *self.rename.values(), *self.drop, *self.anew]
        for name in names:
            if not isinstance(name, str):
                raise ConfigError(f"A name is text: expected a name, got {name!r}.")
            if names.count(name) > 1:
                self._check_swap(name)
                raise ConfigError(
                    f"The name {name!r} stands twice in rename, drop, start_empty and backfill: "
                    f"expected one change for a name."
                )

    def _check_swap(self, name: str) -> None:
        """Refuses a name that one value leaves and another one gets."""
        others = [old for old, new in self.rename.items() if new == name]
        if name in self.rename and others:
            raise ConfigError(
                f"The name {name!r} would pass from one value to another: rename, or several "
                f"changes together, makes {self.rename[name]!r} of {name!r} and {name!r} of "
                f"{others[0]!r}; give {others[0]!r} a name that nothing had before."
            )

    @property
    def anew(self) -> list[str]:
        """Names that begin anew."""
        return [*self.start_empty, *self.backfill]

    def to_json(self) -> dict[str, Any]:
        """The changes as ``of`` takes them; what is empty is left out."""
        every = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: dict(value) if isinstance(value, Mapping) else [*value]
            for name, value in every.items()
            if value
        }

    def followed_by(self, later: StateChanges) -> StateChanges:
        """These changes and later ones, as one change of the state before both.

        What began anew, or went, between both has no values in that state. Later changes may repeat
        earlier ones.

        Raises:
            ConfigError: A name had two meanings between, or the key changed twice.
        """
        rename: dict[str, str] = {}
        drop, anew = [*self.drop], self._anew_by_option
        for old, new in self.rename.items():
            if new in later.drop or new in later.anew:
                drop.append(old)
            elif (newer := later.rename.get(new, new)) != old:
                rename[old] = newer  # a name that is taken back has no change
        for name in self.anew:
            new = later.rename.get(name, name)
            if new != name or name in later.drop:
                drop.append(name)
                option = anew.pop(name)
                if name not in later.drop:
                    anew[new] = option
        known = {*self.rename, *self.rename.values(), *self.drop, *self.anew}
        added = {old: new for old, new in later.rename.items() if old not in known}
        rename |= {old: new for old, new in added.items() if new not in {*rename.values(), *anew}}
        anew |= later._anew_by_option
        drop += [name for name in later.drop if name not in known]
        kept = {*rename, *rename.values(), *anew}
        return StateChanges(
            rename,
            [name for name in dict.fromkeys(drop) if name not in kept],
            [name for name, option in anew.items() if option == "start_empty"],
            [name for name, option in anew.items() if option == "backfill"],
            self._rekeyed_by(later),
        )

    @property
    def _anew_by_option(self) -> dict[str, str]:
        return dict.fromkeys(self.start_empty, "start_empty") | dict.fromkeys(
            self.backfill, "backfill"
        )

    def _rekeyed_by(self, later: StateChanges) -> dict[str, str]:
        for uid, expression in later.rekey.items():
            before = self.rekey.get(uid, expression)
            if before != expression:
                raise ConfigError(
                    f"The operator {uid!r} has got another key twice, by {before!r} and by "
                    f"{expression!r}: expected one expression for both."
                )
        return {**self.rekey, **later.rekey}

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> StateChanges:
        """The changes of a pipeline, as a mapping of the fields.

        Raises:
            ConfigError: They are no mapping, have another field, or a name is wrong.
        """
        known = [each.name for each in fields(cls)]
        if not isinstance(options, Mapping) or not set(options) <= set(known):
            raise ConfigError(
                f"evolve is wrong: expected some of {', '.join(known)}, got {options!r}."
            )
        return cls(**options)


Change = Literal[
    "kept", "re-keyed", "added", "backfilled", "renamed", "widened", "begins anew", "dropped"
]
"""What becomes of an aggregate, or of a state of a function."""


@dataclass(frozen=True)
class PlannedChange:
    """What becomes of an aggregate, or of a state of a function.

    Args:
        operator: The uid of its operator.
        name: Its name, which it has in the job, or had.
        change: What becomes of it.
        before: The names and types of its states before.
        after: The names and types of its states in the job.
    """

    operator: str
    name: str
    change: Change
    before: str
    after: str


@dataclass(frozen=True)
class ChangePlan:
    """What ``migrate`` of a job would do.

    Args:
        changes: What becomes of each aggregate and state.
        inputs: How many inputs a backfill would apply again.
    """

    changes: tuple[PlannedChange, ...] = ()
    inputs: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be committed."""
        return all(planned.change == "kept" for planned in self.changes)

    @property
    def losses(self) -> list[PlannedChange]:
        """What takes values away."""
        return [planned for planned in self.changes if planned.change in ("dropped", "begins anew")]

    @property
    def digest(self) -> str:
        """A text that two plans share only if they make the same changes."""
        texts = repr([astuple(planned) for planned in self.changes])
        return hashlib.sha256(texts.encode("utf-8", "backslashreplace")).hexdigest()[:16]
