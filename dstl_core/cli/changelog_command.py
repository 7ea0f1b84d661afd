"""``dstl changelog``: the change records of a checkpoint's changelog, one JSON object a line."""

from __future__ import annotations

from dstl_core.cli.options import (
    ChangelogBaseOption,
    KeyTypeOption,
    OperatorOption,
    PathArgument,
    RelocateOption,
    RootOption,
    StateOption,
    load,
    require_state,
    selected,
)
from dstl_core.cli.output import complain, write_json


def changelog(
    path: PathArgument,
    op: OperatorOption = None,
    state: StateOption = None,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
    key_type: KeyTypeOption = None,
) -> None:
    """Print the change records of a checkpoint's changelog.

    Each is one JSON object a line, in replay order.
    """
    from dstl_core.savepoint.read.changes import change_lines, has_changelog

    snapshot = load(path, allow_root, relocate, changelog_base, key_type)
    logged = [operator for operator in selected(snapshot, op) if has_changelog(operator)]
    if op and logged and state is not None:
        require_state(snapshot, logged, state)
    for operator in logged:
        write_json(change_lines(operator, state))
    if not logged:
        complain(f"{snapshot.folder} has no changelog: nothing was logged since the full state")
