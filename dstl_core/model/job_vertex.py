"""The max parallelism of job vertices.

A job vertex is a chain of operators that run in one task. Flink keeps one max parallelism for a
vertex, but ``_metadata`` has one for each operator, and no vertices. On restore Flink compares
every operator of ``_metadata``, also one without state. A vertex that sets another number refuses.
A vertex that sets none takes the number of its operators, one after the other, so the last one
wins. Keyed state with another number is then looked up in wrong key groups: RocksDB finds no value
and reports no error. So all operators of a vertex need the same number.

A number of 1 is never a default, since Flink's defaults start at 128. The operator is not parallel:
``windowAll``, a global committer, an aggregate of SQL without keys.

Source: ``Checkpoints.loadAndValidateCheckpoint``,
``StateAssignmentOperation.checkParallelismPreconditions`` and
``SingleOutputStreamOperator.forceNonParallel`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NOT_PARALLEL = 1
"""The max parallelism of an operator that must not be parallel."""
MIXED_SHOWN = 5
"""Operators that a message names."""


@dataclass(frozen=True)
class MaxParallelismChange:
    """The max parallelism that operators of a snapshot get when the snapshot is written.

    Args:
        wanted: The new number; None keeps the number of each operator.
        all_change: Whether operators with the number 1 change, too.
    """

    wanted: int | None
    all_change: bool

    @classmethod
    def of(cls, stored: Iterable[int], wanted: int | None) -> MaxParallelismChange:
        """The change for a snapshot.

        Operators with the number 1 keep it, unless all operators have it: then the job set it for
        all of them.

        Args:
            stored: The number of each operator of the snapshot.
            wanted: The number that a person asks for.
        """
        return cls(wanted, all(number == NOT_PARALLEL for number in stored))

    def new(self, stored: int) -> int:
        """The number to write for an operator."""
        if self.wanted is None or (stored == NOT_PARALLEL and not self.all_change):
            return stored
        return self.wanted


@dataclass(frozen=True)
class VertexMember:
    """An operator of a snapshot and its place in a job.

    Args:
        name: What messages call it.
        stored: Its max parallelism in the snapshot.
        job: Its max parallelism and its parallelism in the job; None where they are not known.
            Operators of one vertex have the same two numbers.
        is_keyed: Whether it has keyed state.
    """

    name: str
    stored: int
    job: tuple[int | None, int | None]
    is_keyed: bool = False


def mixed_vertices(members: Iterable[VertexMember]) -> list[Sequence[VertexMember]]:
    """Operators with several stored numbers that may run in one vertex of the job.

    Only groups with keyed state count: the number does not matter to other state.
    """
    groups: dict[tuple[int | None, int | None], list[VertexMember]] = defaultdict(list)
    for member in members:
        is_apart = member.stored == NOT_PARALLEL and member.job[0] is None
        if not is_apart:
            groups[member.job].append(member)
    return [
        group
        for group in groups.values()
        if len({member.stored for member in group}) > 1 and any(each.is_keyed for each in group)
    ]


def numbers_for_job(members: Sequence[VertexMember]) -> list[int]:
    """The number to write for each operator of a job whose operators are known.

    An operator keeps its number. It gets the number of the job if operators that may run in one
    vertex have several numbers, or if it is parallel in only one of the snapshot and the job.
    """
    mixed = {id(each) for group in mixed_vertices(members) for each in group}
    numbers = []
    for member in members:
        number = member.job[0]
        is_forced = NOT_PARALLEL in (number, member.stored)
        numbers.append(
            number if number is not None and (is_forced or id(member) in mixed) else member.stored
        )
    return numbers


def advice_for(stored: int, wanted: int) -> str:
    """What a person can do if a job sets another max parallelism than a snapshot has."""
    if NOT_PARALLEL in (stored, wanted):
        return (
            f"a rewrite keeps operators at {NOT_PARALLEL}, so give the operator the max "
            f"parallelism {stored} in the job"
        )
    return f"dstl rewrite --max-parallelism {wanted} writes that number for all operators"


def text_of_mixed(group: Sequence[VertexMember]) -> str:
    """Says what may happen to operators of ``mixed_vertices``, and what a person can do."""
    numbers = ", ".join(f"{each.name} {each.stored}" for each in group[:MIXED_SHOWN])
    more = f" and {len(group) - MIXED_SHOWN} more" if len(group) > MIXED_SHOWN else ""
    return (
        f"operators that may run in one vertex have several max parallelisms ({numbers}{more}): "
        f"Flink takes one of them for the vertex, and keys can be lost without an error; dstl "
        f"rewrite --max-parallelism N writes one number for all operators"
    )
