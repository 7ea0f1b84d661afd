"""Folds of states: many of a key become one, in pairs, by columns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]


def folded(
    combined: Callable[[pa.RecordBatch, pa.RecordBatch], pa.RecordBatch],
    states: pa.RecordBatch,
    group: Int64s,
) -> pa.RecordBatch:
    """The states of each group, in the order of their numbers, from those of its members.

    Args:
        combined: Combines two states of each of some groups, the older one first.
        states: ``[members]`` states. Of a group, a later member is newer.
        group: ``[members]`` the number of the group of each member.
    """
    order = np.argsort(group, kind="stable")
    states, group = states.take(pa.array(order)), group[order]
    while True:
        begins = np.ones(len(group), np.bool_)
        begins[1:] = group[1:] != group[:-1]
        if begins.all():
            return states
        # Neighbours combine, the first with the second, the third with the fourth.
        place = np.arange(len(group)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
        one = np.flatnonzero(place % 2 == 0)
        other = one + 1
        has_other = other < len(group)
        has_other[has_other] = ~begins[other[has_other]]
        pairs = [states.take(pa.array(each[has_other])) for each in (one, other)]
        alone = states.take(pa.array(one[~has_other]))
        both = combined(*pairs)
        columns = [pa.concat_arrays(each) for each in zip(alone.columns, both.columns, strict=True)]
        joined = pa.RecordBatch.from_arrays(columns, names=states.schema.names)
        positions = np.concatenate([one[~has_other], one[has_other]])
        group = group[positions]
        order = np.argsort(positions)
        states, group = joined.take(pa.array(order)), group[order]
