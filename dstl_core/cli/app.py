"""The command line application: its commands and its error handling."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dstl_core.cli.changelog_command import changelog
from dstl_core.cli.check_command import check
from dstl_core.cli.diff_command import diff
from dstl_core.cli.dump_command import dump
from dstl_core.cli.gc_command import gc
from dstl_core.cli.inspect_command import inspect
from dstl_core.cli.output import complain
from dstl_core.cli.rewrite_command import rewrite
from dstl_core.cli.upgrade_command import upgrade
from dstl_core.cli.verify_command import verify
from dstl_core.errors import DstlError

DEBUG_OPTION = "--debug"


class _Commands(TyperGroup):
    """Turns every error into one sentence and exit code 2.

    It does so around the commands. Outside of them typer takes an EOFError, which damaged data
    raises too, for Ctrl-D.
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
                complain(str(error))
            else:
                complain(f"The output cannot be written: {error.strerror or error}.")
            raise typer.Exit(2) from None


app = typer.Typer(
    name="dstl",
    cls=_Commands,
    help="Look into savepoints and checkpoints of Apache Flink and of dstl.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option(DEBUG_OPTION, help="Show tracebacks of errors.")] = False,
) -> None:
    """Declares the option for the help. ``main`` accepts it anywhere on the command line."""


for command in (inspect, dump, verify, diff, check, rewrite, upgrade, changelog, gc):
    app.command()(command)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script."""
    argv = sys.argv[1:] if arguments is None else arguments
    app(args=[each for each in argv if each != DEBUG_OPTION], obj={"debug": DEBUG_OPTION in argv})
