"""The exporter, read back by Prometheus' own parser."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dstl_core.metrics import MetricGroup
from dstl_core.prometheus import QUANTILES, MetricGroupCollector


def exported(root: MetricGroup) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    registry = CollectorRegistry()
    registry.register(MetricGroupCollector(root))
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_kind_of_metric_under_flinks_name() -> None:
    root = MetricGroup(labels={"job": "j"})
    group = root.add_group("ChangelogStorage")
    group.counter("numberOfUploadRequests").inc(3)
    group.gauge("uploadQueueSize", lambda: 11)
    for size in range(1, 101):
        group.histogram("uploadSizes").update(size)
    samples = exported(root)
    job = (("job", "j"),)
    assert samples["dstl_ChangelogStorage_numberOfUploadRequests_total", job] == 3
    assert samples["dstl_ChangelogStorage_uploadQueueSize", job] == 11
    name = "dstl_ChangelogStorage_uploadSizes"
    assert samples[f"{name}_count", job] == 100
    assert samples[f"{name}_sum", job] == 5050
    for quantile in QUANTILES:
        assert samples[name, (*job, ("quantile", str(quantile)))] > 0
    assert samples[name, (*job, ("quantile", "0.99"))] == 99


def test_instances_are_told_apart_by_labels_and_odd_characters_replaced() -> None:
    root = MetricGroup()
    for operator in ("a", "b"):
        root.add_group("My Group", operator=operator).counter("some-count").inc(ord(operator))
    samples = exported(root)
    assert samples["dstl_My_Group_some_count_total", (("operator", "a"),)] == 97
    assert samples["dstl_My_Group_some_count_total", (("operator", "b"),)] == 98
