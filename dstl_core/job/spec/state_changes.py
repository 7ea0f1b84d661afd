"""How a changed job takes over aggregates and states that it declares otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from dstl_core.errors import ConfigError


@dataclass(frozen=True)
class StateChanges:
    """What ``migrate`` of a job does with names. A name has one change.

    Args:
        rename: Old names of aggregates, or of states of a function, to new ones.
        drop: Names whose state goes.
        start_empty: Names that begin anew, with another definition or another type.

    Raises:
        ConfigError: A name is no text, or stands twice.
    """

    rename: Mapping[str, str] = field(default_factory=dict)
    drop: Sequence[str] = ()
    start_empty: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.rename, Mapping):
            raise ConfigError(
                f"rename is wrong: expected old names to new ones, got {self.rename!r}."
            )
        for option, names in (("drop", self.drop), ("start_empty", self.start_empty)):
            if isinstance(names, str) or not isinstance(names, Iterable):
                raise ConfigError(f"{option} is wrong: expected a list of names, got {names!r}.")
        names = [*self.rename, *self.rename.values(), *self.drop, *self.start_empty]
        for name in names:
            if not isinstance(name, str):
                raise ConfigError(f"A name is text: expected a name, got {name!r}.")
            if names.count(name) > 1:
                raise ConfigError(
                    f"The name {name!r} stands twice in rename, drop and start_empty: expected one "
                    f"change for a name."
                )

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
