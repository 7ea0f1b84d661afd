"""Keyed state of one subtask as sections that are not compressed: what every form is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.model.key_group import KeyGroupRange


@dataclass(frozen=True)
class RawSections:
    """The states by id, and the sections of ascending key groups, which can be read once.

    ``prefix_bytes`` is the size of a key group in a key.
    """

    header: KeyedBackendHeader
    key_groups: KeyGroupRange
    prefix_bytes: int
    sections: Iterable[tuple[int, bytes]]
