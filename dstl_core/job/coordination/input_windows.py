"""Windows of input: their ids in the commit log, their order, and the gaps between them.

The input id of a window is its start in ISO form. Such ids sort as text in the order of time,
whatever form the keys of windows have. The commit records the window and its definition as a note.

A scheduler says which windows there are, and how a run of some of them is started.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Literal, cast

from dstl_core.checkpoint.store.commit_lineage import lineage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.errors import ConfigError
from dstl_core.job.spec.lineage import find_input

NOTE = "window"
INPUT_NOTE = "input"
"""The note of an input that is not a window. It has the partition of the run, if there was one."""
Naming = Literal["start", "key"]


@dataclass(frozen=True)
class InputWindow:
    """A window of input: its key, and its bounds in UTC."""

    key: str
    start: datetime
    end: datetime


@dataclass(frozen=True)
class InputWindows(ABC):
    """The windows of a pipeline: their definition by a scheduler, and the store with its commits.

    Args:
        pipeline: Name of the pipeline.
        store: Folder of the pipeline.
    """

    pipeline: str
    store: PipelineStore

    # ------------------------------------------------------------------------ of the scheduler

    @property
    @abstractmethod
    def start(self) -> datetime:
        """The start of the first window."""

    @property
    @abstractmethod
    def end(self) -> datetime | None:
        """The end of the last window; None if there is always another one."""

    @abstractmethod
    def window(self, key: str) -> InputWindow:
        """Returns the window of a key.

        Raises:
            ConfigError: No window has this key.
        """

    @abstractmethod
    def keys_between(self, start: datetime, end: datetime) -> list[str]:
        """Returns the keys of the windows that begin in ``[start, end)``."""

    @abstractmethod
    def start_id(self, key: str) -> str:
        """Returns the start of a window in ISO form: a date if all windows begin at midnight."""

    @abstractmethod
    def key_at(self, start: datetime) -> str | None:
        """Returns the key of the window that begins at this time; None if no window does."""

    @property
    @abstractmethod
    def definition(self) -> dict[str, str]:
        """The definition of the windows, in the form that commits record."""

    @abstractmethod
    def how_to_fill(self, first: str, key: str) -> str:
        """Says how the missing windows from ``first`` on run before ``key``, or are left out."""

    @abstractmethod
    def how_to_go_back(self, key: str, again: str) -> str:
        """Says how a run goes back to before a window and runs the windows ``again`` anew."""

    # --------------------------------------------------------------------------- committed

    def in_order(self, keys: Iterable[str]) -> list[str]:
        return sorted(keys, key=lambda key: self.window(key).start)

    def read(self) -> CommittedWindows:
        """Returns the commits of this moment. They are read from the log once, and only as far as
        they are used.
        """
        return CommittedWindows(self, _ListedOnce(lineage(self.store.commits())))

    def committed(self, commit: CompletedCheckpoint) -> InputWindow:
        """Returns the window of a commit.

        Raises:
            ConfigError: The commit has another definition of windows.
        """
        input_id = _input_id(commit)
        note = _note(commit)
        if note is None:
            # An early version of dstl used the key as the input id, and wrote no note.
            try:
                window = self.window(str(input_id))
            except ConfigError as error:
                raise self._other_definition(str(input_id), "other windows") from error
            if self.key_at(window.start) != input_id:
                raise self._other_definition(str(input_id), "other windows")
            return window
        expected = {name: note.get(name) for name in self.definition}
        if expected != self.definition:
            raise self._other_definition(str(note.get("key")), _shown(expected))
        return InputWindow(
            str(note["key"]),
            datetime.fromisoformat(note["start"]),
            datetime.fromisoformat(note["end"]),
        )

    def _other_definition(self, key: str, expected: str) -> ConfigError:
        return ConfigError(
            f"The windows of pipeline {self.pipeline!r} had another definition when {key!r} was "
            f"committed: expected {expected}, got {_shown(self.definition)}; put the definition "
            f"back, or start a pipeline of another name from a savepoint of this one."
        )


@dataclass(frozen=True)
class CommittedWindows:
    """The commits of a pipeline at one moment, compared with its windows.

    Args:
        windows: The windows of the pipeline.
        line: The commits that led to the latest state, newest first. Commits that a rewind
            undid are not among them.
    """

    windows: InputWindows
    line: Iterable[CompletedCheckpoint]

    @property
    def pipeline(self) -> str:
        return self.windows.pipeline

    def commits(self) -> Iterator[CompletedCheckpoint]:
        """Yields the commits of inputs that led to the latest state, newest first."""
        return (each for each in self.line if each.facts.input is not None)

    def last(self) -> CompletedCheckpoint | None:
        """Returns the commit of the last window in the latest state; None without one."""
        return next(self.commits(), None)

    def naming(self) -> Naming:
        """Says what the input ids of this pipeline are: the start of each window, or its
        key in a pipeline that an early version of dstl began.
        """
        last = self.last()
        if last is None:
            return "start"
        note = _note(last)
        if note is not None:
            return cast(Naming, note["named"])
        key = str(_input_id(last))
        return "start" if key == self.windows.start_id(key) else "key"

    def input_id(self, key: str) -> str:
        return self.windows.start_id(key) if self.naming() == "start" else key

    def notes(self, key: str) -> dict[str, Any]:
        """Returns the notes that the commit of a window records."""
        window = self.windows.window(key)
        names = {"key": key, "start": window.start.isoformat(), "end": window.end.isoformat()}
        return {NOTE: {**names, **self.windows.definition, "named": self.naming()}}

    def commit_of(self, key: str) -> CompletedCheckpoint | None:
        """Returns the commit of a window; None if the window is not in the latest state."""
        place = find_input(self.line, self.input_id(key))
        return None if place is None else place.commit

    def key_of_input(self, input_id: str | int) -> str | None:
        """Returns the key of an input in the latest state."""
        place = find_input(self.line, input_id)
        return None if place is None or place.commit is None else key_of(place.commit)

    def check(self, key: str, *, allow_gap: bool = False, rewind: bool = False) -> None:
        """Checks that a window is committed already, or directly follows the last committed one.

        Args:
            key: Partition key of the window.
            allow_gap: Whether windows between the last committed one and this one may be missing.
            rewind: Whether the run first rewinds to the state before the window.

        Raises:
            ConfigError: The window is earlier than the last committed one, windows before it are
                missing, or the definition of windows has changed.
        """
        window, last = self.windows.window(key), self.last()
        before = None if last is None else self.windows.committed(last)
        if rewind:
            windows = map(self.windows.committed, self.commits())
            before = next((each for each in windows if each.start < window.start), None)
        if before is None:
            if not allow_gap:
                self._check_gap(window, self.windows.start, None)
            return
        if window.start <= before.start:
            if self.commit_of(key) is None:
                raise ConfigError(
                    f"The window {key!r} of pipeline {self.pipeline!r} was left out: the last "
                    f"committed window is {before.key!r}, and state does not go back by itself; "
                    f"{self.way_back(key)}"
                )
            return
        if self.naming() == "key" and key <= before.key:
            raise ConfigError(
                f"The pipeline {self.pipeline!r} calls its inputs by partition keys, and the order "
                f"of {before.key!r} and {key!r} as text is not their order in time; start a "
                f"pipeline of another name from a savepoint of this one."
            )
        if not allow_gap:
            self._check_gap(window, before.end, before)

    def _check_gap(self, window: InputWindow, start: datetime, before: InputWindow | None) -> None:
        missing = self.windows.keys_between(start, window.start)
        if not missing:
            return
        after = "the first one" if before is None else f"the last committed one, {before.key!r}"
        raise ConfigError(
            f"The window {window.key!r} of pipeline {self.pipeline!r} does not follow {after}: "
            f"{span_of(missing)} missing; {self.windows.how_to_fill(missing[0], window.key)}"
        )

    def way_back(self, key: str) -> str:
        """Describes the run that rewinds to before a window, as the end of a sentence."""
        last = self.last()
        until = key if last is None else self.windows.committed(last).key
        again = f"{key!r}" if until == key else f"{key!r} to {until!r}"
        return self.windows.how_to_go_back(key, again)

    def from_on(self, key: str, until: Iterable[str]) -> list[str]:
        """Returns the windows from ``key`` on, up to the last of ``until`` or the last committed
        one, whichever is later.
        """
        last = self.last()
        ends = [self.windows.window(each).end for each in until]
        if last is not None:
            ends.append(self.windows.committed(last).end)
        return self.windows.keys_between(self.windows.window(key).start, max(ends))

    def due(self, now: datetime) -> list[str]:
        """Returns the windows that have ended and follow the last committed one, in order."""
        last = self.last()
        windows = self.windows
        start = windows.start if last is None else windows.committed(last).end
        end = windows.end
        last_end = now.astimezone(UTC) if end is None else min(now.astimezone(UTC), end)
        return [
            key for key in windows.keys_between(start, now) if windows.window(key).end <= last_end
        ]

    def missing(self, limit: int) -> list[str]:
        """Returns the windows before the last committed one that are not in the latest state.

        Args:
            limit: Number of commits to look at, newest first.
        """
        commits = list(islice(self.commits(), limit + 1))
        windows = [self.windows.committed(each) for each in reversed(commits)]
        begin = [] if len(commits) > limit else [self.windows.start]
        ends = [*begin, *(each.end for each in windows)]
        starts = [each.start for each in windows][0 if begin else 1 :]
        return [
            key
            for end, start in zip(ends, starts, strict=False)
            for key in self.windows.keys_between(end, start)
        ]


class _ListedOnce:
    """Makes an iterator iterable several times. It keeps the items that were read."""

    def __init__(self, items: Iterator[CompletedCheckpoint]) -> None:
        self._rest = items
        self._given: list[CompletedCheckpoint] = []

    def __iter__(self) -> Iterator[CompletedCheckpoint]:
        at = 0
        while True:
            if at == len(self._given):
                commit = next(self._rest, None)
                if commit is None:
                    return
                self._given.append(commit)
            yield self._given[at]
            at += 1


def commits_of_inputs(store: PipelineStore) -> Iterator[CompletedCheckpoint]:
    """Yields the commits of inputs that led to the latest state of a pipeline, newest first."""
    return (each for each in lineage(store.commits()) if each.facts.input is not None)


def key_of(commit: CompletedCheckpoint) -> str | None:
    """Returns the partition key of a commit's input; None if the input has no partition."""
    note = _note(commit)
    if note is not None:
        return str(note["key"])
    if INPUT_NOTE in commit.facts.notes:
        key: str | None = commit.facts.notes[INPUT_NOTE]["partition"]
        return key
    return str(_input_id(commit))


def _input_id(commit: CompletedCheckpoint) -> str | int:
    assert commit.facts.input is not None, "the commit has an input"
    return commit.facts.input.id


def span_of(keys: list[str]) -> str:
    """Returns the first and the last window as text, with the verb."""
    if len(keys) == 1:
        return f"{keys[0]!r} is"
    return f"{keys[0]!r} to {keys[-1]!r} ({len(keys)} windows) are"


def _note(commit: CompletedCheckpoint) -> dict[str, Any] | None:
    note = commit.facts.notes.get(NOTE)
    return None if note is None else dict(note)


def _shown(definition: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in definition.items())
