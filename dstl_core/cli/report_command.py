"""``dstl report``: one page about a snapshot."""

from __future__ import annotations

from typing import Annotated

import typer

from dstl_core.cli.options import (
    ChangelogBaseOption,
    JsonOption,
    KeyTypeOption,
    PathArgument,
    RelocateOption,
    RootOption,
    load,
)
from dstl_core.cli.output import print_lines, write_json
from dstl_core.errors import ConfigError
from dstl_core.shown import printable


def report(
    path: PathArgument,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="The HTML file to write.")
    ] = None,
    compare: Annotated[
        str | None, typer.Option("--compare", metavar="OLD", help="An older snapshot.")
    ] = None,
    as_json: JsonOption = False,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
    key_type: KeyTypeOption = None,
) -> None:
    """Write a page: sizes, skew, growth, what to look at.

    The page is one file without scripts, which opens from disk. It shows no keys and no values: the
    figures come from metadata and headers.
    """
    from dstl_core.savepoint.report.figures import report_figures
    from dstl_core.savepoint.report.html_page import report_page

    if output is None and not as_json:
        raise ConfigError("A report needs -o FILE for the page, or --json for the figures.")
    snapshot = load(path, allow_root, relocate, changelog_base, key_type)
    older = None
    if compare is not None:
        older = load(compare, allow_root, relocate, changelog_base, key_type)
    figures = report_figures(snapshot, older)
    if output is not None:
        with open(output, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(report_page(figures))
    if as_json:
        write_json([figures], indent=1)
    else:
        print_lines([printable(f"written: {output}")])
