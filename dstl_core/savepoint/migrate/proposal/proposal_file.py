"""Completes the file of a declaration: from the two savepoints that it names, and its plans."""

from __future__ import annotations

import os

from dstl_core.codec.serializers import BUILT_IN, SerializerRegistry
from dstl_core.errors import ConfigError
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.proposal.compiled_plan import CompiledPlan
from dstl_core.savepoint.migrate.proposal.proposal import Proposal, propose
from dstl_core.savepoint.read.snapshot import Snapshot

_RULES = ("operators", "drop_operators", "start_empty")


def propose_for(
    migration: Migration,
    old: Snapshot | None = None,
    serializers: SerializerRegistry = BUILT_IN,
) -> Proposal:
    """Proposes the rules for the savepoints and plans that a declaration names.

    Args:
        migration: A declaration. Its own rules have no effect on the proposal.
        old: The savepoint of the old job, if it is loaded already.
        serializers: The registry of types, for the savepoints that the declaration names.

    Raises:
        ConfigError: The declaration names no savepoint or template, or only one plan.
        FormatError: A savepoint is damaged.
        StateFileNotFoundError: A file is missing.
    """
    for name, value in (("from", migration.from_ or old), ("to_template", migration.to_template)):
        if value is None:
            raise ConfigError(
                f"The declaration has no {name}: expected the folder of a savepoint; add it."
            )
    head = {name: each for name, each in migration.document.items() if name not in _RULES}
    head.pop("migration", None)
    return propose(
        old or Snapshot.load(str(migration.from_), serializers=serializers),
        Snapshot.load(str(migration.to_template), serializers=serializers),
        plans=load_plans(migration),
        header=head,
    )


def load_plans(migration: Migration) -> tuple[CompiledPlan, CompiledPlan] | None:
    """The compiled plans of the old and the new job; None if the declaration names none.

    Raises:
        ConfigError: It names only one, or a file is no compiled plan.
        StateFileNotFoundError: A file is missing.
    """
    if not migration.plans:
        return None
    missing = {"old", "new"} - migration.plans.keys()
    if missing:
        raise ConfigError(
            f"plans has no {missing.pop()!r}: a plan explains columns only beside the other one; "
            f"add it, or leave out plans."
        )
    return CompiledPlan.load(migration.plans["old"]), CompiledPlan.load(migration.plans["new"])


def propose_file(
    path: str | os.PathLike[str],
    old: Snapshot | None = None,
    *,
    write: bool = False,
    serializers: SerializerRegistry = BUILT_IN,
) -> Proposal:
    """Proposes the rules of a file that has none yet; with ``write`` it completes the file.

    Args:
        path: The file. It names the template, the plans of SQL jobs, and the savepoint.
        old: The savepoint; None: the one that the file names.
        write: Whether to replace the file by the proposal, in one step.
        serializers: The registry of types.

    Raises:
        ConfigError: The file has rules already, or lacks a savepoint. It stays as it is.
    """
    migration = Migration.load(path)
    sections = [name for name in _RULES if migration.document.get(name)]
    if sections:
        raise ConfigError(
            f"The declaration {os.fspath(path)!r} has rules already ({', '.join(sections)}), which "
            f"a proposal would replace; give a file without them."
        )
    proposal = propose_for(migration, old, serializers=serializers)
    if write:
        _replace(path, proposal.text)
    return proposal


def _replace(path: str | os.PathLike[str], text: str) -> None:
    """Replaces a file in one step: a reader finds the old text or the new one."""
    partial = f"{os.fspath(path)}.{os.getpid()}.part"
    try:
        with open(partial, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(partial, path)
    except OSError as error:
        raise ConfigError(
            f"The declaration {os.fspath(path)!r} cannot be written: {error}."
        ) from error
