"""``dstl committables``: what sinks commit at restore, and a copy without some of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dstl_core.cli.options import (
    CanonicalOption,
    ChangelogBaseOption,
    CopyOption,
    JsonOption,
    OutOption,
    OverwriteOption,
    PathArgument,
    RelocateOption,
    RootOption,
    ShareOption,
    files_of,
    load,
    required_out,
)
from dstl_core.cli.output import (
    complain_of,
    print_lines,
    sharing_note,
    write_json,
    write_savepoint,
)
from dstl_core.display import table_lines
from dstl_core.errors import ConfigError
from dstl_core.flink_text import whole_number

if TYPE_CHECKING:
    from dstl_core.savepoint.connectors.pending_commits import PendingCommit

_HEADS = ("sink", "checkpoint", "writer", "state", "retries", "committable")
_ALL = "all"


def committables(
    path: PathArgument,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            "--drop", metavar="CHECKPOINT", help="Leave out a checkpoint's committables, or all."
        ),
    ] = None,
    op: Annotated[
        str | None, typer.Option("--op", metavar="OP", help="Drop of this committer or sink only.")
    ] = None,
    out: OutOption = None,
    overwrite: OverwriteOption = False,
    share: ShareOption = False,
    copy: CopyOption = False,
    canonical: CanonicalOption = False,
    as_json: JsonOption = False,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
) -> None:
    """Show what sinks commit when a job restores the snapshot.

    With --drop, it writes a copy to --out without some committables; what they stand for is never
    committed. With --json, each committable is one JSON object a line. The exit code is 1 if what a
    sink commits is not known.
    """
    from dstl_core.savepoint.connectors.pending_commits import pending_commits, without_commits
    from dstl_core.savepoint.edit.savepoint_edit import edit_savepoint

    snapshot = load(path, allow_root, relocate, changelog_base, None)
    files = files_of(share=share, copy=copy, canonical=canonical)
    if drop:
        folder = required_out(out, "--drop needs")
        changed = without_commits(snapshot, _checkpoints(drop), op)
        edit = edit_savepoint(changed).with_files(files)
        written = write_savepoint(edit, folder, overwrite=overwrite)
        before, after = (
            len(list(pending_commits(snapshot))),
            len(list(pending_commits(changed))),
        )
        if as_json:
            counts = {"dropped": before - after, "kept": after}
            write_json([{"path": written, **counts, "shares_files_in": edit.shares_files_in}])
        else:
            counted = f"dropped: {before - after}, kept: {after}"
            print_lines([counted, *sharing_note(edit), f"written: {written}"])
        return
    if out is not None or op is not None:
        raise ConfigError("--out and --op need --drop.")
    commits = list(pending_commits(snapshot))
    if as_json:
        write_json(each.to_json() for each in commits)
    else:
        _print(commits)
    if complain_of((commit.op, commit.problem) for commit in commits):
        raise typer.Exit(1)


def _print(commits: list[PendingCommit]) -> None:
    rows = [
        (
            commit.sink or commit.op,
            "" if commit.checkpoint_id is None else str(commit.checkpoint_id),
            "" if commit.subtask is None else str(commit.subtask),
            commit.state,
            str(commit.retries),
            f"{commit.kind} {commit.text}",
        )
        for commit in commits
    ]
    print_lines(table_lines(_HEADS, rows) if rows else ["nothing is pending"])


def _checkpoints(texts: list[str]) -> list[int] | None:
    if _ALL in texts:
        return None
    numbers = []
    for text in texts:
        number = whole_number(text)
        if number is None:
            raise ConfigError(
                f"--drop is wrong: expected the id of a checkpoint or all, got {text!r}."
            )
        numbers.append(number)
    return numbers
