"""Counters, gauges and histograms by name, in groups.

Nothing here reports anywhere: an exporter walks the groups (``dstl_core.prometheus``).
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dstl_core.errors import InvariantViolation

HISTOGRAM_WINDOW = 1000
"""Samples that a histogram keeps, as Flink's do."""


class Counter:
    """A number that only grows. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    def inc(self, by: int = 1) -> None:
        with self._lock:
            self._count += by

    @property
    def count(self) -> int:
        return self._count


@dataclass(frozen=True, slots=True)
class HistogramStatistics:
    """The samples in a histogram's window, ascending."""

    samples: tuple[float, ...]

    @property
    def min(self) -> float:
        return self.samples[0] if self.samples else 0.0

    @property
    def max(self) -> float:
        return self.samples[-1] if self.samples else 0.0

    @property
    def mean(self) -> float:
        return math.fsum(self.samples) / len(self.samples) if self.samples else 0.0

    def quantile(self, quantile: float) -> float:
        """The smallest sample that is not below the given share (0..1) of all; 0 without any."""
        if not self.samples:
            return 0.0
        rank = math.ceil(quantile * len(self.samples))
        return self.samples[min(max(rank, 1), len(self.samples)) - 1]


class Histogram:
    """The last ``HISTOGRAM_WINDOW`` samples, and the count and sum of all. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._window: deque[float] = deque(maxlen=HISTOGRAM_WINDOW)
        self._count = 0
        self._sum = 0.0

    def update(self, value: float) -> None:
        with self._lock:
            self._window.append(value)
            self._count += 1
            self._sum += value

    @property
    def count(self) -> int:
        return self._count

    @property
    def sum(self) -> float:
        return self._sum

    def statistics(self) -> HistogramStatistics:
        with self._lock:
            return HistogramStatistics(tuple(sorted(self._window)))


Gauge = Callable[[], float]
Metric = Counter | Histogram | Gauge


class MetricGroup:
    """Metrics under one scope; asking twice for a name gives the same metric.

    Args:
        scope: The names of the groups from the root to this one.
        labels: What tells instances of the same scope apart (job, operator, subtask).
    """

    def __init__(self, scope: tuple[str, ...] = (), labels: dict[str, str] | None = None) -> None:
        self.scope = scope
        self.labels = dict(labels or {})
        self._lock = threading.Lock()
        self._metrics: dict[str, Metric] = {}
        self._groups: dict[tuple[str, tuple[tuple[str, str], ...]], MetricGroup] = {}

    def add_group(self, name: str, **labels: str) -> MetricGroup:
        """The group below this one with that name and those further labels."""
        key = name, tuple(sorted(labels.items()))
        with self._lock:
            group = self._groups.get(key)
            if group is None:
                group = MetricGroup((*self.scope, name), {**self.labels, **labels})
                self._groups[key] = group
            return group

    def counter(self, name: str) -> Counter:
        with self._lock:
            counter = self._metrics.setdefault(name, Counter())
        if not isinstance(counter, Counter):
            raise InvariantViolation(f"the metric {name!r} is already of another kind")
        return counter

    def histogram(self, name: str) -> Histogram:
        with self._lock:
            histogram = self._metrics.setdefault(name, Histogram())
        if not isinstance(histogram, Histogram):
            raise InvariantViolation(f"the metric {name!r} is already of another kind")
        return histogram

    def gauge(self, name: str, read: Gauge) -> None:
        """Registers a gauge; a later one of the same name takes its place."""
        with self._lock:
            self._metrics[name] = read

    def metrics(self) -> dict[str, Metric]:
        """This group's own metrics by name."""
        with self._lock:
            return dict(self._metrics)

    def walk(self) -> Iterator[MetricGroup]:
        """This group and all below it."""
        yield self
        with self._lock:
            groups = list(self._groups.values())
        for group in groups:
            yield from group.walk()
