"""Which output is loaded downstream is decided by the commit log. Nothing here needs Spark."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dstl_core.checkpoint.store.epoch_facts import EpochFacts, InputFacts, Kind, OperatorFacts
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.errors import StateFileNotFoundError
from dstl_core.model.ids import JobID
from dstl_core.storage.location import Location
from dstl_dagster.snapshots.stored_rows import committed_output
from tests.unit.checkpoint.pipeline import Pipeline, metadata

pytestmark = pytest.mark.dagster
NAME, UID = "orders", "totals"


class Epochs:
    """Epochs of a job that keeps the output of its last two; a row in each of two files."""

    def __init__(self, path: Path) -> None:
        base = Location.parse(path / "base")
        self.pipeline = Pipeline(base, job_id=JobID.for_name(NAME).hex)
        self.state = self.pipeline.write("taskowned/base")
        self.writer = self.pipeline.store(num_retained=9, num_retained_outputs=2)
        self.writer.claim("owner")
        self.reader = PipelineStore(str(base), NAME)

    def run(self, day: str, *, kind: Kind = "epoch", restored_from: int | None = None) -> int:
        number = self.writer.next_checkpoint_id()
        files = self.write(number, day)
        facts = EpochFacts(
            kind=kind,
            input=InputFacts(id=day, rows=2, hash_sum="0" * 16) if kind == "epoch" else None,
            notes={"window": {"key": day}} if kind == "epoch" else {},
            restored_from=(number - 1 or None) if restored_from is None else restored_from,
            output_files=files,
            operators={UID: OperatorFacts(output_rows=2, output_files=files)},
        )
        self.writer.commit(metadata(number, self.state), facts)
        return number

    def write(self, number: int, day: str) -> tuple[str, ...]:
        folder = self.pipeline.layout.output(number)
        names = ("a.parquet", "b.parquet")
        for name in names:
            sink = pa.BufferOutputStream()
            pq.write_table(pa.table({"day": [day], "file": [name[0]]}), sink)
            self.pipeline.files.write_new(folder.child(name), sink.getvalue().to_pybytes())
        return names

    def loaded(self, keys: Sequence[str] | None = None) -> list[str]:
        rows = committed_output(self.reader, NAME, UID, keys).in_arrow().to_pylist()
        return [row["day"] + row["file"] for row in rows]


def test_output_that_the_log_ended_is_not_loaded_although_its_files_are_there(
    tmp_path: Path,
) -> None:
    """The driver was killed after the commit, and half of the files are deleted."""
    epochs = Epochs(tmp_path)
    first, _, _ = (epochs.run(day) for day in "123")
    epochs.pipeline.files.delete(epochs.pipeline.layout.output(first).child("a.parquet"))
    assert epochs.loaded() == ["2a", "2b", "3a", "3b"]
    with pytest.raises(StateFileNotFoundError, match=r"no longer kept for 1 of 2 windows \(1\)"):
        epochs.loaded(["1", "2"])
    assert epochs.loaded(["2"]) == ["2a", "2b"]


def test_output_of_killed_drivers_and_of_undone_epochs_takes_no_place(tmp_path: Path) -> None:
    epochs = Epochs(tmp_path)
    first, second = epochs.run("1"), epochs.run("2")
    for attempt in range(3):
        epochs.write(epochs.writer.next_checkpoint_id(), "3")
        epochs.writer.claim(f"driver {attempt}")
    epochs.run("3", restored_from=second)
    assert epochs.writer.retire_outputs() == [first]
    assert epochs.loaded() == ["2a", "2b", "3a", "3b"]
    epochs.run("2", restored_from=first)
    assert epochs.loaded() == ["2a", "2b"]


def test_committed_output_whose_file_is_lost_is_an_error(tmp_path: Path) -> None:
    epochs = Epochs(tmp_path)
    number = epochs.run("1")
    epochs.pipeline.files.delete(epochs.pipeline.layout.output(number).child("b.parquet"))
    with pytest.raises(StateFileNotFoundError, match=r"b\.parquet"):
        epochs.loaded()


def test_the_output_of_a_drain_is_output_of_the_latest_state(tmp_path: Path) -> None:
    epochs = Epochs(tmp_path)
    epochs.run("1")
    epochs.run("end", kind="drain")
    assert epochs.loaded() == ["1a", "1b", "enda", "endb"]
