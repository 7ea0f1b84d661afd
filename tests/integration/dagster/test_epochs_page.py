"""The page of a checkpoint shows the last epochs, and what is late, missing or undone."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import EpochFacts, InputFacts
from dstl_dagster import DstlStorageResource
from dstl_dagster.pipelines.epochs_page import SHOWN_EPOCHS, EpochsPage
from dstl_dagster.snapshots.snapshot_assets import build_report_asset
from tests.integration.dagster.small_pipeline import LOCAL, PAYMENTS, ROWS, epochs_of

pytestmark = pytest.mark.dagster


days = epochs_of(retry_policy=None)


def test_the_page_shows_restated_days_and_gaps(
    storage: DstlStorageResource, instance: dg.DagsterInstance
) -> None:
    def run(day: int, **config: Any) -> dict[str, Any]:
        done = dg.materialize(
            [days],
            partition_key=f"2026-01-0{day}",
            resources={"storage": storage, "engine": LOCAL},
            instance=instance,
            run_config={"ops": {"payments_state": {"config": config}}},
        )
        assert done.success
        event = instance.get_latest_materialization_event(PAYMENTS.key("checkpoint"))
        assert event is not None and event.asset_materialization is not None
        return dict(event.asset_materialization.metadata)

    run(1)
    run(2)
    gap = run(5, allow_gap=True)
    assert gap["dstl/windows_left_out"].value == 2
    page = run(2, rewind_to="2026-01-02")  # it runs the days up to 5, and so fills the gap
    rows = [dict(each.data) for each in page["dstl/epochs"].records]
    assert [(row["epoch"], row["run"], row["state"]) for row in rows] == [
        ("2026-01-05", 2, "retained"),
        ("2026-01-04", 1, "retained"),
        ("2026-01-03", 1, "retained"),
        ("2026-01-02", 2, "retained"),
        ("2026-01-05", 1, "undone"),
        ("2026-01-02", 1, "undone"),
        ("2026-01-01", 1, "retained"),
    ]
    for row in rows:
        day = ROWS[row["epoch"]]
        assert row["rows"] == len(day)
        assert row["keys changed"] == len({account for account, _ in day})
        assert row["log bytes"] > 0 and row["seconds"] >= 0
    assert page["dstl/restatements"].value == 2
    assert page["dstl/windows_left_out"].value == 0
    assert page["dstl/report_with"].value.startswith("`dstl report ")
    assert page["dstl/retention"].value == "at least 32 checkpoints"
    assert page["dstl/goes_back_to"].value == "2026-01-01"
    assert page["dstl/report"].asset_key == PAYMENTS.key("report")


def test_the_page_leads_to_the_report_of_the_latest_checkpoint(
    storage: DstlStorageResource, instance: dg.DagsterInstance
) -> None:
    report = build_report_asset(PAYMENTS)
    for day in ("2026-01-01", "2026-01-02"):
        assert dg.materialize(
            [days],
            partition_key=day,
            resources={"storage": storage, "engine": LOCAL},
            instance=instance,
        ).success
    ran = dg.materialize([report], resources={"storage": storage}, instance=instance)
    [made] = ran.asset_materializations_for_node("payments_report")
    assert made.metadata["dstl/entries"].value == 3 * 9  # nine accounts, three states
    page = Path(str(made.metadata["dstl/report"].value))
    latest = PAYMENTS.store(storage).require_latest().checkpoint_id
    assert page == Path(storage.base_path) / "reports" / f"payments-{latest}.html"
    assert "account-1" not in page.read_text()
    assert made.metadata["dstl/checkpoint_id"].value == latest


# --------------------------------------------------------------------------- without runs

NOTE = {"cron": "0 0 * * *", "timezone": "UTC", "format": "%Y-%m-%d", "named": "start"}


def commit(
    number: int, day: int, *, late: timedelta, restored: int | None = None, log: int = 10
) -> CompletedCheckpoint:
    start = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=day - 1)
    end = start + timedelta(days=1)
    key = f"{start:%Y-%m-%d}"
    facts = EpochFacts(
        kind="epoch",
        input=InputFacts(id=key, rows=day, hash_sum="0" * 16),
        seconds=1.234,
        restored_from=number - 1 if restored is None else restored,
        changed_keys=day,
        log_bytes=log,
        notes={"window": {"key": key, "start": start.isoformat(), "end": end.isoformat(), **NOTE}},
    )
    committed = int((end + late).timestamp() * 1000)
    return CompletedCheckpoint(number, number - 1, "0" * 64, committed, facts)


BASE = CompletedCheckpoint(
    1, None, "0" * 64, 0, EpochFacts(kind="start", materialized_bytes=100, restored_from=None)
)
NOON = datetime(2026, 3, 9, 12, tzinfo=UTC)


def test_lag_gaps_log_and_windows_behind_are_those_of_the_commits() -> None:
    history = [
        BASE,
        commit(2, 1, late=timedelta(minutes=5)),
        commit(3, 2, late=timedelta(days=2, hours=3, minutes=9)),
        commit(4, 5, late=timedelta(seconds=40)),  # days 3 and 4 are left out
        commit(5, 2, late=timedelta(days=4), restored=2),
        commit(6, 3, late=timedelta(hours=-1)),
    ]
    metadata = EpochsPage(history, 30, frozenset({5, 6}), NOON).metadata(is_last=True)
    rows = [dict(each.data) for each in metadata["dstl/epochs"].records]
    assert {row["cost"] for row in rows[:1]} == {"411,333.3 s per 1M rows, 3 B per key"}
    assert metadata["dstl/goes_back_to"] == "2026-03-03"
    columns = ("epoch", "lag", "run", "missing before", "state", "log to base", "checkpoint")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("2026-03-03", "-1 h", 1, 0, "retained", "0.50", 6),
        ("2026-03-02", "4 d", 2, 0, "retained", "0.40", 5),
        ("2026-03-05", "40 s", 1, 0, "undone", "0.30", 4),
        ("2026-03-02", "2 d 3 h", 1, 0, "undone", "0.20", 3),
        ("2026-03-01", "5 min", 1, 0, "current", "0.10", 2),
    ]
    assert metadata["dstl/restatements"] == 1
    assert metadata["dstl/windows_left_out"] == 0
    assert metadata["dstl/retained_checkpoints"] == 2
    assert metadata["dstl/windows_behind"] == 5  # 4 to 8 March; the 9th has not ended
    before = EpochsPage(history[:4], 30, frozenset(), NOON).metadata(is_last=False)
    assert before["dstl/windows_left_out"] == 2
    assert [row.data["missing before"] for row in before["dstl/epochs"].records] == [2, 0, 0]
    assert "dstl/windows_behind" not in before


def test_a_page_of_inputs_without_windows_and_of_many_epochs_is_bounded() -> None:
    facts = [
        EpochFacts(kind="epoch", input=InputFacts(id=f"file-{n:04}", rows=1, hash_sum="0" * 16))
        for n in range(1000)
    ]
    history = [
        CompletedCheckpoint(n + 1, n or None, "0" * 64, 0, facts_of_epoch)
        for n, facts_of_epoch in enumerate(facts)
    ]
    metadata = EpochsPage(history, None, frozenset(), NOON).metadata(is_last=True)
    rows = [dict(each.data) for each in metadata["dstl/epochs"].records]
    assert len(rows) == SHOWN_EPOCHS
    assert (rows[0]["epoch"], rows[0]["lag"], rows[0]["log to base"]) == ("file-0999", "", "")
    assert "dstl/windows_behind" not in metadata
    empty = EpochsPage([BASE], 0, frozenset(), NOON).metadata(is_last=True)
    assert empty["dstl/epochs"].records == []
