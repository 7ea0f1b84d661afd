"""Work on a snapshot grows with the number of its operators, and not with its square."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, edit_savepoint
from dstl_core.checkpoint.store.metadata_file import MetadataFile
from dstl_core.codec.serializers import BUILT_IN, Types
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import OperatorStreamStateHandle, StreamStateHandle
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.access.summary import snapshot_summary
from dstl_core.savepoint.compare.diff import diff_snapshots
from dstl_core.savepoint.compare.structure_diff import structure_differences
from dstl_core.savepoint.connectors.pending_commits import pending_commits
from dstl_core.savepoint.connectors.source_positions import source_positions
from dstl_core.savepoint.report.count_options import CountOptions
from dstl_core.savepoint.report.figures import report_figures
from dstl_core.savepoint.restores.job_match import JobDescription, match_job
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.savepoint.write.folder import StateFiles
from dstl_core.state.backends.operator_backend import DefaultOperatorStateBackend
from dstl_core.state.tables.descriptor import ListStateDescriptor
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location
from dstl_core.testing import MemoryFileIO
from tests.golden_files import snapshot as golden_snapshot

FOLDER = Location.parse("/nowhere/savepoint")


class Walked(list[Any]):
    """A list that knows how often somebody walks it."""

    walks = 0

    def __iter__(self) -> Iterator[Any]:
        self.walks += 1
        return super().__iter__()


def stored_list() -> OperatorStreamStateHandle:
    backend = DefaultOperatorStateBackend()
    items = backend.get_list_state(ListStateDescriptor("items", Types.LONG))
    items.add_all([1, 2, 3])
    handle = StateFiles(FOLDER.path, MemoryFileIO()).add_operator_state(backend.snapshot())
    assert handle is not None
    return handle


def with_operators(count: int) -> Snapshot:
    """A snapshot of operators that have a state each, every other one without a known uid."""
    subtask = OperatorSubtaskState(0, managed_operator_state=stored_list())
    operators = tuple(
        OperatorState(
            OperatorID.for_uid(f"u{number}"), 1, 128, (subtask,), uid=f"u{number}" * (number % 2)
        )
        for number in range(count)
    )
    file = MetadataFile(FOLDER, CheckpointMetadata(3, 1, operators), "", 0, None)
    files = MemoryFileIO()
    snapshot = Snapshot(file, files, HandleResolver(files, FOLDER), BUILT_IN)
    snapshot.operators = Walked(snapshot.operators)
    return snapshot


def renamed(snapshot: Snapshot, path: Path) -> str:
    return edit_savepoint(snapshot).with_max_parallelism(256).write(path)


WORK: dict[str, Callable[[Snapshot, Path], object]] = {
    "inspect": lambda snapshot, _: snapshot_summary(snapshot),
    "dump": lambda snapshot, _: [list(each.dump()) for each in snapshot.operators],
    "verify": lambda snapshot, _: verify_snapshot(snapshot),
    "report": lambda snapshot, _: report_figures(snapshot, contents=CountOptions(0)),
    "offsets": lambda snapshot, _: list(source_positions(snapshot)),
    "committables": lambda snapshot, _: list(pending_commits(snapshot)),
    "diff": lambda snapshot, _: list(diff_snapshots(snapshot, snapshot)),
    "structure": lambda snapshot, _: list(structure_differences(snapshot, snapshot)),
    "check": lambda snapshot, _: match_job(snapshot, JobDescription.from_snapshot(snapshot)),
    "plan": lambda snapshot, _: edit_savepoint(snapshot).with_max_parallelism(256).plan(),
    "rewrite": renamed,
    "find": lambda snapshot, _: [snapshot[each.label] for each in snapshot.operators],
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_operators_are_not_walked_once_for_each(
    work: Callable[[Snapshot, Path], object], tmp_path: Path
) -> None:
    few, many = with_operators(4), with_operators(12)
    for snapshot, name in ((few, "few"), (many, "many")):
        work(snapshot, tmp_path / name)
    assert isinstance(few.operators, Walked)
    assert isinstance(many.operators, Walked)
    assert many.operators.walks == few.operators.walks > 0


class Counting(HandleResolver):
    """Counts the streams that it reads."""

    reads = 0

    def read(self, handle: StreamStateHandle, start: int = 0, end: int | None = None) -> bytes:
        self.reads += 1
        return super().read(handle, start, end)


@pytest.mark.parametrize(("work", "most"), [("inspect", 1), ("find", 0), ("report", 6)])
def test_each_stream_is_read_a_few_times(work: str, most: int, tmp_path: Path) -> None:
    snapshot = with_operators(8)
    snapshot.resolver = Counting(snapshot.file_io, FOLDER)
    WORK[work](snapshot, tmp_path)
    assert snapshot.resolver.reads <= 8 * most


@pytest.mark.parametrize(("work", "most"), [("inspect", 2), ("report", 4), ("verify", 2)])
@pytest.mark.parametrize("name", ["a-hashmap-p3-max17", "o-empty-groups-p4"])
def test_each_file_is_read_a_few_times(
    name: str, work: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = Snapshot.load(golden_snapshot(name))
    reads = Counter[StreamStateHandle]()
    read = HandleResolver.read

    def counting(self: HandleResolver, handle: StreamStateHandle, *span: int | None) -> bytes:
        reads[handle] += 1
        return read(self, handle, *span)  # type: ignore[arg-type]

    monkeypatch.setattr(HandleResolver, "read", counting)
    WORK[work](snapshot, tmp_path)
    assert len(reads) > 2
    assert max(reads.values()) <= most
