"""Whether a batch is the one that was committed under its id, and what tells the two apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import InputFacts
from dstl_core.errors import InputChangedError
from dstl_core.job.coordination.engine import Engine
from dstl_core.job.spec.fingerprint import Fingerprint
from dstl_core.job.spec.lineage import InputPlace
from dstl_core.job.spec.read_columns import ReadColumns, are_of_one_family

_MAY_BE_NEW = 8
"""Columns at the end of a batch that a commit without names of columns may not have had."""
_SHOWN = 8
"""Columns that a message names."""


def committed_before(
    place: InputPlace,
    rows: Any,
    reads: ReadColumns,
    input_id: str | int,
    engine: Engine,
    *,
    rewind: bool,
) -> CompletedCheckpoint | None:
    """The commit of an input, if it was committed with the same rows; None if it has to run.

    Args:
        place: Where the input is among the commits.
        rows: The batch, with all of its columns.
        reads: The columns that the job reads.
        input_id: The id of the input.
        engine: The engine of the rows.
        rewind: Whether other rows replace those of the commit, or the same ones if the job reads
            columns that the commit has not read.

    Raises:
        InputChangedError: The input was committed with other rows.
    """
    checkpoint = place.commit
    stored = None if checkpoint is None else checkpoint.facts.input
    if checkpoint is None or stored is None or (rewind and place.last_input != input_id):
        return None
    if rewind and stored.columns is not None:
        columns = engine.columns_of(rows)
        if any(reads.reads(name) and name not in stored.columns for name in columns):
            return None  # the commit has not seen what a rewind is to apply
    text = difference(stored, rows, reads, engine)
    if text is None:
        return checkpoint
    if rewind:
        return None
    raise InputChangedError(
        f"The input {input_id!r} was committed as checkpoint {checkpoint.checkpoint_id} with other "
        f"rows or columns: {text}; give the correction its own input id, or give rewind=True "
        f"to run it and all later inputs again."
    )


def difference(stored: InputFacts, rows: Any, reads: ReadColumns, engine: Engine) -> str | None:
    """What tells rows from those of a committed input; None if nothing does."""
    expected = Fingerprint.of_committed(stored)
    if stored.columns is None:
        return _from_unnamed(expected, rows, reads, engine)
    return _from_named(expected, stored.columns, rows, engine)


def facts_of_input(
    input_id: str | int, fingerprint: Fingerprint, rows: Any, engine: Engine
) -> InputFacts:
    """The facts of an input in a commit record."""
    return fingerprint.of_input(input_id, None if rows is None else engine.columns_of(rows))


def _from_named(
    expected: Fingerprint, columns: Mapping[str, str], rows: Any, engine: Engine
) -> str | None:
    """What tells rows from those of a commit, whose columns are known; None if nothing does.

    Columns that the commit has not are not compared, nor is a wider or narrower type.
    """
    now = engine.columns_of(rows)
    missing = [f"no column {name!r} ({kind})" for name, kind in columns.items() if name not in now]
    changed = {name: kind for name, kind in columns.items() if now.get(name, kind) != kind}
    others = [
        f"{name!r} is {now[name]} and was {kind}"
        for name, kind in changed.items()
        if not are_of_one_family(kind, now[name])
    ]
    if missing or others:
        return _list([*missing, *others])
    same = engine.select(rows, list(columns))
    if changed:
        same = engine.in_types(same, changed)
        if same is None:
            shown = (f"{name!r} is {now[name]} and was {kind}" for name, kind in changed.items())
            return f"a value does not fit the type of its column then: {_list(shown)}"
    fingerprint = engine.fingerprint(same, expected.version)
    if fingerprint == expected:
        return None
    if fingerprint.rows != expected.rows:
        return f"expected {expected.rows} rows, got {fingerprint.rows} rows"
    return f"its {expected.rows} rows have other values in {_list(map(repr, columns))}"


def _from_unnamed(
    expected: Fingerprint, rows: Any, reads: ReadColumns, engine: Engine
) -> str | None:
    """What tells rows from those of a commit of an earlier release, which names no columns."""
    of_all_columns = None
    for names in _former_columns(engine.columns_of(rows), reads):
        fingerprint = engine.fingerprint(engine.select(rows, names), expected.version)
        if fingerprint == expected:
            return None
        of_all_columns = of_all_columns or fingerprint
    return f"expected {expected}, got {of_all_columns}; that commit does not name its columns"


def _former_columns(now: Mapping[str, str], reads: ReadColumns) -> Iterator[list[str]]:
    """All columns, then fewer: tables get new ones at their end."""
    names = list(now)
    yield names
    for _ in range(_MAY_BE_NEW):
        if not names or names[-1] in reads.named:
            return
        names = names[:-1]
        yield names


def _list(items: Any) -> str:
    shown = list(items)
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more
