"""Gives the micro-batches of streams ascending input ids, by stream and number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint

STREAM_NOTE = "stream"
"""The note of a commit with the stream of its input, and its number in it."""


@dataclass(frozen=True)
class MicroBatch:
    """The place of a micro-batch among the inputs of a pipeline.

    Args:
        input_id: Its input id.
        notes: What its commit notes.
        before: The stream whose batches came before, if it is another one.
    """

    input_id: str | int
    notes: dict[str, Any]
    before: str | None = None


def micro_batch(line: Iterable[CompletedCheckpoint], stream: str | None, number: int) -> MicroBatch:
    """The place of a micro-batch.

    The batches of a stream that lost its progress begin with 0 again, and are other batches. So the
    ids of another stream continue those of the one before.

    Args:
        line: The lineage of the latest commit, newest first.
        stream: The id of the stream; None if it is not known: the numbers are the ids.
        number: The number of the batch in its stream.
    """
    if stream is None:
        return MicroBatch(number, {})
    notes = {STREAM_NOTE: {"query": stream, "number": number}}
    last, before = None, None
    for commit in line:
        if commit.facts.input is None:
            continue
        input_id, note = commit.facts.input.id, commit.facts.notes.get(STREAM_NOTE)
        if last is None:
            if not isinstance(note, dict) or not isinstance(input_id, int):
                break  # an input of run(), or of an earlier release, whose ids are the numbers
            last, before = input_id, note["query"]
        if isinstance(note, dict) and note["query"] == stream:
            if note["number"] == number:
                return MicroBatch(input_id, notes)
            if note["number"] < number:
                break
    if last is None:
        return MicroBatch(number, notes)
    return MicroBatch(last + 1, notes, None if before == stream else before)
