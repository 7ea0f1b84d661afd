"""Runs units and keeps what they give in a record, so that a check or a report goes on after a
kill.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from dstl_core.savepoint.access.unit_pool import run_units
from dstl_core.savepoint.access.units import POOL_FROM_BYTES, Jobs, Unit, jobs_for, workers_of
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.write.source_files import SourceFiles
from dstl_core.savepoint.write.work_record import WorkRecord, open_record, plan_digest
from dstl_core.storage.location import Location


class FactsForm(Protocol):
    """How what a unit gives is kept."""

    def facts(self, result: Any) -> Mapping[str, Any] | None:
        """A result as JSON values; None is not kept, and the next run does the unit anew."""
        ...

    def result(self, facts: Mapping[str, Any]) -> Any:
        """The same from its JSON values."""
        ...


@dataclass(frozen=True)
class RecordedRunner:
    """Runs units as ``run_units`` does, but for those whose result an earlier run has kept. It
    stands where a number of processes (``jobs``) does.

    Args:
        record: Keeps the results.
        jobs: Number of processes, or what runs units.
        form: How a result is kept.
    """

    record: WorkRecord
    jobs: Jobs
    form: FactsForm

    @property
    def workers(self) -> int:
        return workers_of(jobs_for(POOL_FROM_BYTES, self.jobs))

    def __call__(
        self, task: Callable[[Unit], Any], units: Sequence[Unit]
    ) -> Generator[tuple[Unit, Any], None, None]:
        entries, number = self.record.entries, self.record.names.begin()
        names = [f"check-{number}-{unit.handle}-{unit.key_groups}" for unit in units]
        keeps = entries.continues and self.record.keeps_checks
        kept = [entries.get(name) if keeps else None for name in names]
        missing = [unit for unit, entry in zip(units, kept, strict=True) if entry is None]
        name_of = dict(zip(units, names, strict=True))
        results = run_units(task, missing, jobs_for(sum(unit.size for unit in missing), self.jobs))
        with closing(results):
            for unit, entry in zip(units, kept, strict=True):
                if entry is not None:
                    yield unit, self.form.result(entry.facts)
                    continue
                done, result = next(results)
                facts = self.form.facts(result)
                if facts is not None:
                    entries.keep(name_of[done], facts)
                yield done, result


@contextmanager
def record_in(
    folder: str | os.PathLike[str] | None, sources: Sequence[Snapshot], plan: Any
) -> Iterator[WorkRecord | None]:
    """A record of work that writes no snapshot. It goes if the work ends, and stays if not.

    Args:
        folder: The folder of the record; None for none.
        sources: What is read: the input, and what it is compared with.
        plan: What decides the results beside the input, as JSON values.

    Raises:
        SavepointError: The folder has a record of other work or of other files, or another run is
            at it.
    """
    if folder is None:
        yield None
        return
    record = open_record(
        Location.parse(folder), sources[0].file.sha256, plan_digest(plan), begins=True
    )
    assert record is not None  # it begins one
    is_done = False
    try:
        for number, source in enumerate(sources):
            SourceFiles(source).keep_in(record.entries, f"source-{number}")
        yield record
        is_done = True
    finally:
        record.close(is_done=is_done)
