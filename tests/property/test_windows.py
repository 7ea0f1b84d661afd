"""Windows against plain lists of elements, whatever the backend, and however often the job goes on
from a checkpoint with another number of subtasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core.codec.serializers import Types
from dstl_core.functions import ProcessWindowFunction, WindowFunction
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend
from dstl_core.state.windows.triggers import CountTrigger, PurgingTrigger
from dstl_core.state.windows.windowing import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from dstl_core.storage.location import Location
from dstl_core.testing import MemoryFileIO
from tests.examples import examples
from tests.stateful_job import Job

KEYS = ["a", "b", "c"]
END = (1 << 62) - 1
BACKENDS = [
    HashMapStateBackend(),
    EmbeddedRocksDBStateBackend(cache_bytes=1 << 20, write_buffer_bytes=1 << 20),
]
SETUPS = st.tuples(st.sampled_from(BACKENDS), st.sampled_from([1, 2, 5]), st.booleans())
STEPS = st.one_of(
    *[st.tuples(st.just("add"), st.sampled_from(KEYS), st.integers(-20, 60))] * 4,
    st.tuples(st.just("watermark"), st.integers(-20, 70), st.none()),
    st.tuples(st.just("restart"), SETUPS, st.none()),
)


@dataclass(frozen=True)
class Case:
    """Windows by plain numbers; ``gap`` instead of size and slide for sessions."""

    size: int = 0
    slide: int = 0
    gap: int = 0
    lateness: int = 0
    count: int = 0
    purges: bool = False
    sums: bool = False

    def function(self) -> WindowFunction:
        assigner: Any = EventTimeSessionWindows.with_gap(self.gap) if self.gap else None
        if assigner is None and self.size == self.slide:
            assigner = TumblingEventTimeWindows.of(self.size)
        assigner = assigner or SlidingEventTimeWindows.of(self.size, self.slide)
        trigger = CountTrigger.of(self.count) if self.count else assigner.default_trigger()
        return WindowFunction(
            assigner,
            Types.LONG,
            reduce=(lambda a, b: a + b) if self.sums else None,
            process=Show(),
            element="number",
            trigger=PurgingTrigger.of(trigger) if self.purges else trigger,
            allowed_lateness=self.lateness,
        )


CASES = st.builds(
    Case,
    size=st.just(10),
    slide=st.sampled_from([10, 4]),
    gap=st.sampled_from([0, 0, 7]),
    lateness=st.sampled_from([0, 6]),
    count=st.sampled_from([0, 0, 3]),
    purges=st.booleans(),
    sums=st.booleans(),
)


class Show(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        # Sessions that merge may put their elements in any order.
        return [(key, *context.window(), sorted(elements))]


@dataclass
class Window:
    key: str
    start: int
    end: int
    elements: list[int] = field(default_factory=list)
    count: int = 0


class Reference:
    """The windows that are open."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.windows: list[Window] = []
        self.watermark = -1000

    def _fire(self, window: Window) -> list[Any]:
        elements = window.elements
        if not elements:
            return []
        shown = [sum(elements)] if self.case.sums else sorted(elements)
        if self.case.purges:
            window.elements = []
        return [(window.key, window.start, window.end, shown)]

    def _is_over(self, window: Window) -> bool:
        return window.end - 1 + self.case.lateness <= self.watermark

    def add(self, key: str, time: int, number: int) -> list[Any]:
        if self.case.gap:
            windows = [self._session(Window(key, time, time + self.case.gap))]
        else:
            size, slide = self.case.size, self.case.slide
            starts = [each for each in range(-60, 100) if each % slide == 0]
            windows = [
                self._window(key, start, start + size)
                for start in starts
                if start <= time < start + size
            ]
        output = []
        for window in windows:
            if self._is_over(window):
                self.windows.remove(window)
                continue
            window.elements.append(number)
            window.count += 1
            if self.case.count:
                if window.count >= self.case.count:
                    window.count = 0
                    output += self._fire(window)
            elif window.end - 1 <= self.watermark:
                output += self._fire(window)
        return output

    def _window(self, key: str, start: int, end: int) -> Window:
        for window in self.windows:
            if (window.key, window.start) == (key, start):
                return window
        self.windows.append(Window(key, start, end))
        return self.windows[-1]

    def _session(self, new: Window) -> Window:
        for other in list(self.windows):
            if other.key == new.key and other.start <= new.end and new.start <= other.end:
                self.windows.remove(other)
                new.start, new.end = min(new.start, other.start), max(new.end, other.end)
                new.elements += other.elements
                new.count += other.count
        self.windows.append(new)
        return new

    def advance(self, watermark: int) -> list[Any]:
        before, self.watermark = self.watermark, max(self.watermark, watermark)
        output = []
        for window in list(self.windows):
            if not self.case.count and before < window.end - 1 <= self.watermark:
                output += self._fire(window)
            if self._is_over(window):
                self.windows.remove(window)
        return sorted(output)


class Program:
    """A job and its reference, step by step."""

    def __init__(self, case: Case, setup: Any) -> None:
        self.reference = Reference(case)
        self.job = Job(
            MemoryFileIO(),
            Location.parse("memory://test/base"),
            function=lambda folding: case.function(),  # type: ignore[arg-type]
        )
        self._start(setup)
        self.number = 1

    def _start(self, setup: Any, snapshot: Any = None) -> None:
        backend, parallelism, changelog = setup
        self.job.start(backend, parallelism=parallelism, changelog=changelog, snapshot=snapshot)
        assert self._advance(self.reference.watermark) == []

    def _advance(self, watermark: int) -> list[Any]:
        return sorted(
            out for subtask in self.job.subtasks for out in subtask.advance_watermark(watermark)
        )

    def step(self, verb: str, first: Any, second: Any) -> None:
        match verb:
            case "add":
                self.number *= 2  # no two sets of elements have the same sum
                got = self.job.owner(first).process({"key": first, "number": self.number}, second)
                assert sorted(got) == sorted(self.reference.add(first, second, self.number))
            case "watermark":
                assert self._advance(first) == self.reference.advance(first)
            case "restart":
                taken = self.job.checkpoint()
                self.job.stop()
                self._start(first, taken)

    def finish(self) -> None:
        assert self._advance(END) == self.reference.advance(END)
        assert self.reference.windows == []
        for subtask in self.job.subtasks:
            assert subtask.keyed is not None
            for table in subtask.keyed.state.tables.values():
                assert not any(len(group) for group in table.groups.values()), table.meta.name
        self.job.stop()


@pytest.mark.slow
@given(CASES, SETUPS, st.lists(STEPS, min_size=5, max_size=50))
@settings(max_examples=examples(60))
def test_windows_hold_and_give_what_plain_lists_do(
    case: Case, setup: Any, steps: list[tuple[str, Any, Any]]
) -> None:
    program = Program(case, setup)
    for step in steps:
        program.step(*step)
    program.finish()
