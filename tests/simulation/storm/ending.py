"""After the storm: is everything there, once?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.simulation.storm.pipeline import (
    expected,
    has_output,
    inputs_of,
    output_of,
    state_of,
    store_of,
)
from tests.simulation.storm.verifier import problems_of
from tests.simulation.storm.world import Counts, StormError


@dataclass(frozen=True)
class Ending:
    """What was found when all was quiet."""

    commits: int
    """Epochs that the latest state stands on."""
    confirmed: int
    """Of the commits that drivers were told of."""
    doubled: int
    """Inputs that were committed more than once."""
    retained: int
    problems: list[str]
    """Of the checkpoints that are retained."""
    outputs: int
    """Stored outputs that were read and compared."""

    def __str__(self) -> str:
        return (
            f"{self.confirmed} found, {self.doubled} doubled, {self.commits} commits in all, "
            f"{len(self.problems)} problems in {self.retained} retained checkpoints, "
            f"{self.outputs} outputs compared"
        )


def look(base: str, seed: int, counts: Counts, *, with_output: bool) -> Ending:
    """Compares the pipeline with what had to come out.

    Raises:
        StormError: State or output are not what plain Python says.
    """
    store = store_of(base)
    store.refresh()
    history = store.completed
    inputs = [*inputs_of(reversed(history))][::-1]
    standing = {
        past.checkpoint_id: (past.facts.input.id, past.metadata_sha256)
        for past in history
        if past.facts.input
    }
    in_order = set(inputs)
    confirmed = [
        told
        for told in counts.told.values()
        if standing.get(told.checkpoint) == (told.input, told.sha256) and told.input in in_order
    ]
    doubled = sum(
        count > 1 for count in Counter(number for number, _ in standing.values()).values()
    )
    problems = list(problems_of(store))
    ending = Ending(
        len(inputs),
        len(confirmed),
        doubled,
        len(problems),
        [each for some in problems for each in some],
        sum(map(has_output, inputs)) if with_output else 0,
    )
    where = f"seed {seed}, {base}"
    if inputs != list(range(len(inputs))):
        raise StormError(f"{where}: the inputs are not one after the other: {inputs}")
    state, outputs = expected(seed, len(inputs))
    latest = store.latest
    if latest is None or state_of(str(store.folder_of(latest))) != state:
        raise StormError(f"{where}: the state is not what plain Python says ({ending})")
    for commit in history if with_output else ():
        epoch_input = commit.facts.input
        if epoch_input is None or epoch_input.id not in outputs:
            continue
        if output_of(base, commit) != outputs[epoch_input.id]:
            raise StormError(
                f"{where}: the output of {epoch_input.id} is not what plain Python says"
            )
    if ending.confirmed != len(counts.told) or ending.doubled or ending.problems:
        raise StormError(f"{where}: {len(counts.told)} told, {ending}: {ending.problems}")
    return ending
