"""Stored output is kept, read and deleted by the commit log, whatever folders are beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.checkpoint.store.epoch_facts import EpochFacts
from dstl_core.checkpoint.store.kept_outputs import KeptOutputs, current_outputs
from tests.examples import examples
from tests.unit.checkpoint.pipeline import Pipeline, metadata

LIMITS = st.one_of(st.none(), st.integers(1, 4))
STEPS = st.lists(
    st.one_of(
        st.sampled_from(["epoch", "epoch", "silent epoch", "killed", "killed before it deletes"]),
        st.tuples(st.just("rewind"), st.integers(1, 5)),
        st.tuples(st.just("new owner"), LIMITS),
    ),
    min_size=1,
    max_size=30,
)


@dataclass
class Model:
    """What a plain reading of the rule expects of ids of epochs; ``line`` is oldest first."""

    num_retained: int | None
    line: list[int] = field(default_factory=list)
    with_output: set[int] = field(default_factory=set)
    kept: set[int] = field(default_factory=set)
    stored: set[int] = field(default_factory=set)

    def write(self, number: int) -> None:
        self.stored.add(number)

    def commit(self, number: int, *, output: bool) -> None:
        self.line.append(number)
        if output:
            self.with_output.add(number)
            self.kept.add(number)
        if self.num_retained is not None:
            epochs = [each for each in self.line if each in self.with_output & self.kept]
            if len(epochs) >= self.num_retained:
                oldest = epochs[-self.num_retained]
                self.kept = {each for each in self.kept if each >= oldest}

    def retire(self) -> None:
        self.stored -= self.with_output - self.kept

    def current(self) -> list[int]:
        return [each for each in self.line if each in self.kept]


class Driver:
    """Writes output and commits it, as a job does."""

    def __init__(self, path: Path, num_retained: int | None) -> None:
        self.pipeline = Pipeline(path)
        self.base = self.pipeline.write("taskowned/base")
        self.owners = 0
        self.store = self.new_owner(num_retained)

    def new_owner(self, num_retained: int | None) -> CompletedCheckpointStore:
        self.owners += 1
        self.store = self.pipeline.store(num_retained_outputs=num_retained)
        self.store.claim(f"owner {self.owners}")
        return self.store

    def write_output(self) -> int:
        number = self.store.next_checkpoint_id()
        place = self.pipeline.layout.output(number).child("rows.parquet")
        self.pipeline.files.write_new(place, b"rows")
        return number

    def commit(self, number: int, restored_from: int | None, *, output: bool) -> None:
        names = ("rows.parquet",) if output else ()
        facts = EpochFacts(output_files=names, restored_from=restored_from)
        self.store.commit(metadata(number, self.base), facts)

    def outputs(self) -> set[int]:
        folder = self.pipeline.layout.output(0).parent
        names = [each.location.name for each in self.pipeline.files.list_folder(folder)]
        return {int(name.removeprefix("chk-")) for name in names}


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(steps=STEPS, num_retained=LIMITS)
def test_the_log_says_whose_output_is_kept(
    steps: list[str | tuple[str, int | None]], num_retained: int | None
) -> None:
    with TemporaryDirectory() as folder:
        driver, model = Driver(Path(folder), num_retained), Model(num_retained)
        for step in steps:
            match step:
                case "killed":
                    model.write(driver.write_output())
                    driver.new_owner(model.num_retained)
                    continue
                case ("new owner", limit):
                    model.num_retained = limit
                    driver.new_owner(limit)
                    continue
                case ("rewind", int(back)):
                    del model.line[-back:]
            output = step != "silent epoch"
            number = driver.write_output() if output else driver.store.next_checkpoint_id()
            if output:
                model.write(number)
            # Nothing is before the first commit, so a rewind past it starts a lineage anew.
            restored_from = model.line[-1] if model.line else (0 if number > 1 else None)
            driver.commit(number, restored_from, output=output)
            model.commit(number, output=output)
            check_reading(driver, model)
            if step == "killed before it deletes":
                driver.new_owner(model.num_retained)
            elif model.num_retained is not None:
                driver.store.retire_outputs()
                model.retire()
            assert driver.outputs() == model.stored


def check_reading(driver: Driver, model: Model) -> None:
    """Readers go by the log alone: they see the limit at once, and never a folder beside it."""
    store = driver.pipeline.store()
    store.refresh()
    ids = [each.checkpoint_id for each in current_outputs(store.commits())]
    assert ids == model.current()
    everything = KeptOutputs.of(store.commits())
    for number in sorted(model.with_output):
        assert everything.keeps(number) == (number in model.kept)
        assert KeptOutputs.of(store.commits(), number).keeps(number) == (number in model.kept)


def test_an_owner_that_lost_its_claim_deletes_no_output(tmp_path: Path) -> None:
    driver = Driver(tmp_path, 1)
    for _ in range(2):
        number = driver.write_output()
        driver.commit(number, number - 1 or None, output=True)
    lost, _ = driver.store, driver.new_owner(1)
    assert lost.retire_outputs() == []
    assert driver.outputs() == {1, 2}
    assert driver.store.retire_outputs() == [1]
    assert driver.outputs() == {2}
