"""The command line application: its commands and its error handling."""

from __future__ import annotations

import functools
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dstl_core.cli.browse.browse_command import browse
from dstl_core.cli.check_command import check
from dstl_core.cli.committables_command import committables
from dstl_core.cli.diff_command import diff
from dstl_core.cli.dump_command import changelog, dump
from dstl_core.cli.examples import epilog
from dstl_core.cli.gc_command import gc
from dstl_core.cli.inspect_command import inspect
from dstl_core.cli.ls_command import ls
from dstl_core.cli.migrate_command import migrate
from dstl_core.cli.offsets_command import offsets
from dstl_core.cli.options import use_serializers
from dstl_core.cli.output import complain, write_traceback
from dstl_core.cli.pipelines.erase_command import erase
from dstl_core.cli.report_command import report
from dstl_core.cli.rewrite_command import rewrite
from dstl_core.cli.upgrade_command import upgrade
from dstl_core.cli.verify_command import verify
from dstl_core.cli.warm_command import warm
from dstl_core.errors import DstlError, SnapshotExistsError, flags_in_messages
from dstl_core.version import __version__

DEBUG_OPTION = "--debug"
SERIALIZERS_OPTION = "--serializers"
_LONGEST_REASON = 300


class _Commands(TyperGroup):
    """Turns every error into one sentence and exit code 2.

    It does so around the commands. Outside of them typer takes an EOFError, which damaged data
    raises too, for Ctrl-D.
    """

    def make_context(self, *args: Any, **options: Any) -> Any:
        try:
            return super().make_context(*args, **options)  # prints the help, if that is asked for
        except BrokenPipeError:
            _forget_output()
            raise typer.Exit from None

    def invoke(self, ctx: Any) -> Any:
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _forget_output()
        except (DstlError, OSError, MemoryError) as error:
            if ctx.obj["debug"]:
                import traceback

                write_traceback(traceback.format_exc())
            else:
                complain(_sentence(error))
            raise typer.Exit(2) from None


def _forget_output() -> None:
    """Handles a closed pipe (head, less): discards the buffered output, so that the interpreter
    exits quietly.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _sentence(error: DstlError | OSError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return (
            f"There is not enough memory ({_reason(error)}); one process takes less than several "
            f"(--jobs 1), or use a machine with more; --debug shows what needs it."
        )
    if isinstance(error, SnapshotExistsError):
        return f"{error.context['found']}; choose another folder, remove it, or give --overwrite."
    if isinstance(error, DstlError):
        return str(error)
    if error.errno is not None and error.filename is None:
        return f"The output cannot be written: {error.strerror or error}."
    reason = _reason(error)
    if error.strerror and isinstance(error.filename, str):
        reason = f"{error.filename!r}: {error.strerror}"
    return f"A file cannot be reached: {reason}; --debug shows all of it."


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:_LONGEST_REASON]


app = typer.Typer(
    name="dstl",
    cls=_Commands,
    help="Look into savepoints and checkpoints of Apache Flink and of dstl.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help starts fast and goes through pipes as it is.
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"dstl {__version__}\n")
        raise typer.Exit


@app.callback(epilog="`dstl COMMAND -h` shows the options of a command, with examples.")
def _options(
    debug: Annotated[bool, typer.Option(DEBUG_OPTION, help="Show tracebacks of errors.")] = False,
    serializers: Annotated[
        str | None,
        typer.Option(
            SERIALIZERS_OPTION,
            metavar="MODULE:NAME",
            help="A registry of types with readers of your own serializers. It imports the module, "
            "from the present folder, too.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version, and exit."
        ),
    ] = False,
) -> None:
    """Takes the options of all commands, which ``main`` accepts anywhere on the command line."""
    use_serializers(serializers)


for command in (
    ls,
    inspect,
    browse,
    dump,
    verify,
    diff,
    check,
    report,
    rewrite,
    upgrade,
    changelog,
    offsets,
    committables,
    erase,
    gc,
    warm,
):
    app.command(epilog=epilog(command.__name__))(command)
app.add_typer(migrate)


@functools.cache
def _commands() -> Any:
    """Made once: to make them takes longer than most answers."""
    return typer.main.get_command(app)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script."""
    argv = sys.argv[1:] if arguments is None else arguments
    with flags_in_messages():
        _commands()(
            args=_of_all_commands_first([each for each in argv if each != DEBUG_OPTION]),
            prog_name="dstl",
            obj={"debug": DEBUG_OPTION in argv},
        )


def _of_all_commands_first(argv: list[str]) -> list[str]:
    """The arguments with ``--serializers`` and its value before the command."""
    if argv and argv[-1] == SERIALIZERS_OPTION:
        return argv[-1:]  # which needs a value
    first: list[str] = []
    others: list[str] = []
    words = iter(argv)
    for word in words:
        if word == SERIALIZERS_OPTION:
            first += [word, next(words)]
        elif word.startswith(f"{SERIALIZERS_OPTION}="):
            first.append(word)
        else:
            others.append(word)
    return first + others
