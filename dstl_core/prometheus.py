"""Metric groups as a Prometheus collector.

The only module that imports ``prometheus_client`` (extra ``prometheus``). It stands beside
``metrics`` in the lowest layer because it knows nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dstl_core.extras import extra_named
from dstl_core.metrics import Counter, Histogram, MetricGroup

with extra_named("The collector for Prometheus"):
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those that Flink's Prometheus reporter exports."""

_INVALID = re.compile(r"[^a-zA-Z0-9_]")


class MetricGroupCollector(Collector):
    """Exports a group and all below it: ``REGISTRY.register(MetricGroupCollector(metrics))``.

    A metric's name is ``<prefix>_<scope>_<name>`` with ``_`` for every character that Prometheus
    refuses, as Flink's reporter builds it; a histogram becomes a summary of its last samples.
    """

    def __init__(self, root: MetricGroup, prefix: str = "dstl") -> None:
        self._root = root
        self._prefix = prefix

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for group in self._root.walk():
            for name, metric in group.metrics().items():
                full = _INVALID.sub("_", "_".join((self._prefix, *group.scope, name)))
                text = ".".join((*group.scope, name))
                if isinstance(metric, Counter):
                    family = families.setdefault(full, CounterMetricFamily(full, text))
                    family.add_sample(f"{full}_total", group.labels, metric.count)
                elif isinstance(metric, Histogram):
                    family = families.setdefault(full, Metric(full, text, "summary"))
                    _add_summary(family, full, group.labels, metric)
                else:
                    family = families.setdefault(full, GaugeMetricFamily(full, text))
                    family.add_sample(full, group.labels, metric())
        return families.values()


def _add_summary(family: Metric, name: str, labels: dict[str, str], histogram: Histogram) -> None:
    statistics = histogram.statistics()
    for quantile in QUANTILES:
        family.add_sample(
            name, {**labels, "quantile": str(quantile)}, statistics.quantile(quantile)
        )
    family.add_sample(f"{name}_count", labels, histogram.count)
    family.add_sample(f"{name}_sum", labels, histogram.sum)
