"""What the commands write: JSON lines, one sentence on stderr, progress on a terminal."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

Advance = Callable[[int], None]
"""Told of bytes that are done."""


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON as people read it; only lone surrogates are escaped, since no file can hold them."""
    separators = (", ", ": ") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def printable(text: str) -> str:
    """A foreign text as one line that cannot steer a terminal: what does not print is escaped."""
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def write_json(values: Iterable[Any], indent: int | None = None) -> None:
    """Writes one document a line. JSON is UTF-8, whatever the locale says."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    for value in values:
        sys.stdout.write(to_json(value, indent) + "\n")


def write_lines(lines: Iterable[str]) -> None:
    """Writes JSON documents that are lines already."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.writelines(lines)


def plain_console() -> Console:
    """Prints text as it is: names come from snapshots, they are no markup."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def complain(sentence: str) -> None:
    """One sentence on stderr."""
    sys.stderr.write(f"dstl: {printable(sentence)}\n")


@contextmanager
def progress(what: str, total_bytes: int, *, prints_lines: bool = False) -> Iterator[Advance]:
    """A bar on stderr while the block runs, if that is a terminal, and not the one that the block
    prints its lines to.
    """
    if not sys.stderr.isatty() or (prints_lines and sys.stdout.isatty()):
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total_bytes)
        yield lambda done: bar.advance(task, done)
