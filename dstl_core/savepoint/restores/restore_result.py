"""The result of a check whether a job restores a snapshot, for every kind of job.

Source: readers of ``_metadata`` of Flink 1.20.5, 2.0.2, 2.1.3, 2.2.1 and 2.3.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dstl_core.errors import ConfigError, UnreadableValueError
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.read.snapshot_names import SnapshotNames
from dstl_core.savepoint.restores.job_match import Fate, OperatorFate
from dstl_core.state.tables.compatibility import FlinkVersion, Verdict, version_text

VERDICT_TEXTS = {
    Verdict.COMPATIBLE_AS_IS: "compatible",
    Verdict.AFTER_MIGRATION: "compatible after migration",
    Verdict.UNKNOWN: "unknown",
    Verdict.INCOMPATIBLE: "incompatible",
}
_LAST_METADATA: dict[FlinkVersion, int] = {(1, 20): 4, (2, 0): 5}
"""The newest version of ``_metadata`` that a Flink version reads; later versions read 6."""


@dataclass(frozen=True, slots=True)
class RestoreLine:
    """A verdict about an operator or one of its states, and the reason.

    ``fate`` says whether the job has it: ``unknown`` if the job does not show that.
    """

    operator: str
    verdict: Verdict
    reason: str = ""
    state: str | None = None
    kind: str | None = None
    fate: Fate = "matched"

    def to_json(self) -> dict[str, Any]:
        return {
            "op": self.operator,
            "kind": self.kind,
            "state": self.state,
            "verdict": VERDICT_TEXTS[self.verdict],
            "reason": self.reason,
        }

    def __str__(self) -> str:
        place = self.operator if self.state is None else f"{self.operator} {self.kind} {self.state}"
        text = f"{VERDICT_TEXTS[self.verdict]}: {place}"
        return f"{text}: {self.reason}" if self.reason else text


@dataclass(frozen=True)
class RestoreResult:
    """Whether a job restores a snapshot. The verdict is the worst of the lines.

    Args:
        path: Folder of the snapshot.
        expected: The job: the folder of its snapshot, its jar, or a text.
        flink: The version of Flink that restores.
        lines: The verdicts on operators and states, with their reasons.
        notes: Facts that are no problem.
        operators: The operators whose fate is known.
    """

    path: str
    expected: str
    flink: FlinkVersion
    lines: Sequence[RestoreLine]
    notes: Sequence[str] = ()
    operators: Sequence[OperatorFate] = ()

    @property
    def verdict(self) -> Verdict:
        return max((each.verdict for each in self.lines), default=Verdict.COMPATIBLE_AS_IS)

    @property
    def is_compatible(self) -> bool:
        """Whether the job restores the snapshot with all its values, perhaps after migration."""
        return self.verdict <= Verdict.AFTER_MIGRATION

    @property
    def summary(self) -> str:
        """The verdict in one line, with the number of states and the version of Flink."""
        states = sum(line.state is not None for line in self.lines)
        return f"{VERDICT_TEXTS[self.verdict]}: {states} states, Flink {version_text(self.flink)}"

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "expect": self.expected,
            "to": version_text(self.flink),
            "verdict": VERDICT_TEXTS[self.verdict],
            "ok": self.is_compatible,
            "lines": [each.to_json() for each in self.lines],
            "notes": list(self.notes),
        }


def metadata_lines(snapshot: Snapshot, flink: FlinkVersion) -> list[RestoreLine]:
    """A line if a version of Flink cannot read the ``_metadata`` of a snapshot."""
    version = snapshot.metadata.version
    last = _LAST_METADATA.get(flink, version)
    if version <= last:
        return []
    reason = f"Flink {version_text(flink)} reads versions up to {last}, got {version}"
    return [RestoreLine("_metadata", Verdict.INCOMPATIBLE, reason)]


def misplaced_lines(
    snapshot: Snapshot, flink: FlinkVersion, drop: DroppedState
) -> Iterator[RestoreLine]:
    """Lines for operator states whose elements Flink does not find, from what is stored."""
    for operator in snapshot.operators:
        kinds = {info.name: info.kind for info in operator.operator_states}
        try:
            elements = operator.misplaced_elements()
        except UnreadableValueError as error:
            reason = f"elements share compressed chunks, and cannot be separated: {error.what}"
            yield RestoreLine(operator.label, Verdict.UNKNOWN, reason)
            continue
        for name in sorted(elements):
            if drop.takes(operator.label) or drop.takes(operator.label, name):
                continue
            reason = (
                f"elements share compressed chunks, as Flink 1.18 writes them: Flink "
                f"{version_text(flink)} reads the first element of a chunk for all of them, "
                f"without an error; give each a place of its own (dstl rewrite, dstl upgrade)"
            )
            yield RestoreLine(operator.label, Verdict.INCOMPATIBLE, reason, name, kinds[name])


class DroppedState:
    """The operators and states that may be lost."""

    def __init__(self, snapshot: Snapshot, names: Sequence[str]) -> None:
        self._unused = list(dict.fromkeys(names))
        self._places: dict[tuple[str, str | None], str] = {}
        for name in self._unused:
            place = SnapshotNames(snapshot).operator_or_state("drop", name)
            self._places[place.operator.label, place.state] = name

    def takes(self, operator: str, state: str | None = None) -> bool:
        name = self._places.get((operator, state))
        if name in self._unused:
            self._unused.remove(name)
        return name is not None

    def check_used(self) -> None:
        """Raises ConfigError if a name matches no operator or state that would be lost."""
        if self._unused:
            raise ConfigError(
                f"{self._unused[0]!r} cannot be dropped: the new job has it, or the snapshot has "
                f"no such state; leave it out (drop, --drop)."
            )
