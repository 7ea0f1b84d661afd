"""``dstl rewrite``: a new canonical savepoint from any snapshot, edited on the way."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dstl_core.cli.options import (
    ChangelogBaseOption,
    JsonOption,
    KeyTypeOption,
    PathArgument,
    RelocateOption,
    RootOption,
    load,
    pairs,
)
from dstl_core.cli.output import plain_console, printable, write_json
from dstl_core.savepoint.edit import edit_by_names


def rewrite(
    path: PathArgument,
    out: Annotated[str, typer.Argument(help="Folder of the new savepoint.")],
    rename: Annotated[
        list[str] | None,
        typer.Option("--rename", metavar="OLD=NEW", help="Give an operator a new uid."),
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="OP", help="Leave an operator out.")
    ] = None,
    max_parallelism: Annotated[
        int | None, typer.Option("--max-parallelism", help="New number of key groups.")
    ] = None,
    relocate: RelocateOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and show, write nothing.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the snapshot that is in OUT.")
    ] = False,
    as_json: JsonOption = False,
    allow_root: RootOption = None,
    changelog_base: ChangelogBaseOption = None,
    key_type: KeyTypeOption = None,
) -> None:
    """Rename, remove and rescale operators; relocate and convert. OUT is always a self-contained
    canonical savepoint.
    """
    snapshot = load(path, allow_root, relocate, changelog_base, key_type)
    edit = edit_by_names(
        snapshot,
        rename=pairs("--rename", rename, "OLD=NEW"),
        remove=remove or (),
        max_parallelism=max_parallelism,
    )
    plan = edit.plan()
    written = None if dry_run else edit.write(out, "overwrite" if overwrite else "error")
    if as_json:
        write_json([{"path": written, "operators": plan}], indent=1)
        return
    console = plain_console()
    for line in plan:
        console.print(printable(_sentence(line)))
    console.print(printable("nothing was written" if written is None else f"written: {written}"))


def _sentence(line: dict[str, Any]) -> str:
    parts = [f"{line['action']} {line['operator']}"]
    if "new_operator" in line:
        parts.append(f"as {line['new_operator']}")
    parts.append(f"({line['bytes']:,} bytes)")
    if "max_parallelism" in line:
        old, new = line["max_parallelism"]
        parts.append(f"max parallelism {old} -> {new}")
    if line.get("keyed_state", "canonical -> canonical") != "canonical -> canonical":
        parts.append(line["keyed_state"])
    return " ".join(parts)
