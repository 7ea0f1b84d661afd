"""The ``dstl`` command: look into savepoints and checkpoints without Spark and without Flink.

Exit codes: 0 fine, 1 findings or differences, 2 error (one sentence on stderr).
"""

from __future__ import annotations

import json
import re
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dstl_core.errors import DstlError
from dstl_core.savepoint.snapshot import OperatorSnapshot, Snapshot

app = typer.Typer(
    name="dstl",
    help="Look into Apache Flink savepoints and checkpoints, and into those of dstl.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

PathArgument = Annotated[
    str, typer.Argument(help="Folder of a savepoint or checkpoint, or its _metadata.")
]
RootOption = Annotated[
    list[str] | None,
    typer.Option("--allow-root", help="A further folder that the snapshot's handles may name."),
]
RelocateOption = Annotated[
    list[str] | None,
    typer.Option("--relocate", metavar="OLD=NEW", help="Files moved from OLD to NEW."),
]


@app.callback()
def _options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    context.obj = {"debug": debug}


@app.command()
def inspect(
    path: PathArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
) -> None:
    """Show operators, states with kind and type, sizes, and where the bytes lie."""
    snapshot = _load(path, allow_root, relocate)
    facts = _facts(snapshot)
    if as_json:
        sys.stdout.write(to_json(facts, indent=1) + "\n")
    else:
        _print_facts(facts)


@app.command()
def dump(
    path: PathArgument,
    op: Annotated[
        str | None, typer.Option("--op", help="Only this operator: uid, hash or name.")
    ] = None,
    state: Annotated[str | None, typer.Option("--state", help="Only this state.")] = None,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
) -> None:
    """Print every entry as one JSON object a line."""
    snapshot = _load(path, allow_root, relocate)
    operators = [snapshot[op]] if op is not None else snapshot.operators
    if op is None and state is not None:
        operators = [each for each in operators if _has_state(each, state)]
        if not operators:
            raise DstlError(f"State {state!r} is in no operator of this snapshot.")
    for operator in operators:
        for line in operator.dump(state):
            sys.stdout.write(to_json(line) + "\n")


def _has_state(operator: OperatorSnapshot, state: str) -> bool:
    return any(info.name == state for info in operator.states)


def _load(path: str, allow_root: list[str] | None, relocate: list[str] | None) -> Snapshot:
    moved = {}
    for pair in relocate or []:
        old, found, new = pair.partition("=")
        if not (old and found and new):
            raise DstlError(f"--relocate is wrong: expected OLD=NEW, got {pair!r}.")
        moved[old] = new
    return Snapshot.load(path, allow_roots=allow_root or (), relocate=moved)


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON as people read it; only lone surrogates are escaped, since no file can hold them."""
    separators = (", ", ": ") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _facts(snapshot: Snapshot) -> dict[str, Any]:
    metadata = snapshot.metadata
    sidecar = snapshot.file.sidecar
    return {
        "path": str(snapshot.folder),
        "version": metadata.version,
        "checkpoint_id": metadata.checkpoint_id,
        "metadata_bytes": snapshot.file.size,
        "written_by_dstl": None if sidecar is None else dict(sidecar.facts),
        "operators": [_operator_facts(operator) for operator in snapshot.operators],
    }


def _operator_facts(operator: OperatorSnapshot) -> dict[str, Any]:
    problem = operator.problem()
    states = [] if problem else operator.states
    return {
        "uid": operator.uid or None,
        "hash": operator.operator_id.hex,
        "name": operator.name or None,
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "subtasks_with_state": len(operator.state.subtasks),
        "bytes": operator.state.state_size,
        "keyed_state": operator.form(),
        "problem": problem,
        "states": [{"name": info.name, "kind": info.kind, "type": info.type} for info in states],
        "operator_states": sorted(
            {
                (meta.name, meta.mode.name.lower())
                for subtask in operator.state.subtasks
                if subtask.managed_operator_state is not None
                for meta in subtask.managed_operator_state.states
            }
        ),
    }


def _print_facts(facts: dict[str, Any]) -> None:
    console = Console(highlight=False)
    console.print(f"[bold]{facts['path']}[/bold]", soft_wrap=True)
    console.print(
        f"checkpoint {facts['checkpoint_id']}, metadata version {facts['version']}, "
        f"{facts['metadata_bytes']:,} bytes of metadata"
    )
    for operator in facts["operators"]:
        title = operator["uid"] or operator["name"] or operator["hash"]
        console.print(f"\n[bold]{title}[/bold]  {operator['hash']}", soft_wrap=True)
        console.print(
            f"parallelism {operator['parallelism']} of {operator['max_parallelism']}, "
            f"{operator['bytes']:,} bytes, keyed state: {operator['keyed_state']}"
        )
        if operator["problem"]:
            console.print(f"[yellow]not readable: {operator['problem']}[/yellow]", soft_wrap=True)
        rows = [(info["name"], info["kind"], info["type"]) for info in operator["states"]]
        rows += [(name, f"operator {mode}", "") for name, mode in operator["operator_states"]]
        if rows:
            table = Table("state", "kind", "type")
            for row in rows:
                table.add_row(*row)
            console.print(table)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script."""
    argv = sys.argv[1:] if arguments is None else arguments
    try:
        app(args=argv, standalone_mode=True)
    except DstlError as error:
        if "--debug" in argv:
            raise
        sys.stderr.write(f"dstl: {error}\n")
        raise SystemExit(2) from None
    except BrokenPipeError:
        # The reader of our output (head, less) has gone; that is no error.
        sys.stderr.close()
        raise SystemExit(0) from None


if __name__ == "__main__":
    main()
