"""The ``dstl`` command: look into savepoints and checkpoints without Spark and without Flink.

Exit codes: 0 fine, 1 findings or differences, 2 error (one sentence on stderr).
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import traceback
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from dstl_core.errors import ConfigError, DstlError, NoSuchStateError
from dstl_core.savepoint.snapshot import OperatorSnapshot, Snapshot

DEBUG_OPTION = "--debug"


class _Commands(TyperGroup):
    """Makes every error one sentence and exit code 2. It has to do so around the commands: outside
    of them an EOFError (which damaged data raises too) is taken for Ctrl-D.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of our output (head, less) has gone; that is no error. What is still
            # buffered goes nowhere, or the interpreter would complain at its exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (DstlError, OSError) as error:
            if ctx.obj["debug"]:
                traceback.print_exc()
            elif isinstance(error, DstlError):
                _complain(str(error))
            else:
                _complain(f"The output cannot be written: {error.strerror or error}.")
            raise typer.Exit(2) from None


def _complain(sentence: str) -> None:
    sys.stderr.write(f"dstl: {printable(sentence)}\n")


app = typer.Typer(
    name="dstl",
    cls=_Commands,
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
    debug: Annotated[bool, typer.Option(DEBUG_OPTION, help="Show tracebacks of errors.")] = False,
) -> None:
    """The option is here for the help; ``main`` takes it out of wherever it stands."""


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
        _write_json([facts], indent=1)
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
    """Print every entry as one JSON object a line.

    An operator that cannot be read does not keep the others from being printed.
    """
    snapshot = _load(path, allow_root, relocate)
    if op is not None:
        _write_json(snapshot[op].dump(state))
        return
    problems = [
        f"Operator {operator.label!r} cannot be dumped: {problem}"
        for operator in snapshot.operators
        if (problem := _dump_operator(operator, state)) is not None
    ]
    if state is not None and not problems and not _has_state(snapshot, state):
        raise NoSuchStateError(
            f"State {state!r} is in no operator of this snapshot.", location=str(snapshot.folder)
        )
    for problem in problems:
        _complain(problem)
    if problems:
        raise typer.Exit(2)


def _dump_operator(operator: OperatorSnapshot, state: str | None) -> str | None:
    """Prints one operator's entries; gives the problem if it cannot be read."""
    try:
        if state is None or any(info.name == state for info in operator.states):
            _write_json(operator.dump(state))
    except DstlError as error:
        return str(error)
    return None


def _has_state(snapshot: Snapshot, state: str) -> bool:
    return any(info.name == state for each in snapshot.operators for info in each.states)


def _load(path: str, allow_root: list[str] | None, relocate: list[str] | None) -> Snapshot:
    moved = {}
    for pair in relocate or []:
        old, found, new = pair.partition("=")
        if not (old and found and new):
            raise ConfigError(f"--relocate is wrong: expected OLD=NEW, got {pair!r}.")
        moved[old] = new
    return Snapshot.load(path, allow_roots=allow_root or (), relocate=moved)


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON as people read it; only lone surrogates are escaped, since no file can hold them."""
    separators = (", ", ": ") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def printable(text: str) -> str:
    """A foreign text as one line that cannot steer a terminal: what does not print is escaped."""
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def _write_json(values: Iterable[Any], indent: int | None = None) -> None:
    """Writes one document a line. JSON is UTF-8, whatever the locale says."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    for value in values:
        sys.stdout.write(to_json(value, indent) + "\n")


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
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    # Names come from the snapshot: they are no markup, and no instructions to the terminal.
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(Text(printable(facts["path"]), "bold"))
    console.print(
        f"checkpoint {facts['checkpoint_id']}, metadata version {facts['version']}, "
        f"{facts['metadata_bytes']:,} bytes of metadata"
    )
    for operator in facts["operators"]:
        title = printable(operator["uid"] or operator["name"] or operator["hash"])
        console.print(Text.assemble("\n", (title, "bold"), f"  {operator['hash']}"))
        console.print(
            f"parallelism {operator['parallelism']} of {operator['max_parallelism']}, "
            f"{operator['bytes']:,} bytes, keyed state: {operator['keyed_state']}"
        )
        if operator["problem"]:
            problem = printable(f"not readable: {operator['problem']}")
            console.print(Text(problem, "yellow"))
        rows = [(info["name"], info["kind"], info["type"]) for info in operator["states"]]
        rows += [(name, f"operator {mode}", "") for name, mode in operator["operator_states"]]
        if rows:
            table = Table()
            for column in ("state", "kind", "type"):
                table.add_column(column, overflow="fold")
            for row in rows:
                table.add_row(*(Text(printable(cell)) for cell in row))
            console.print(table, soft_wrap=False)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script."""
    argv = sys.argv[1:] if arguments is None else arguments
    app(args=[each for each in argv if each != DEBUG_OPTION], obj={"debug": DEBUG_OPTION in argv})


if __name__ == "__main__":
    main()
