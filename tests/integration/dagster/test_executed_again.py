"""Runs that Dagster executes again, and runs with copied options: a rewind belongs to one run."""

import itertools
from typing import Any

import dagster as dg
import pytest

from dstl_dagster import DstlStorageResource
from dstl_dagster.pipelines.run_options import REWOUND_BY_TAG, REWOUND_UNTIL_TAG
from tests.integration.dagster.corrected_days import CorrectedDays
from tests.integration.dagster.small_pipeline import (
    PAYMENTS,
    ROWS,
    expected_totals,
    payments,
    totals_in,
)

pytestmark = pytest.mark.dagster
FIRST, SECOND, THIRD = "2026-01-01", "2026-01-02", "2026-01-03"
BY_CONFIG = {"run_config": {"ops": {"payments_state": {"config": {"rewind_to": SECOND}}}}}
BY_TAG = {"tags": {"dstl/rewind": "true"}}


class Days(CorrectedDays):
    """Days, their corrected rows, and runs again."""

    def __init__(self, storage: DstlStorageResource, instance: dg.DagsterInstance) -> None:
        super().__init__(storage, instance)
        self.corrected: dict[str, list[tuple[str, int]]] = {}

    def rows_of(self, day: str) -> Any:
        return payments(*self.corrected.get(day, ROWS[day]))

    def again(self, run: dg.DagsterRun, day: str = SECOND) -> dg.DagsterRun:
        """As ``DagsterInstance.create_reexecuted_run`` does with the tags of the parent."""
        tags = {**run.tags, "dagster/parent_run_id": run.run_id, "dagster/root_run_id": run.run_id}
        return self.run(day, tags=tags, run_config=run.run_config)

    def copied(self, run: dg.DagsterRun, **config: Any) -> dg.DagsterRun:
        """As the launchpad opens with the options of a run."""
        return self.run(SECOND, tags=run.tags, run_config=config or run.run_config)

    def rewinds(self) -> int:
        """How often an epoch went back, by the commit log."""
        commits = list(PAYMENTS.store(self.storage).commits())[::-1]
        epochs = [each for each in commits if each.facts.kind == "epoch"]
        ids = [each.facts.input.id for each in epochs if each.facts.input is not None]
        return sum(one >= other for one, other in itertools.pairwise(ids))

    def check(self) -> None:
        """The state is that of the corrected days, by hand."""
        rows = {day: self.corrected.get(day, ROWS[day]) for day in (FIRST, SECOND, THIRD)}
        totals: dict[str, tuple[int, int, int]] = {}
        for day in rows:
            for account, amount in rows[day]:
                count, total, largest = totals.get(account, (0, 0, amount))
                totals[account] = (count + 1, total + amount, max(largest, amount))
        assert totals_in(self.storage) == totals


@pytest.fixture
def days(storage: DstlStorageResource, instance: dg.DagsterInstance) -> Days:
    """Three days ran, and then the second one was corrected."""
    done_days = Days(storage, instance)
    for day in (FIRST, SECOND, THIRD):
        assert done_days.run(day).is_success
    assert totals_in(storage) == expected_totals(FIRST, SECOND, THIRD)
    done_days.corrected[SECOND] = [("account-1", 1000)]
    return done_days


@pytest.mark.parametrize("asked", [BY_CONFIG, BY_TAG], ids=["config", "tag"])
def test_a_run_that_has_gone_back_is_executed_again_without_going_back(
    days: Days, asked: dict[str, Any]
) -> None:
    first = days.run(SECOND, **asked)
    days.check()
    assert (first.is_success, days.rewinds()) == (True, 1)
    second = days.again(first)
    assert (second.is_success, days.rewinds()) == (True, 1)
    days.check()
    # A further correction is refused, with the way on, and a new run goes that way.
    days.corrected[SECOND] = [("account-1", 2000)]
    assert not days.again(first).is_success
    assert not days.again(second).is_success
    assert days.rewinds() == 1
    assert days.run(SECOND, **asked).is_success
    assert days.rewinds() == 2
    days.check()


@pytest.mark.parametrize("asked", [BY_CONFIG, BY_TAG], ids=["config", "tag"])
@pytest.mark.parametrize("fails_at", [SECOND, THIRD], ids=["before", "after"])
def test_a_run_that_failed_is_executed_again_and_goes_back_once(
    days: Days, asked: dict[str, Any], fails_at: str
) -> None:
    days.failing = fails_at
    failed = days.run(SECOND, **asked)
    assert not failed.is_success
    again = days.again(failed)  # the source is still away
    assert not again.is_success
    days.failing = None
    done = days.again(again)
    assert (done.is_success, days.rewinds()) == (True, 1)
    days.check()
    assert days.again(done).is_success
    assert days.rewinds() == 1


@pytest.mark.parametrize("asked", [BY_CONFIG, BY_TAG], ids=["config", "tag"])
def test_a_run_that_ended_before_it_noted_its_rewind_runs_all_windows_that_it_undid(
    days: Days, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is there, and the third day is undone."""

    def killed(*arguments: Any) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("dstl_dagster.pipelines.epoch_runs.mark_rewound", killed)
        failed = days.run(SECOND, **asked)
    assert (failed.is_success, days.rewinds()) == (False, 1)
    assert days.again(failed).is_success
    days.check()


def test_options_that_the_launchpad_copied_ask_for_a_rewind_of_their_own(days: Days) -> None:
    first = days.run(SECOND, **BY_CONFIG)
    days.corrected[SECOND] = [("account-2", 7)]
    second = days.copied(first)
    assert second.is_success
    days.check()
    days.corrected[FIRST] = [("account-3", 5)]
    third = days.copied(second, ops={"payments_state": {"config": {"rewind_to": FIRST}}})
    assert third.is_success
    days.check()
    assert days.rewinds() == 3
    assert third.tags[REWOUND_BY_TAG] == third.run_id
    assert third.tags[REWOUND_UNTIL_TAG] == THIRD


def test_a_run_of_another_day_with_copied_tags_runs_that_day_alone(days: Days) -> None:
    first = days.run(SECOND, **BY_TAG)
    assert days.run("2026-01-04", tags=first.tags).is_success
    epochs = [each for each in PAYMENTS.store(days.storage).commits() if each.facts.input]
    assert next(each.facts.input.id for each in epochs) == "2026-01-04"
    assert days.rewinds() == 1


def test_a_gap_that_one_run_may_leave_is_not_left_by_the_next(days: Days) -> None:
    config = {"ops": {"payments_state": {"config": {"allow_gap": True}}}}
    first = days.run("2026-01-05", run_config=config)
    assert first.is_success
    again = days.again(first, "2026-01-05")
    assert again.is_success  # it is committed
    assert not days.again(first, "2026-01-07").is_success
    assert days.run("2026-01-07", run_config=config).is_success


def test_a_run_that_fails_does_not_show_the_checkpoint_of_the_run_that_it_repeats(
    days: Days,
) -> None:
    first = days.run(SECOND, **BY_CONFIG)
    assert first.tags["dstl/checkpoint_id"].isdecimal()
    days.failing = SECOND
    failed = days.again(first)
    assert failed.tags["dstl/checkpoint_id"] == "none yet"
