"""The ids of micro-batches: by stream and number, in the order in which they are applied."""

from __future__ import annotations

from typing import Any

import pytest

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import EpochFacts, InputFacts
from dstl_core.job.coordination.micro_batches import micro_batch


class Pipeline:
    """The lineage of a pipeline that streams write to."""

    def __init__(self) -> None:
        self.line: list[CompletedCheckpoint] = []

    def commit(self, input_id: Any, notes: Any) -> None:
        facts = EpochFacts(input=InputFacts(id=input_id, rows=1, hash_sum="0"), notes=notes)
        number = len(self.line)
        self.line.insert(0, CompletedCheckpoint(number, number - 1, "", 0, facts))

    def apply(self, stream: str | None, number: int) -> int:
        """Applies a micro-batch; its input id."""
        batch = micro_batch(self.line, stream, number)
        if batch.input_id not in [commit.facts.input.id for commit in self.line]:  # type: ignore[union-attr]
            self.commit(batch.input_id, batch.notes)
        return batch.input_id


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline()


def test_a_batch_that_is_repeated_keeps_its_id(pipeline: Pipeline) -> None:
    assert [pipeline.apply("a", number) for number in (0, 1, 1, 2, 0, 3)] == [0, 1, 1, 2, 0, 3]


def test_a_stream_that_lost_its_progress_goes_on(pipeline: Pipeline) -> None:
    assert [pipeline.apply("a", number) for number in (0, 1)] == [0, 1]
    assert [pipeline.apply("b", number) for number in (0, 0, 1)] == [2, 2, 3]
    assert micro_batch(pipeline.line, "c", 0).before == "b"
    assert micro_batch(pipeline.line, "b", 2).before is None


def test_streams_take_turns(pipeline: Pipeline) -> None:
    turns = [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("b", 1), ("a", 0), ("a", 2)]
    assert [pipeline.apply(*turn) for turn in turns] == [0, 1, 2, 3, 3, 0, 4]


def test_the_ids_of_an_earlier_release_are_the_numbers(pipeline: Pipeline) -> None:
    for number in range(3):
        pipeline.commit(number, {})
    assert pipeline.apply("a", 2) == 2
    assert [pipeline.apply("a", number) for number in (3, 4)] == [3, 4]


def test_without_the_id_of_a_stream_the_numbers_are_the_ids(pipeline: Pipeline) -> None:
    assert [pipeline.apply(None, number) for number in (0, 1)] == [0, 1]
    assert micro_batch(pipeline.line, None, 1).notes == {}
