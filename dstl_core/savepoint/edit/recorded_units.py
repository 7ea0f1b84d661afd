"""Runs units and keeps what they gave in the record of a rewriting, so that a run after a kill does
only what is not there.

A unit writes its own entry, in whatever process it runs: the process that puts a file together
reads it, and nothing but its name comes over the pipe.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.metadata.handles import read_keyed_handle, write_keyed_handle
from dstl_core.errors import StorageError
from dstl_core.model.checkpoint import keyed_state_streams
from dstl_core.model.handle import RelativeFileStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.access.units import Jobs, Unit, jobs_for, run_units
from dstl_core.savepoint.write.folder import StateFiles, StoredKeyedHandle
from dstl_core.savepoint.write.work_record import Entries, Entry
from dstl_core.state.columns.keyed_sections import StateRuns

Result = TypeVar("Result")
Facts = Mapping[str, Any]


class Form(Protocol[Result]):
    """How what a unit gives is kept: facts, which are JSON values, and bytes."""

    def pack(self, result: Result) -> tuple[Facts, Iterable[bytes | memoryview]]: ...

    def unpack(self, entry: Entry) -> Result: ...


class RunsForm:
    """Runs of records, and a report."""

    def pack(
        self, result: tuple[list[StateRuns], Any]
    ) -> tuple[Facts, Iterable[bytes | memoryview]]:
        runs, report = result
        facts: list[list[int]] = []
        buffers: list[bytes | memoryview] = []
        for own in runs:
            key_groups = own.key_groups
            bounds, data = np.asarray(own.bounds).astype("<i8").tobytes(), memoryview(own.data)
            sizes = [len(bounds), len(data)]
            facts.append(
                [own.state_id, key_groups.start_key_group, key_groups.end_key_group, *sizes]
            )
            buffers += [bounds, data]
        return {"runs": facts, "report": report}, buffers

    def unpack(self, entry: Entry) -> tuple[list[StateRuns], Any]:
        runs, data, at = [], memoryview(entry.data), 0
        for state_id, first, last, bounds_bytes, size in entry.facts["runs"]:
            bounds = np.frombuffer(data[at : at + bounds_bytes], "<i8").astype(np.int64)
            at += bounds_bytes
            runs.append(
                StateRuns(
                    state_id, KeyGroupRange(first, last), pa.py_buffer(data[at : at + size]), bounds
                )
            )
            at += size
        return runs, entry.facts["report"]


def unit_name(number: int, unit: Unit) -> str:
    """The name of the entry of a unit in some part of the work."""
    first, last = unit.key_groups.start_key_group, unit.key_groups.end_key_group
    return f"unit-{number}-{unit.handle}-{first}-{last}"


@dataclass(frozen=True)
class _Recorded(Generic[Result]):
    """The task of a unit that keeps its result, unless an earlier run has done so.

    Args:
        task: The task.
        entries: Where results are kept.
        number: The number of the part of the work.
        form: How a result is kept.
        returns: Whether to give the result, too: this process needs it.
    """

    task: Callable[[Unit], Result]
    entries: Entries
    number: int
    form: Form[Result]
    returns: bool

    def name(self, unit: Unit) -> str:
        return unit_name(self.number, unit)

    def __call__(self, unit: Unit) -> Result | None:
        name = self.name(unit)
        if self.entries.continues and self.entries.get(name) is not None:
            return None
        result = self.task(unit)
        facts, parts = self.form.pack(result)
        self.entries.keep(name, facts, parts)
        return result if self.returns else None

    def stored(self, unit: Unit) -> Result:
        entry = self.entries.get(self.name(unit))
        if entry is None:
            location = self.entries.folder.child(self.name(unit))
            raise StorageError(
                f"What a unit has written is gone or damaged: expected it in {location}; run the "
                f"command again, which does this unit anew.",
                path=str(location),
            )
        return self.form.unpack(entry)


def run_recorded(
    task: Callable[[Unit], Result],
    units: Sequence[Unit],
    size: int,
    jobs: Jobs,
    target: StateFiles,
    form: Form[Result],
    number: int,
) -> Generator[tuple[Unit, Result], None, None]:
    """As ``run_units``. With a record in the target, what an earlier run kept is not done again.

    Args:
        task: What to do.
        units: The units.
        size: Bytes that they read.
        jobs: Number of processes, or what runs the units.
        target: The output.
        form: How a result is kept.
        number: The number of this part of the work.
    """
    processes, record = jobs_for(size, jobs), target.record
    if record is None:
        yield from run_units(task, units, processes)
        return
    recorded = _Recorded(task, record.entries, number, form, processes == 1)
    with closing(run_units(recorded, units, processes)) as results:
        for unit, result in results:
            yield unit, recorded.stored(unit) if result is None else result


@dataclass
class KnownStream:
    """A stream that is written.

    Args:
        handle: Its handle; None if it has no record.
        reports: What its units have reported.
    """

    handle: StoredKeyedHandle | None
    reports: list[Any] = field(default_factory=list)


class RecordedStreams:
    """The streams of one operator that are whole, in the record of the output."""

    def __init__(self, target: StateFiles) -> None:
        self._target = target
        self.number = target.names.begin()
        """The number of this part of the work."""
        self._label = f"stream-{self.number}"

    def get(self, place: int) -> KnownStream | None:
        """The stream at a place, if an earlier run has written it and all its files are here."""
        record = self._target.record
        entry = None
        if record is not None and record.continues:
            entry = record.entries.get(f"{self._label}-{place}")
        if entry is None or not self._target.holds(entry.facts["files"]):
            return None
        handle = read_keyed_handle(DataInput(entry.data))
        assert handle is None or isinstance(handle, StoredKeyedHandle)
        return KnownStream(handle, entry.facts["reports"])

    def keep(self, place: int, stream: KnownStream, units: Sequence[Unit] = ()) -> None:
        """Keeps a stream whose files are whole; nothing needs its units any more."""
        record = self._target.record
        if record is None:
            return
        record.check_owner()
        out, handle = DataOutput(), stream.handle
        write_keyed_handle(out, handle)
        streams = [] if handle is None else keyed_state_streams(handle)
        names = [own.relative_path for own in streams if isinstance(own, RelativeFileStateHandle)]
        facts = {"files": self._target.known(names), "reports": stream.reports}
        record.entries.keep(f"{self._label}-{place}", facts, [out.to_bytes()])
        record.entries.forget(unit_name(self.number, unit) for unit in units)
