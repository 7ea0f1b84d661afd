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
                raise ConfigError(
                    f"The name {name!r} stands twice in rename, drop, start_empty and backfill: "
                    f"expected one change for a name."
                )

    @property
    def anew(self) -> list[str]:
        """Names that begin anew."""
        return [*self.start_empty, *self.backfill]

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
