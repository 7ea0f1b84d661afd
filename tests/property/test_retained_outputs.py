"""Stored output is kept and deleted by the commit log, whatever folders are beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.checkpoint.store.epoch_facts import EpochFacts
from tests.unit.checkpoint.pipeline import Pipeline, metadata

STEPS = st.lists(
    st.sampled_from(["epoch", "epoch", "epoch", "silent epoch", "killed", "rewind", "new owner"]),
    min_size=1,
    max_size=30,
)


@dataclass
class Model:
    """What a plain reading of the rule expects: ids of epochs, oldest first."""

    num_retained: int
    line: list[int] = field(default_factory=list)
    with_output: set[int] = field(default_factory=set)
    there: set[int] = field(default_factory=set)
    killed: set[int] = field(default_factory=set)

    def commit(self, number: int, *, output: bool) -> None:
        self.line.append(number)
        if output:
            self.with_output.add(number)
            self.there.add(number)
        epochs = [each for each in self.line if each in self.with_output]
        self.there = self.killed | (self.there & set(epochs[-self.num_retained :]))

    def kill(self, number: int) -> None:
        self.killed.add(number)
        self.there.add(number)


class Driver:
    """Writes output and commits it, as a job does."""

    def __init__(self, path: Path) -> None:
        self.pipeline = Pipeline(path)
        self.base = self.pipeline.write("taskowned/base")
        self.owners = 0
        self.store = self.new_owner()

    def new_owner(self) -> CompletedCheckpointStore:
        self.owners += 1
        self.store = self.pipeline.owner(f"owner {self.owners}")
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


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, num_retained=st.integers(1, 4), back=st.integers(1, 5))
def test_the_output_of_the_last_epochs_of_the_latest_state_is_kept(
    steps: list[str], num_retained: int, back: int
) -> None:
    with TemporaryDirectory() as folder:
        driver, model = Driver(Path(folder)), Model(num_retained)
        for step in steps:
            if step == "killed":
                model.kill(driver.write_output())
                driver.new_owner()
                continue
            if step == "new owner":
                driver.new_owner()
                continue
            if step == "rewind":
                del model.line[-back:]
            output = step != "silent epoch"
            number = driver.write_output() if output else driver.store.next_checkpoint_id()
            # Nothing is before the first commit, so a rewind past it starts a lineage anew.
            restored_from = model.line[-1] if model.line else (0 if number > 1 else None)
            driver.commit(number, restored_from, output=output)
            model.commit(number, output=output)
            driver.store.retire_outputs(num_retained)
            assert driver.outputs() == model.there


def test_an_owner_that_lost_its_claim_deletes_no_output(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    for _ in range(2):
        number = driver.write_output()
        driver.commit(number, number - 1 or None, output=True)
    lost, _ = driver.store, driver.new_owner()
    assert lost.retire_outputs(1) == []
    assert driver.outputs() == {1, 2}
    assert driver.store.retire_outputs(1) == [1]
    assert driver.outputs() == {2}
