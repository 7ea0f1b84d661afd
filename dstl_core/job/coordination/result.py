"""The result of an epoch, and the commits of a pipeline as notebooks show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import EpochFacts, OperatorFacts
from dstl_core.display import html_table, html_text, moment_text, size_text
from dstl_core.savepoint.report.charts import bars

SHOWN = 20
"""Commits in the table of a notebook."""


@dataclass(frozen=True)
class EpochResult:
    """The result of one epoch. If ``committed_before``, it is the stored result and nothing ran.

    Outputs are rows of the job's engine: DataFrames on Spark. ``output`` is the output of the last
    operator that has one. ``outputs`` has the output of each operator by uid, and late rows of
    windows by ``<uid>.late``. With ``output_retired`` both are missing: the epoch was committed
    before, and its output is no longer kept. An output that it did not store, since the job had no
    such output then, is missing, too.
    """

    checkpoint: CompletedCheckpoint
    committed_before: bool
    output: Any
    seconds: float
    outputs: Mapping[str, Any] = field(default_factory=dict)
    commit_seconds: float = 0.0
    output_retired: bool = False

    @property
    def facts(self) -> EpochFacts:
        """The facts of the epoch in its commit record."""
        return self.checkpoint.facts

    def __str__(self) -> str:
        facts = self.facts
        epoch_input = facts.input
        assert epoch_input is not None, "an epoch of a batch has an input"
        name = f"epoch {printable(epoch_input.id)}, checkpoint {self.checkpoint.checkpoint_id}"
        if self.committed_before:
            return f"{name}: committed before, nothing ran"
        line = (
            f"{name}: {epoch_input.rows:,} rows, {facts.changed_keys:,} keys changed, "
            f"{facts.log_bytes:,} bytes of log, {self.seconds:.1f} s"
        )
        operators = "; ".join(_of_operators(facts.operators))
        return f"{line} ({operators}; commit {1000 * self.commit_seconds:,.0f} ms)"

    def __repr__(self) -> str:
        return f"<EpochResult: {self}>"

    def _repr_html_(self) -> str:
        rows = [
            (
                uid,
                f"{operator.apply_ms:,} ms",
                f"{operator.restore_ms:,} ms",
                f"{operator.persist_ms:,} ms",
            )
            for uid, operator in self.facts.operators.items()
        ]
        table = html_table(("operator", "apply", "restore", "persist"), rows)
        return f"<p>{html_text(str(self))}</p>{table}"


def printable(input_id: str | int) -> str:
    """An id as text on one line."""
    text = str(input_id)
    return text if text and text.isprintable() else repr(input_id)


def _of_operators(operators: Mapping[str, OperatorFacts]) -> list[str]:
    lines = []
    for uid, operator in operators.items():
        state = ", ".join(f"{count} {how}" for how, count in operator.warmth.items())
        times = (
            f"restore {operator.restore_ms:,} ms, apply {operator.apply_ms:,} ms, "
            f"persist {operator.persist_ms:,} ms"
        )
        retries = f", {operator.retries} retries" if operator.retries else ""
        late = f", {operator.late_rows:,} late rows" if operator.late_rows else ""
        lines.append(f"{uid}: {state}, {times}{retries}{late}")
    return lines


class JobHistory(list[CompletedCheckpoint]):
    """Commits, oldest first. A notebook shows the bytes that each added, and the last ones."""

    def _repr_html_(self) -> str:
        added = [_added(each) for each in self]
        text = f"{len(self):,} commits; bytes that each added, {size_text(sum(added))} in all"
        rows = [
            (
                str(commit.checkpoint_id),
                commit.facts.kind or "",
                "" if commit.facts.input is None else str(commit.facts.input.id),
                "" if commit.facts.input is None else f"{commit.facts.input.rows:,}",
                f"{commit.facts.changed_keys:,}",
                size_text(_added(commit)),
                f"{commit.facts.seconds:.1f} s",
                moment_text(commit.committed_ms),
            )
            for commit in self[-SHOWN:]
        ]
        heads = ("checkpoint", "kind", "input", "rows", "keys", "added", "time", "committed")
        chart = bars(added, text) if added else ""
        return (
            f'<p>{html_text(text)}.</p><div style="fill:#6e66e8">{chart}</div>'
            f"{html_table(heads, rows)}"
        )


def _added(commit: CompletedCheckpoint) -> int:
    return commit.facts.log_bytes + (commit.facts.materialized_bytes or 0)
