"""Edits a snapshot in one call: an edit by names, and the new savepoint."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dstl_core.errors import ConfigError
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint.access.units import Jobs
from dstl_core.savepoint.edit.changed_elements import SourceEdit
from dstl_core.savepoint.edit.element_edits import DistinctElements
from dstl_core.savepoint.edit.kept_state import Files
from dstl_core.savepoint.edit.savepoint_edit import SavepointEdit, edit_savepoint
from dstl_core.savepoint.edit.tables.state_names import StateNames
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.write.folder import KeyedForm, Mode


def edit_by_names(
    snapshot: Snapshot,
    *,
    rename: Mapping[str, str] | None = None,
    remove: Sequence[str] = (),
    max_parallelism: int | None = None,
    split: Mapping[tuple[str, str], Sequence[str]] | None = None,
    merge: Mapping[str, str] | None = None,
    distinct: Sequence[tuple[str, str]] = (),
    rename_states: Mapping[tuple[str, str], str] | None = None,
    drop_states: Sequence[tuple[str, str]] = (),
    checkpoint_id: int | None = None,
    files: Files | None = None,
    form: KeyedForm | None = None,
    erase_keys: Mapping[str, Iterable[Any]] | None = None,
    where: Mapping[tuple[str, str], str] | None = None,
    drop_expired: Mapping[tuple[str, str], tuple[int, int]] | None = None,
    edits: Sequence[SourceEdit] = (),
) -> SavepointEdit:
    """Starts an edit by names of operators (uid, hash or name).

    ``split`` maps an operator and a new uid to states. The other arguments are those of
    ``rewrite_savepoint``.

    Raises:
        NoSuchOperatorError: The snapshot lacks an operator to edit.
        NoSuchStateError: An operator lacks a state to move.
        ConfigError: A new uid is empty.
    """

    def known(name: str) -> OperatorIdentifier:
        operator = snapshot[name]
        return OperatorIdentifier(operator.operator_id, operator.uid or None)

    names = StateNames(rename_states or {}, drop_states)
    edit = edit_savepoint(snapshot, names, DistinctElements(distinct), *edits)
    edit = edit.with_files(files).with_format(form)
    if checkpoint_id is not None:
        edit = edit.with_checkpoint_id(checkpoint_id)
    for (name, new), states in (split or {}).items():
        edit = edit.split_operator(known(name), _new_uid(new), states)
    for name, into in (merge or {}).items():
        edit = edit.merge_operators(known(name), known(into))
    for old, new in (rename or {}).items():
        edit = edit.change_operator_identifier(known(old), _new_uid(new))
    for operator_name, keys in (erase_keys or {}).items():
        edit = edit.erase_keys(known(operator_name), keys)
    for (operator_name, state), condition in (where or {}).items():
        edit = edit.keep_where(known(operator_name), state, condition)
    for (operator_name, state), (ttl_ms, now_ms) in (drop_expired or {}).items():
        edit = edit.drop_expired(known(operator_name), state, ttl_ms, now_ms)
    for operator_name in remove:
        edit = edit.remove_operator(known(operator_name))
    return edit if max_parallelism is None else edit.with_max_parallelism(max_parallelism)


def _new_uid(uid: str) -> OperatorIdentifier:
    if not uid:
        raise ConfigError("An operator cannot get an empty uid.")
    return OperatorIdentifier.for_uid(uid)


def rewrite_savepoint(
    snapshot: Snapshot,
    out: str | os.PathLike[str],
    *,
    rename: Mapping[str, str] | None = None,
    remove: Sequence[str] = (),
    max_parallelism: int | None = None,
    split: Mapping[tuple[str, str], Sequence[str]] | None = None,
    merge: Mapping[str, str] | None = None,
    distinct: Sequence[tuple[str, str]] = (),
    rename_states: Mapping[tuple[str, str], str] | None = None,
    drop_states: Sequence[tuple[str, str]] = (),
    checkpoint_id: int | None = None,
    mode: Mode = "error",
    files: Files | None = None,
    format: KeyedForm | None = None,
    jobs: Jobs = 1,
    keep_compression: bool = False,
    erase_keys: Mapping[str, Iterable[Any]] | None = None,
    where: Mapping[tuple[str, str], str] | None = None,
    drop_expired: Mapping[tuple[str, str], tuple[int, int]] | None = None,
    edits: Sequence[SourceEdit] = (),
) -> str:
    """Writes an edited copy of a snapshot; returns the path of the new savepoint.

    Args:
        snapshot: The snapshot to copy.
        out: Folder of the new savepoint.
        rename: Operator (uid, hash or name) to its new uid. Two operators may swap their uids.
        remove: Operators to leave out.
        max_parallelism: New max parallelism of all operators. Operators at 1 stay there.
        split: (Operator, uid of a new operator) to the states that move there.
        merge: Operator to the operator that gets its states, except for states that are split off.
        distinct: Union states, as (operator, state), that keep one of equal elements.
        rename_states: (Operator, keyed state) to its new name, in RocksDB's files.
        drop_states: (Operator, keyed state) to leave out of RocksDB's files.
        checkpoint_id: Number of the new snapshot; a job that restores it counts on from there.
        mode: ``error`` refuses a folder that holds a snapshot; ``overwrite`` replaces it.
        files: What becomes of state that does not change: see ``SavepointEdit.with_files``.
        format: The form of keyed state that is written: ``canonical`` or ``native``.
        jobs: Number of processes that read keyed state; None: all cores if it is large.
        keep_compression: Whether key groups that are written anew are compressed as before.
        erase_keys: Operator to keys that go with all that it holds of them.
        where: (Operator, keyed state) to a condition: entries stay for which it is true.
        drop_expired: (Operator, keyed state) to its time to live and the present time, in ms.
        edits: Further edits, made after those of names and elements.

    Raises:
        NoSuchOperatorError, NoSuchStateError: The snapshot lacks what is edited.
        SavepointError: Two operators would get one uid, none is left, or states cannot be merged.
    """
    edit = edit_by_names(
        snapshot,
        rename=rename,
        remove=remove,
        max_parallelism=max_parallelism,
        split=split,
        merge=merge,
        distinct=distinct,
        rename_states=rename_states,
        drop_states=drop_states,
        checkpoint_id=checkpoint_id,
        files=files,
        form=format,
        erase_keys=erase_keys,
        where=where,
        drop_expired=drop_expired,
        edits=edits,
    )
    return edit.write(out, mode, jobs=jobs, keep_compression=keep_compression)
