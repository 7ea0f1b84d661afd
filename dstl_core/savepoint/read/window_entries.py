"""The contents of windows, by key and window.

Merging windows (sessions) keep their contents under a *state window*, one of the windows that were
merged; ``merging-window-set`` (SQL: ``session-window-mapping``) maps windows to state windows.
Source: ``WindowOperator`` and ``MergingWindowSet`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dstl_core.savepoint.read.entries import EVENT_TIMER, KeyedEntry, TimerEntry

MERGING_SETS = ("merging-window-set", "session-window-mapping")
"""Names of the states that map a window to its state window, as pairs."""
_WINDOW_TYPES = ("TimeWindow", "SqlTimeWindow", "GlobalWindow", "SqlGlobalWindow", "CountWindow")
SLICE_STATE = "window-aggs"
"""The state of SQL's slicing windows, whose namespace is the end of a slice as a Long."""


@dataclass(slots=True)
class WindowEntry:
    """One window of a key.

    ``states`` maps names (``window-contents``, states of the trigger and of the user's window
    function) to values. ``state_window`` differs from ``window`` after a merge.
    """

    operator: str
    key: Any
    key_group: int
    window: Any
    state_window: Any
    states: dict[str, Any] = field(default_factory=dict)
    global_states: dict[str, Any] = field(default_factory=dict)
    """States of the key that belong to no window."""
    event_time_timers: list[int] = field(default_factory=list)
    processing_time_timers: list[int] = field(default_factory=list)
    """Timers of this window, in milliseconds, ascending."""


def windows_of(entries: Iterable[KeyedEntry | TimerEntry]) -> Iterator[WindowEntry]:
    """Groups the entries of an operator by key and window. It holds one key group in memory."""
    group: int | None = None
    waiting: list[KeyedEntry | TimerEntry] = []
    for entry in entries:
        if entry.key_group != group:
            yield from _windows(waiting)
            group, waiting = entry.key_group, []
        waiting.append(entry)
    yield from _windows(waiting)


def _windows(entries: list[KeyedEntry | TimerEntry]) -> Iterator[WindowEntry]:
    merged: dict[Any, list[tuple[Any, Any]]] = {}
    windows: dict[Any, WindowEntry] = {}
    timers: dict[Any, tuple[list[int], list[int]]] = {}
    global_states: dict[str, dict[str, Any]] = {}
    for entry in entries:
        key = repr(entry.key)
        if isinstance(entry, TimerEntry):
            both = timers.setdefault((key, entry.namespace), ([], []))
            both[entry.kind != EVENT_TIMER].append(entry.timestamp)
        elif entry.state in MERGING_SETS:
            merged.setdefault(key, []).extend(entry.value)
        elif _is_window(entry):
            place = (key, entry.namespace)
            window = windows.get(place)
            if window is None:
                window = windows[place] = WindowEntry(
                    entry.operator, entry.key, entry.key_group, entry.namespace, entry.namespace
                )
            window.states[entry.state] = entry.value
        else:
            global_states.setdefault(key, {})[entry.state] = entry.value
    for (key, state_window), window in windows.items():
        for actual, kept_under in merged.get(key, []):
            if kept_under == state_window:
                window.window = actual
        event, processing = timers.get((key, window.window), ([], []))
        window.event_time_timers = sorted(event)
        window.processing_time_timers = sorted(processing)
        window.global_states = global_states.get(key, {})
        yield window


def _is_window(entry: KeyedEntry) -> bool:
    if entry.namespace_type.type_name in _WINDOW_TYPES:
        return True
    return entry.state == SLICE_STATE and isinstance(entry.namespace, int)
