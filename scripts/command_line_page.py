"""Writes the commands and their options into ``docs/reference/command-line.md``, from the code.

Run it after a change of a command: ``.venv/bin/python scripts/command_line_page.py``. A test
compares the page with the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from dstl_core.cli.app import app as dstl
from dstl_core.cli.examples import EXAMPLES
from dstl_dagster.check_command import app as dstl_checks

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "command-line.md"
_BLOCK = re.compile(r"(<!-- commands: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rows_of(commands: typer.Typer, name: str) -> Iterator[tuple[str, str, str]]:
    """Command, argument or option, and meaning."""
    root: Any = typer.main.get_command(commands)
    context = typer.Context(root, **root.context_settings)
    yield from _rows_below(root, name, context)


def _rows_below(command: Any, name: str, context: typer.Context) -> Iterator[tuple[str, str, str]]:
    """The rows of a command, and of the commands of a group."""
    yield from _command_rows(command, name, context)
    for child, below in getattr(command, "commands", {}).items():
        yield from _rows_below(below, f"{name} {child}", typer.Context(below, parent=context))


def _command_rows(
    command: Any, name: str, context: typer.Context
) -> Iterator[tuple[str, str, str]]:
    """The rows of one command. Its first sentences are what its help begins with."""
    yield f"**`{name}`**", "", " ".join((command.help or "").split())
    for parameter in command.get_params(context):
        if parameter.param_type_name == "argument":
            yield "", f"`{parameter.metavar}`", parameter.help
            continue
        metavar = "" if parameter.is_flag else f" {parameter.metavar or 'TEXT'}"
        text = parameter.help
        if not parameter.is_flag and parameter.default:
            text += f" Default: `{parameter.default}`."
        if parameter.multiple:
            text += " Repeatable."
        yield "", f"`{', '.join(sorted(parameter.opts, key=len))}{metavar}`", text


def table(commands: typer.Typer, name: str) -> str:
    """Every command with its options, as a table in Markdown."""
    cells = [("command", "argument or option", "meaning"), ("---", "---", "---")]
    cells += list(rows_of(commands, name))
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells
    )


def examples() -> str:
    """Every example of the help, as a table in Markdown."""
    rows = [f"| `{each}` | {why} |" for group in EXAMPLES.values() for each, why in group]
    return "\n".join(["| example | shows |", "| --- | --- |", *rows])


PARTS: Mapping[str, Any] = {
    "dstl": lambda: table(dstl, "dstl"),
    "examples": examples,
    "dstl-checks": lambda: table(dstl_checks, "dstl-checks"),
}


def written(text: str) -> str:
    """The page with its parts as the code says them now."""
    return _BLOCK.sub(lambda block: f"{block[1]}{PARTS[block[2]]()}\n{block[3]}", text)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
