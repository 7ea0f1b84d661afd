"""One-call edits of a snapshot that give a new, self-contained canonical savepoint."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from dstl_core.savepoint.edit.savepoint_edit import edit_by_names
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.write.folder import Mode


def rewrite_savepoint(
    snapshot: Snapshot,
    out: str | os.PathLike[str],
    *,
    rename: Mapping[str, str] | None = None,
    remove: Sequence[str] = (),
    max_parallelism: int | None = None,
    split: Mapping[tuple[str, str], Sequence[str]] | None = None,
    merge: Mapping[str, str] | None = None,
    mode: Mode = "error",
) -> str:
    """Writes an edited copy of a snapshot.

    Args:
        snapshot: What to copy from.
        out: Folder of the new savepoint.
        rename: Operator (uid, hash or name) to its new uid. Swaps are fine.
        remove: Operators to leave out.
        max_parallelism: New number of key groups of all keyed operators.
        split: (Operator, uid of a new operator) to the states that move there.
        merge: Operator to the one that gets all its states, those that are split off left out.
        mode: ``error`` refuses a folder that holds a snapshot; ``overwrite`` replaces it.

    Returns:
        The path of the new savepoint.

    Raises:
        NoSuchOperatorError: An operator to edit is not there.
        NoSuchStateError: A state to move is not there.
        SavepointError: Two operators would get the same uid, nothing is left, or states do not go
            together.
    """
    edit = edit_by_names(
        snapshot,
        rename=rename,
        remove=remove,
        max_parallelism=max_parallelism,
        split=split,
        merge=merge,
    )
    return edit.write(out, mode)
