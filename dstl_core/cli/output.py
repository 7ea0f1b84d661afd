"""Output of the commands: JSON lines, one sentence on stderr, progress on a terminal."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from dstl_core.clock import Clock, SystemClock
from dstl_core.display import printable, printable_lines, size_text

if TYPE_CHECKING:
    from dstl_core.savepoint.access.units import Jobs
    from dstl_core.savepoint.edit.rewriting import SavepointRewriter
    from dstl_core.savepoint.edit.trial import Forecast

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

LINE_MS = 30_000
"""Time between two lines of progress, where stderr is no terminal."""
Advance = Callable[[int], None]
"""Called with the number of bytes that were processed."""


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON for people and programs. Only lone surrogates are escaped, because UTF-8 cannot hold
    them; what a terminal must not get is escaped where it is written.
    """
    separators = (", ", ": ") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def write_json(values: Iterable[Any], indent: int | None = None) -> None:
    """Writes one document a line, in UTF-8 whatever the locale is."""
    write_lines(to_json(value, indent) + "\n" for value in values)


def write_lines(lines: Iterable[str]) -> None:
    """Writes lines that hold JSON documents, or YAML. A terminal gets no character that could
    control it; a pipe and a file get the lines as they are.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.writelines(map(printable_lines, lines) if sys.stdout.isatty() else lines)


def print_lines(lines: Iterable[str | tuple[str, str]]) -> None:
    """Writes lines for people; each may have a style, which only a terminal shows. Characters that
    do not print are escaped.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        sys.stdout.writelines(f"{_text_of(line)}\n" for line in lines)
        return
    from rich.console import Console  # a pipe does without it
    from rich.text import Text

    # Names come from snapshots, so nothing in them is markup.
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for line in lines:
        console.print(Text(_text_of(line), "" if isinstance(line, str) else line[1]))


def _text_of(line: str | tuple[str, str]) -> str:
    return printable(line if isinstance(line, str) else line[0])


def complain(sentence: str) -> None:
    sys.stderr.write(f"dstl: {printable(sentence)}\n")


def complain_of(problems: Iterable[tuple[str, str | None]]) -> bool:
    """Writes a sentence for each operator with a problem; returns whether there is one."""
    problems_found = [(op, problem) for op, problem in problems if problem is not None]
    for op, problem in problems_found:
        complain(f"operator {op!r}: {problem}")
    return bool(problems_found)


def write_traceback(text: str) -> None:
    """Writes a traceback to stderr. Its messages quote the contents of a snapshot."""
    sys.stderr.write(printable_lines(text) if sys.stderr.isatty() else text)


@dataclass(frozen=True)
class Encoding:
    """How keyed state is encoded: by what, and compressed as what."""

    jobs: Jobs = 1
    keep_compression: bool = False


def _mode(*, overwrite: bool) -> Literal["error", "overwrite"]:
    return "overwrite" if overwrite else "error"


def forecast_of(
    copy: SavepointRewriter, folder: str, *, overwrite: bool, encoding: Encoding
) -> Forecast:
    """What ``write_savepoint`` would take; refuses what it refuses."""
    mode = _mode(overwrite=overwrite)
    return copy.forecast(folder, mode, encoding.jobs, encoding.keep_compression)


def write_savepoint(
    copy: SavepointRewriter,
    folder: str,
    *,
    overwrite: bool,
    what: str = "writing",
    encoding: Encoding = Encoding(),
) -> str:
    """Writes a copy of a savepoint with a progress bar, and gives its folder."""
    with progress(what, copy.source_size) as advance:
        return copy.write(
            folder,
            _mode(overwrite=overwrite),
            on_progress=advance,
            jobs=encoding.jobs,
            keep_compression=encoding.keep_compression,
        )


class Sharing(Protocol):
    """A savepoint that may need files of another one."""

    @property
    def shares_files_in(self) -> list[str]:
        """The folders of these files; none if it needs none."""


def sharing_note(edit: Sharing) -> list[str]:
    """What a person has to know of a snapshot that shares files; nothing if it shares none."""
    folders = edit.shares_files_in
    if not folders:
        return []
    return [
        f"shares files in {', '.join(folders)}: keep them, and restore with claim mode NO_CLAIM; "
        f"to read it with dstl, allow them (--allow-root)"
    ]


class WithForm(Protocol):
    """A savepoint with keyed state in a form that a person may have chosen."""

    @property
    def form(self) -> str | None:
        """The form; None: as it was."""

    @property
    def timers_on_the_heap(self) -> list[str]:
        """Operators whose timers were on the heap, and stay there in native state."""


def native_note(edit: WithForm) -> list[str]:
    """What a person has to know of native state."""
    if edit.form != "native":
        return []
    note = "native: restore it with the state backend rocksdb"
    on_heap = edit.timers_on_the_heap
    if not on_heap:
        return [f"{note}, and timers in RocksDB (Flink's default)"]
    return [
        f"{note}; the timers of {', '.join(on_heap)} stay on the heap, and restore in both places"
    ]


class ProgressLines:
    """Writes a line about the progress of work every 30 s, e.g. into the log of a container."""

    def __init__(self, what: str, total_bytes: int, clock: Clock) -> None:
        self._what = what
        self._total = total_bytes
        self._clock = clock
        self._done = 0
        self._start = self._last = clock.monotonic_ms()

    def __call__(self, done: int) -> None:
        """Adds bytes that were processed."""
        self._done += done
        now = self._clock.monotonic_ms()
        if now - self._last >= LINE_MS and 0 < self._done <= self._total:
            self._last = now
            left = (now - self._start) * (self._total - self._done) // self._done
            percent = 100 * self._done // self._total
            complain(
                f"{self._what}: {size_text(self._done)} of {size_text(self._total)} ({percent} %), "
                f"{_time_text(left)} left"
            )


def _time_text(milliseconds: int) -> str:
    minutes = round(milliseconds / 60_000)
    if minutes < 1:
        return "less than a minute"
    hours = f"{minutes // 60} h " if minutes >= 60 else ""
    return f"about {hours}{minutes % 60} min"


@contextmanager
def progress(what: str, total_bytes: int, *, prints_lines: bool = False) -> Iterator[Advance]:
    """Shows progress on stderr while the block runs: a bar on a terminal, and elsewhere a line
    every ``LINE_MS``.

    A block that prints lines to the same terminal shows none.
    """
    if not sys.stderr.isatty():
        yield ProgressLines(what, total_bytes, SystemClock())
        return
    if prints_lines and sys.stdout.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # only a bar needs it
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total_bytes)
        yield lambda done: bar.advance(task, done)
