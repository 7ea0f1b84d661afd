"""A report as a value: its figures, its page, and the page as HTML in a notebook."""

from __future__ import annotations

import html
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dstl_core.clock import SystemClock
from dstl_core.display import size_text
from dstl_core.errors import ConfigError
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.access.units import Jobs
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.read.snapshot_names import SnapshotNames, ValuesOfStates
from dstl_core.savepoint.report.count_options import CountOptions
from dstl_core.savepoint.report.figures import report_figures
from dstl_core.savepoint.report.page import report_page
from dstl_core.savepoint.write.recorded_runner import RecordedRunner, record_in
from dstl_core.savepoint.write.work_record import stable
from dstl_core.state.columns.progress import Advance, no_progress
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location

_OPTION = "A time to live (ttls, --ttl)"
StateKey = tuple[OperatorID, str]


@dataclass(frozen=True)
class SnapshotReport:
    """What ``report_snapshot`` found. ``figures`` are what ``dstl report --json`` prints."""

    figures: Mapping[str, Any]

    def __repr__(self) -> str:
        figures = self.figures
        return (
            f"<SnapshotReport of {figures['path']}: {size_text(figures['bytes'])}, "
            f"{len(figures['operators'])} operators, {len(figures['attention'])} findings>"
        )

    @property
    def page(self) -> str:
        """One HTML page, without scripts. Equal figures give equal bytes."""
        return report_page(dict(self.figures))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the page into a file on a local disk or in any store.

        Raises:
            OSError: The file cannot be written.
        """
        location = Location.parse(path)
        if not location.is_local:
            page = self.page.encode(errors="backslashreplace")
            open_file_io(location).replace(location, page)
            return
        with open(location.path, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(self.page)

    def _repr_html_(self) -> str:
        """The page in a frame, so that its style does not change the notebook's."""
        page = html.escape(self.page, quote=True)
        return f'<iframe sandbox srcdoc="{page}" width="100%" height="600"></iframe>'


def report_snapshot(
    snapshot: Snapshot,
    *,
    compare: Snapshot | None = None,
    headers_only: bool = False,
    show_keys: bool = False,
    ttls: Mapping[str, int] | None = None,
    at_ms: int | None = None,
    on_progress: Advance = no_progress,
    jobs: Jobs = 1,
    work: str | os.PathLike[str] | None = None,
) -> SnapshotReport:
    """Reports on a savepoint or checkpoint: sizes, skew, hot keys, expiry, timers, growth.

    It reads every record, in bounded memory: a batch, and the keys of one key group.

    Args:
        snapshot: The snapshot.
        compare: An older snapshot, for growth.
        headers_only: Whether to read metadata and headers only, which gives sizes.
        show_keys: Whether keys and values are shown. Otherwise a key is the first 16 digits of
            the sha256 of its text.
        ttls: Times to live in milliseconds by ``STATE`` or ``OP/STATE``, to count what has expired;
            ``""`` is for all other states. A snapshot does not record them.
        at_ms: The moment that ages count to; by default when the snapshot was written.
        on_progress: Called with the bytes that were read; ``bytes_to_read`` is their sum.
        jobs: Number of processes that count keyed state; None: all cores if it is large.
        work: A folder for a record of what is done: after a kill, the same call goes on. With
            ``show_keys``, it has keys and values until the report is done.

    Raises:
        SavepointError: The folder ``work`` has a record of other work, or another run is at it.
        ConfigError: A name that ``ttls`` gives is of no state, or ambiguous; or no record is read;
            or there is no moment for ages, which ``work`` needs.
        FormatError: The state of a source or of a sink is damaged. Damage elsewhere is a finding.
    """
    if ttls and headers_only:
        raise ConfigError(
            "Times to live (ttls, --ttl) count records, and a report of headers only "
            "(headers_only, --headers-only) reads none; leave out one of the two."
        )
    own_ttls = _ttls_of_states(snapshot, ttls or {})
    contents = None
    if not headers_only:
        if at_ms is None:
            at_ms = snapshot.written_ms
        if at_ms is None and work is not None:
            raise ConfigError(
                f"The store of {snapshot.folder} gives files no times, and a report that goes on "
                f"after a kill (work, --work) needs one moment that ages count to; name it "
                f"(at_ms, --at)."
            )
        at_ms = SystemClock().now_ms() if at_ms is None else at_ms
        of_all: dict[str, int] = {name: ms for name, ms in (ttls or {}).items() if not name}
        contents = CountOptions(at_ms, show_keys=show_keys, ttls=of_all, own_ttls=own_ttls)
    if contents is None:
        return SnapshotReport(report_figures(snapshot, compare, on_progress=on_progress))
    with _recorded(snapshot, compare, contents, jobs, work) as runner:
        return SnapshotReport(
            report_figures(
                snapshot, compare, contents=contents, on_progress=on_progress, jobs=runner
            )
        )


@contextmanager
def _recorded(
    snapshot: Snapshot,
    compare: Snapshot | None,
    contents: CountOptions,
    jobs: Jobs,
    work: str | os.PathLike[str] | None,
) -> Iterator[Jobs]:
    """What counts keyed state: it keeps what is done in a record, if there is a folder for it."""
    older = None if compare is None else [compare.file.sha256, compare.loaded_with]
    plan = ["report", snapshot.loaded_with, older, stable(contents)]
    sources = [snapshot] if compare is None else [snapshot, compare]
    with record_in(work, sources, plan) as record:
        if record is None:
            yield jobs
            return
        from dstl_core.savepoint.report.kept_counts import CountsForm  # loads the compiler

        yield RecordedRunner(record, jobs, CountsForm(contents))


def _ttls_of_states(snapshot: Snapshot, ttls: Mapping[str, int]) -> dict[StateKey, int]:
    """The time to live of each state that is named, by operator and state.

    Raises:
        ConfigError: A name is ambiguous, of no keyed state, or of a state that has one already.
    """
    if not ttls:
        return {}
    names = SnapshotNames(snapshot)
    is_damaged = any(operator.problem() for operator in snapshot.operators)
    values = ValuesOfStates[int](names, _OPTION)
    for name, ttl_ms in ttls.items():
        # The report says what is damaged; its states have no known names.
        if name and (names.is_state(name) or not is_damaged):
            values.put(name, ttl_ms)
    by_state = {
        (operator.operator_id, info.name): values.get(operator.operator_id, info.name)
        for operator in snapshot.operators
        if not operator.problem()
        for info in operator.states
    }
    return {key: ttl_ms for key, ttl_ms in by_state.items() if ttl_ms is not None}
