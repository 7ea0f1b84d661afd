"""``dstl migrate``: what becomes of the state of a job that changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dstl_core.cli.examples import epilog
from dstl_core.cli.options import JsonOption
from dstl_core.cli.output import print_lines, write_json, write_lines
from dstl_core.shown import printable

if TYPE_CHECKING:
    from dstl_core.savepoint.migrate.learn.proposal import Proposal


migrate = typer.Typer(
    name="migrate",
    help="Keep the state of a job that changed.",
    no_args_is_help=True,
)

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="The declaration, a YAML file.")]
FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="SAVEPOINT", help="Savepoint of the old job; default: in FILE."),
]


@migrate.command(epilog=epilog("migrate plan"))
def plan(
    file: FileArgument,
    write: Annotated[
        bool, typer.Option("--write", help="Write proposed rules into FILE, which has none yet.")
    ] = False,
    as_json: JsonOption = False,
    from_: FromOption = None,
) -> None:
    """Propose what becomes of each state of a job that changed.

    FILE names the old savepoint, a savepoint of the new job that started empty, and the compiled
    plans of SQL jobs. The proposal keeps what is the same and converts what loses nothing; ???
    stands where a person has to decide. The exit code is then 1.
    """
    from dstl_core.savepoint.migrate.learn.proposal_file import propose_file

    proposal = propose_file(file, from_, write=write)
    if as_json:
        write_json([proposal.to_json()], indent=1)
    elif write:
        print_lines([printable(f"{file}: {_summary(proposal)}")])
    else:
        write_lines([proposal.text])
    if proposal.decisions:
        raise typer.Exit(1)


def _summary(proposal: Proposal) -> str:
    operators = len(proposal.declaration.get("operators", {}))
    decisions = proposal.decisions
    ready = "nothing is left to decide" if not decisions else f"{decisions} to decide (???)"
    return f"rules for {operators} of {len(proposal.operators)} operators with state; {ready}"
