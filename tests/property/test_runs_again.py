"""What belongs to one run is not inherited: random runs, failures, repeats and copied options.

The expected commits are computed in Python, from what each run was asked for.
"""

import gc
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_dagster import DstlStorageResource
from examples.flights.run import RANGE_END, RANGE_START
from tests.examples import examples
from tests.integration.dagster.corrected_days import CorrectedDays
from tests.integration.dagster.small_pipeline import DAYS, PAYMENTS, payments, totals_in

pytestmark = pytest.mark.dagster
KEYS = DAYS.get_partition_keys()[:4]
ASKED = st.sampled_from(["nothing", "config", "tag"])
DAY, FAILS_AT = st.integers(0, 3), st.sampled_from([None, None, 0, 1, 2, 3])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("correct"), DAY),
        st.tuples(st.just("run"), DAY, ASKED, FAILS_AT),
        st.tuples(st.just("again"), st.integers(0, 5), FAILS_AT),
        st.tuples(st.just("again"), st.integers(0, 1), st.none()),
        st.tuples(st.just("copy"), st.integers(0, 5), FAILS_AT),
    ),
    min_size=3,
    max_size=6,
)


@dataclass
class Asked:
    """A run, and what is expected of it.

    Args:
        day: Its window.
        asked: How it asks for a rewind.
        repeats: The run that it executes again.
    """

    day: int
    asked: str
    repeats: "Asked | None" = None
    run: dg.DagsterRun = field(init=False)
    succeeds: bool = False
    until: int | None = None
    """The last window that it has to run again, if it has gone back."""

    @property
    def before(self) -> "list[Asked]":
        """The runs that it goes on with: those that it executes again, and that have failed."""
        runs: list[Asked] = []
        seen = self.repeats
        while seen is not None and not seen.succeeds:
            runs.append(seen)
            seen = seen.repeats
        return runs

    @property
    def is_done(self) -> bool:
        """Whether another run has done what it asks for."""
        first = [self, *self.before][-1].repeats
        return first is not None and first.succeeds


class Days(CorrectedDays):
    """Days, and the commits that they should have."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        super().__init__(DstlStorageResource(base_path=str(folder / "data")), instance)
        self.versions = dict.fromkeys(range(4), 0)
        self.fails_at: int | None = None
        self.runs: list[Asked] = []
        self.commits: dict[int, int] = {}
        """The windows that the state stands on, and which version of their rows it has."""
        self.rewinds = 0

    def rows_of(self, day: str) -> Any:
        number = KEYS.index(day)
        return payments((f"account-{number}", 10 * number + self.versions[number]), ("all", 1))

    # ----------------------------------------------------------------------------- what runs

    def start(self, asked: Asked, fails_at: int | None, **options: Any) -> None:
        self.fails_at = fails_at
        self.failing = None if fails_at is None else KEYS[fails_at]
        asked.run = self.run(KEYS[asked.day], **options)
        asked.succeeds = self.expect(asked)
        assert asked.run.is_success == asked.succeeds
        self.runs.append(asked)
        self.check()

    def first_three(self) -> None:
        """The days before, in one run."""
        span = {RANGE_START: KEYS[0], RANGE_END: KEYS[2]}
        assert self.job.execute_in_process(instance=self.instance, tags=span).success
        self.commits = dict.fromkeys(range(3), 0)

    def new(self, day: int, asked: str, fails_at: int | None) -> None:
        config = {"ops": {"payments_state": {"config": {"rewind_to": KEYS[day]}}}}
        options: dict[str, dict[str, Any]] = {
            "nothing": {},
            "config": {"run_config": config},
            "tag": {"tags": {"dstl/rewind": "true"}},
        }
        self.start(Asked(day, asked), fails_at, **options[asked])

    def again(self, old: Asked, fails_at: int | None) -> None:
        """As Dagster executes a run again: with its tags and its configuration."""
        run_id = old.run.run_id
        tags = {**old.run.tags, "dagster/parent_run_id": run_id, "dagster/root_run_id": run_id}
        asked = Asked(old.day, old.asked, old)
        self.start(asked, fails_at, tags=tags, run_config=old.run.run_config)

    def copy(self, old: Asked, fails_at: int | None) -> None:
        """As the launchpad opens with the options of a run. A tag says that it is done."""
        tags = {name: text for name, text in old.run.tags.items() if "dagster/" not in name}
        is_done = old.asked == "tag" and tags.get("dstl/rewind") != "true"
        asked = Asked(old.day, "nothing" if is_done else old.asked)
        self.start(asked, fails_at, tags=tags, run_config=old.run.run_config)

    # ------------------------------------------------------------------------- what is expected

    def expect(self, asked: Asked) -> bool:
        """Changes the expected commits; whether the run succeeds."""
        gone_back = [run.until for run in asked.before if run.until is not None]
        rewinds = asked.asked != "nothing" and not asked.is_done and not gone_back
        last = max(self.commits, default=asked.day)
        windows = [asked.day]
        if rewinds or gone_back:
            windows = [*range(asked.day, max(last, asked.day, *gone_back) + 1)]
        for number, day in enumerate(windows):
            first = rewinds and number == 0
            goes_on = {at for at in self.commits if not first or at < day}
            if day not in goes_on and day != len(goes_on):
                return False  # windows before it are missing
            if self.fails_at == day:
                return False
            if day in goes_on and self.commits[day] != self.versions[day]:
                return False  # it was committed with other rows
            if first:
                is_there = day == max(self.commits) and self.commits[day] == self.versions[day]
                if is_there:
                    continue  # the last window with the same rows: nothing runs
                self.rewinds += day in self.commits
                self.commits = {at: self.commits[at] for at in goes_on}
                asked.until = windows[-1]
            self.commits.setdefault(day, self.versions[day])
        return True

    def check(self) -> None:
        store = PAYMENTS.store(self.storage)
        if store.latest() is None:
            assert self.commits == {}
            return
        ids = [
            commit.facts.input.id
            for commit in reversed(list(store.commits()))
            if commit.facts.kind == "epoch" and commit.facts.input is not None
        ]
        assert sum(one >= other for one, other in pairwise(ids)) == self.rewinds
        expected = {
            f"account-{day}": (1, 10 * day + version, 10 * day + version)
            for day, version in self.commits.items()
        }
        if self.commits:
            expected["all"] = (len(self.commits), len(self.commits), 1)
        assert totals_in(self.storage) == expected


@settings(max_examples=examples(20), deadline=None)
@given(STEPS)
def test_a_rewind_belongs_to_one_run(steps: list[tuple[Any, ...]]) -> None:
    gc.collect()  # what other tests have left, as the fixture ``instance`` of Dagster's tests does
    with TemporaryDirectory() as folder, dg.DagsterInstance.ephemeral(folder) as instance:
        days = Days(Path(folder), instance)
        days.first_three()
        for step in steps:
            fresh = [run for run in days.runs if run.repeats is None]
            match step:
                case ("correct", day):
                    days.versions[day] += 1
                case ("run", day, asked, fails_at):
                    days.new(day, asked, fails_at)
                case ("again", back, fails_at) if days.runs:
                    days.again(days.runs[-1 - back % len(days.runs)], fails_at)
                case ("copy", back, fails_at) if fresh:
                    days.copy(fresh[-1 - back % len(fresh)], fails_at)
