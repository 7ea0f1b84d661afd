"""A state's value as the job sees it, where the stored form is another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ShownState:
    """A state's value as the job sees it.

    Args:
        name: The name that the job gave.
        kind: The kind that was declared; otherwise the stored one.
        value: The text form.
        guess: The type by which the value was read, if nobody declared it.
        has_stored_form: Whether the file has another name or kind.
    """

    name: str
    kind: str
    value: Any
    guess: str | None = None
    has_stored_form: bool = False
