"""Compares two columns value by value."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def differ(old: pa.Array, new: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether each value was changed, set or cleared.

    Values are compared by their bits, so 0.0 and -0.0 differ. Values that Arrow cannot compare
    count as changed.
    """
    differs: npt.NDArray[np.bool_] = _other(old, new).to_numpy(zero_copy_only=False)
    return differs


def _other(old: pa.Array, new: pa.Array) -> pa.Array:
    was, now = old.is_valid(), new.is_valid()
    other = pc.not_equal(was, now)
    if pa.types.is_struct(old.type):
        for at in range(old.type.num_fields):
            parts = pc.struct_field(old, [at]), pc.struct_field(new, [at])
            other = pc.or_(other, pc.and_(now, _other(*parts)))
        return other
    if pa.types.is_list(old.type):
        return pc.or_(other, _other_elements(old, new))
    bits = _BITS.get(old.type)
    try:
        if bits is not None:
            old, new = old.view(bits), new.view(bits)
        return pc.or_(other, pc.fill_null(pc.not_equal(old, new), False))
    except pa.ArrowNotImplementedError:  # Arrow compares no maps: such a value counts as changed
        return pc.or_(other, now)


def _other_elements(old: pa.Array, new: pa.Array) -> pa.Array:
    """Whether two lists, both not null, have different elements."""
    length = pc.list_value_length(new)
    same = pc.fill_null(pc.equal(pc.list_value_length(old), length), False)
    both = pc.and_(old.is_valid(), new.is_valid())
    changed = pc.and_not(both, same).to_numpy(zero_copy_only=False).copy()
    lengths = length.filter(same).to_numpy()
    elements = differ(pc.list_flatten(old.filter(same)), pc.list_flatten(new.filter(same)))
    owners = np.repeat(np.flatnonzero(same), lengths)
    changed[owners[elements]] = True
    return pa.array(changed)
