"""Windows of input without Dagster: any scheduler that knows its windows has their rules."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from dstl_core import AggregateOperator, LocalEngine, StatefulJob, aggregates
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.errors import ConfigError
from dstl_core.job.coordination.input_windows import InputWindow, InputWindows

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Days(InputWindows):
    """Days from the second of January on, as a crontab has them."""

    hour: int = 0
    end = None

    @property
    def start(self) -> datetime:
        return datetime(2026, 1, 2, self.hour, tzinfo=UTC)

    def window(self, key: str) -> InputWindow:
        start = datetime.fromisoformat(key).replace(hour=self.hour, tzinfo=UTC)
        return InputWindow(key, start, start + DAY)

    def keys_between(self, start: datetime, end: datetime) -> list[str]:
        days = max(0, -((start - end) // DAY))
        return [(start + at * DAY).strftime("%Y-%m-%d") for at in range(days)]

    def start_id(self, key: str) -> str:
        return key

    def key_at(self, start: datetime) -> str | None:
        return start.strftime("%Y-%m-%d")

    @property
    def definition(self) -> dict[str, str]:
        return {"cron": f"0 {self.hour} * * *"}

    def how_to_fill(self, first: str, key: str) -> str:
        return f"start {first} first."

    def how_to_go_back(self, key: str, again: str) -> str:
        return f"go back to before {key} and start {again} again."


def test_days_of_a_crontab_are_in_order(tmp_path: Path) -> None:
    count = {"n": aggregates.count()}
    job = StatefulJob(
        LocalEngine(), "days", str(tmp_path), AggregateOperator("op", "k", count, schema="k string")
    )
    days = Days("days", PipelineStore(str(tmp_path), "days"))
    now = datetime(2026, 1, 5, 12, tzinfo=UTC)
    assert days.read().due(now) == ["2026-01-02", "2026-01-03", "2026-01-04"]
    for day in ("2026-01-02", "2026-01-04"):
        committed = days.read()
        committed.check(day, allow_gap=True)
        rows = pa.table({"k": ["a"]})
        job.run(rows, committed.input_id(day), notes=committed.notes(day))
    committed = days.read()
    assert committed.missing(10) == ["2026-01-03"]
    assert committed.due(now) == []
    assert committed.key_of_input("2026-01-04") == "2026-01-04"
    committed.check("2026-01-05")
    with pytest.raises(ConfigError, match=r"'2026-01-05' is missing; start 2026-01-05 first\."):
        committed.check("2026-01-06")
    back = "go back to before 2026-01-03 and start '2026-01-03' to '2026-01-04' again"
    with pytest.raises(ConfigError, match=back):
        committed.check("2026-01-03")
    with pytest.raises(ConfigError, match=r"another definition .* got cron '0 6 \* \* \*'"):
        Days("days", days.store, 6).read().check("2026-01-05")


def test_a_pipeline_without_windows_has_no_last_one(tmp_path: Path) -> None:
    committed = Days("days", PipelineStore(str(tmp_path), "days")).read()
    assert committed.last() is None
    with pytest.raises(
        ConfigError, match=r"does not follow the first one: '2026-01-02' is missing"
    ):
        committed.check("2026-01-03")
