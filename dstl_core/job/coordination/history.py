"""The commits of a pipeline, as a list that notebooks show with a chart."""

from __future__ import annotations

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.savepoint.report.charts import bars
from dstl_core.shown import html_table, html_text, moment_text, size_text

SHOWN = 20
"""Commits in the table of a notebook."""


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
