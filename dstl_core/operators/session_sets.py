"""Sessions of many keys, merged by columns.

Source: ``MergingWindowSet`` and ``TimeWindow.mergeWindows`` of Flink 2.2.1: sessions that touch
are one, and its contents stay under the window that stored them first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SessionSet:
    """The sessions of some keys.

    Args:
        owners: ``[sessions]`` numbers of the keys.
        windows: ``[sessions, 2]`` starts and ends in milliseconds.
        kept: ``[sessions, 2]`` the windows under which the contents are stored.
    """

    owners: Int64s
    windows: Int64s
    kept: Int64s

    def __len__(self) -> int:
        return len(self.owners)

    def where(self, chosen: Bools) -> SessionSet:
        """The sessions that are chosen."""
        return SessionSet(self.owners[chosen], self.windows[chosen], self.kept[chosen])

    @classmethod
    def of(cls, lists: pa.Array) -> SessionSet:
        """The sessions in the state of each key: lists of pairs of windows, or null."""
        pairs = pc.list_flatten(lists)
        owners = pc.list_parent_indices(lists).cast(pa.int64()).to_numpy(zero_copy_only=False)
        windows, kept = (
            np.stack([part.field(at).to_numpy(zero_copy_only=False) for at in (0, 1)], axis=1)
            for part in (pairs.field(0), pairs.field(1))
        )
        return cls(owners, windows, kept)

    def find(self, owners: Int64s, windows: Int64s) -> Int64s:
        """The positions of the sessions with these windows; -1 for a window that is no session."""
        known, wanted = (
            np.column_stack(pair) for pair in ((self.owners, self.windows), (owners, windows))
        )
        distinct, numbers = np.unique(np.concatenate([known, wanted]), axis=0, return_inverse=True)
        position = np.full(len(distinct), -1)
        position[numbers[: len(known)]] = np.arange(len(known))
        positions: Int64s = position[numbers[len(known) :]]
        return positions

    def joined(self, other: SessionSet) -> SessionSet:
        """The sessions of both."""
        return SessionSet(
            np.concatenate([self.owners, other.owners]),
            np.concatenate([self.windows, other.windows]),
            np.concatenate([self.kept, other.kept]),
        )

    def lists(self, keys: int, kind: pa.ListType) -> pa.Array:
        """The state of each of so many keys, sorted by the start; an empty list without sessions.

        Args:
            keys: Number of keys.
            kind: The columnar type of the state.
        """
        order = np.lexsort((self.windows[:, 0], self.owners))
        pair = kind.value_type
        columns = [
            pa.StructArray.from_arrays(
                [pa.array(part[order, at]) for at in (0, 1)], fields=list(pair.field(name).type)
            )
            for name, part in enumerate((self.windows, self.kept))
        ]
        sizes = np.bincount(self.owners, minlength=keys)
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
        pairs = pa.StructArray.from_arrays(columns, fields=list(pair))
        return pa.ListArray.from_arrays(offsets, pairs, type=kind)


@dataclass(frozen=True)
class Touching:
    """Groups of sessions that touch, so that each is one session.

    Args:
        group: ``[sessions]`` the number of the group of each session.
        owners: ``[groups]`` the number of the key of each group.
        windows: ``[groups, 2]`` the starts and ends of the groups.
    """

    group: Int64s
    owners: Int64s
    windows: Int64s

    def __len__(self) -> int:
        return len(self.windows)


def touching(sessions: SessionSet) -> Touching:
    """The groups of sessions of one key that touch; the end of one may be the start of another.

    Args:
        sessions: At least one session.
    """
    owners, windows = sessions.owners, sessions.windows
    order = np.lexsort((windows[:, 0], owners))
    owner, start, end = owners[order], windows[order, 0], windows[order, 1]
    # A rank sorts ends by key first, so the largest rank so far is the largest end of the key.
    by_end = np.lexsort((end, owner))
    rank = np.empty(len(order), np.int64)
    rank[by_end] = np.arange(len(order))
    latest = end[by_end[np.maximum.accumulate(rank)]]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (owner[1:] != owner[:-1]) | (start[1:] > latest[:-1])
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(begins) - 1
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:], len(order)) - 1
    return Touching(group, owner[firsts], np.stack([start[firsts], latest[lasts]], axis=1))
