"""Merges the windows of a key, and tracks the window under which their contents are stored.

Source: ``MergingWindowSet`` and ``TimeWindow.mergeWindows`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Callable

from dstl_core.codec.serializers.window_types import TimeWindow
from dstl_core.state.backends.keyed_collections import ListState

Merged = Callable[[TimeWindow, list[TimeWindow], TimeWindow, list[TimeWindow]], None]
"""Called after a merge with the merged window, the windows that it replaces, the window that stores
its contents, and the windows that stored theirs.
"""


class MergingWindowSet:
    """The windows of the current key.

    Contents stay under the first window that stored them, while the window grows.
    """

    def __init__(self, state: ListState) -> None:
        self._state = state
        self._stored = {TimeWindow(*window): TimeWindow(*kept) for window, kept in state.get()}
        self._mapping = dict(self._stored)

    def state_window(self, window: TimeWindow) -> TimeWindow | None:
        """The window that stores the contents of ``window``; None if the set does not have it."""
        return self._mapping.get(window)

    def retire_window(self, window: TimeWindow) -> None:
        """Removes a window."""
        self._mapping.pop(window, None)

    def add_window(self, new: TimeWindow, merged: Merged) -> TimeWindow:
        """Adds a window; returns the result of its merge with all windows that it touches."""
        # Windows of the set never touch each other, so only windows that touch the new one merge.
        touching = [
            window
            for window in self._mapping
            if window.start <= new.end and window.end >= new.start
        ]
        if not touching:
            self._mapping[new] = new
            return new
        result = TimeWindow(
            min(new.start, *(window.start for window in touching)),
            max(new.end, *(window.end for window in touching)),
        )
        kept, *others = [self._mapping.pop(window) for window in touching]
        self._mapping[result] = kept
        if touching != [result]:
            merged(result, touching, kept, others)
        return result

    def persist(self) -> None:
        """Writes the set to the state, if it has changed."""
        if self._mapping != self._stored:
            self._state.update(list(self._mapping.items()))
            self._stored = dict(self._mapping)
