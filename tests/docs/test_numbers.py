"""Numbers and defaults in sentences of the pages are those of the code."""

from __future__ import annotations

import re

import pytest

from dstl_core import EmbeddedRocksDBStateBackend, StatefulJob
from dstl_core.checkpoint.store import state_files
from dstl_core.codec.columnar.keyed import spans
from dstl_core.config import ChangelogOptions
from dstl_core.flink_text import parse_duration_ms, parse_memory_size
from dstl_core.job.coordination import epoch
from dstl_core.job.spec import job_spec
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.job.task import reduced_pieces, reduced_rows
from dstl_core.savepoint import gc
from dstl_core.savepoint.edit import converted_state
from dstl_core.savepoint.report import figures
from dstl_core.savepoint.restores import flink_verdicts
from dstl_core.state.columns import keyed_sections
from dstl_dagster import StatefulPipeline, charts, sensors
from dstl_dagster.pipelines import drift, epoch_metadata, state_profile
from dstl_dagster.pipelines.jobs import GcConfig
from tests.docs.fences import ROOT

DOCS = ROOT / "docs"
MIB = 1 << 20


def rocksdb_mib() -> int:
    """What the page says of the memory of a database: its blocks, and three memtables."""
    backend = EmbeddedRocksDBStateBackend()
    return (backend.cache_bytes + 3 * backend.write_buffer_bytes) // MIB


def test_the_table_of_options_of_the_changelog_has_the_defaults() -> None:
    page = (DOCS / "how-to" / "changelog.md").read_text()
    table = page[page.index("| name | default | meaning |") :]
    rows = re.findall(r"^\| (`.*?`) \| (.*?) \|", table[: table.index("\n\n")], re.MULTILINE)
    said = {
        name: text
        for names, texts in rows
        for name, text in zip(
            names.strip("`").split("`, `"), re.sub(r" \(.*?\)", "", texts).split(", "), strict=True
        )
    }
    options = ChangelogOptions.of()
    assert len(said) == 10
    for name, text in said.items():
        value = getattr(options, name)
        if value is None or isinstance(value, bool):
            assert text == {None: "-", True: "yes", False: "no"}[value], name
        elif text.isdigit():
            assert int(text) == value, name
        else:
            parse = parse_duration_ms if name.endswith("_ms") else parse_memory_size
            assert parse(text) == value, name


NUMBERS = [
    ("how-to/changelog", r"\((\d+) s in a stateful job\)", job_spec.UPLOAD_TIMEOUT_MS // 1000),
    ("how-to/functions", r"They are at most (\d+) MiB", epoch.MAX_BROADCAST_BYTES // MIB),
    ("how-to/operate-a-job", r"`write_buffer_bytes`, by default (\d+) MiB", rocksdb_mib()),
    ("how-to/operate-a-job", r"([\d,]+) entries \(`max_entries`", LocalCopies().max_entries),
    (
        "how-to/dagster-operate",
        r"`materialize_at_ratio=([\d.]+)`",
        StatefulPipeline.materialize_at_ratio,
    ),
    (
        "how-to/dagster-operate",
        r"`small_log_bytes` \((\d+) MiB\)",
        StatefulPipeline.small_log_bytes // MIB,
    ),
    ("how-to/dagster", r"keeps at least (\d+) checkpoints", StatefulPipeline.num_retained),
    ("how-to/dagster-operate", r"at most (\w+) times", {5: "five"}[sensors.MAX_ATTEMPTS]),
    ("how-to/dagster-operate", r"a sample of ([\d,]+) keys", state_profile.PROFILED_KEYS),
    ("how-to/dagster-operate", r"Of more than (\d+) values", charts.MAX_POINTS),
    ("how-to/ci", r"up to ([\d,]+) values", flink_verdicts._MOST_VALUES),
    ("how-to/upgrade", r"at least (\d+) MiB of keyed", converted_state.KERNELS_FROM_BYTES // MIB),
    ("how-to/migrate", r"holds (\d+) MiB of new records", keyed_sections.WRITE_MEMORY // MIB),
    (
        "how-to/report",
        r"has (\w+) the median or more",
        {2.0: "twice"}[figures.HIGH_SKEW["subtask"]],
    ),
    ("how-to/report", r"key group (\d+) times the median", int(figures.HIGH_SKEW["key group"])),
    ("how-to/report", r"more than (\d+) files", figures.MANY_FILES),
    ("how-to/report", r"smaller than (\d+) MiB", figures.SMALL_FILE // MIB),
    ("how-to/cluster", r"up to (\d+) MB of keys", reduced_pieces.MOST_BYTES // MIB),
    ("how-to/cluster", r"up to (\d+) GB of rows", reduced_rows.UNREDUCED_BYTES // (MIB << 10)),
    ("how-to/rewrite", r"younger than (\d+) hours", gc.DEFAULT_AGE_MS // 3_600_000),
    ("internals/columns", r"at most ([\d,]+) rows", spans.ROWS_PER_BATCH),
    ("internals/columns", r"about (\d+) MB of stored bytes", spans.BYTES_PER_BATCH // MIB),
    ("internals/checkpoints", r"contains (\d+) of them or more", state_files._LISTED_FROM),
    ("internals/scale", r"`max_parallelism` is (\d+) by default", StatefulJob.max_parallelism),
    ("how-to/dagster", r"with the last (\w+) commits", {100: "hundred"}[drift.CHECKED_COMMITS]),
    (
        "how-to/dagster-operate",
        r"charts of the last (\w+) commits",
        {100: "hundred"}[epoch_metadata.SHOWN_COMMITS],
    ),
    (
        "how-to/dagster-downstream",
        r"the first (\w+) rows",
        {5: "five"}[epoch_metadata.PREVIEW_ROWS],
    ),
    ("how-to/dagster-operate", r"`older_than_hours: (\d+)`", int(GcConfig().older_than_hours)),
]


@pytest.mark.parametrize(("page", "pattern", "value"), NUMBERS)
def test_a_number_of_a_page_is_that_of_the_code(page: str, pattern: str, value: object) -> None:
    text = " ".join((DOCS / f"{page}.md").read_text().split())
    [said] = re.findall(pattern, text)
    assert said.replace(",", "") == str(value)
