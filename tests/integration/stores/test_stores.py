"""Savepoints and pipelines on servers of Google Cloud Storage and Azure (``make test-stores``)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dstl_core import AggregateOperator, LocalEngine, Snapshot, StatefulJob, verify_snapshot
from dstl_core.aggregates import count, sum
from dstl_core.errors import FencedError, SavepointError, SnapshotExistsError, StorageError
from dstl_core.savepoint.edit import keyed_units, rewriting
from dstl_core.savepoint.edit.savepoint_edit import edit_savepoint
from dstl_core.savepoint.gc import collect_garbage
from dstl_core.savepoint.read import entry_reader
from dstl_core.savepoint.write import work_record
from dstl_core.storage import multipart
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from dstl_core.storage.profiles import register_profile
from tests.cloud_servers import CloudServer
from tests.golden_files import snapshot

pytestmark = pytest.mark.stores
_NAMES = itertools.count()


@pytest.fixture(params=["gcs", "azure"])
def base(request: pytest.FixtureRequest) -> str:
    """The URL of a new bucket that this process may use."""
    server: CloudServer = request.getfixturevalue(request.param)
    url = server.make_bucket(f"stores-{next(_NAMES)}")
    register_profile(Location.parse(url), server.storage_options)
    return url


def _tree(folder: str) -> dict[str, bytes]:
    files = open_file_io(Location.parse(folder))
    every = files.list_folder(Location.parse(folder))
    return {each.location.name: files.read_bytes(each.location) for each in every}


def test_a_savepoint_is_written_and_goes_on_after_a_failure(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "RECORDED_FROM_BYTES", 0)
    for module in (keyed_units, entry_reader):
        monkeypatch.setattr(module, "BYTES_AT_ONCE", 40_000)
    monkeypatch.setattr(work_record.secrets, "token_hex", lambda size: "a1" * size)
    edit = edit_savepoint(Snapshot.load(snapshot("a-rocksdb-native-incremental")))
    edit = edit.with_files("canonical")
    edit.write(tmp_path / "out")
    copied, done = keyed_units.copied_sections, itertools.count()

    def fails(*own: Any) -> Any:
        if next(done) == 3:
            raise StorageError("The store is away.")
        return copied(*own)

    with monkeypatch.context() as patch, pytest.raises(StorageError, match="is away"):
        patch.setattr(keyed_units, "copied_sections", fails)
        edit.write(f"{base}/out")
    edit.write(f"{base}/out")
    expected = {each.name: each.read_bytes() for each in (tmp_path / "out").iterdir()}
    assert _tree(f"{base}/out") == expected
    report = verify_snapshot(Snapshot.load(f"{base}/out"), jobs=2)
    assert report.findings == [] and report.entries
    with pytest.raises((SavepointError, SnapshotExistsError), match="already there"):
        edit.write(f"{base}/out")


def content() -> Iterator[bytes]:
    source = random.Random(7)
    for _ in range(9):
        yield source.randbytes(300_000)


def test_a_large_file_comes_in_parts_and_whole_or_not_at_all(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multipart, "PART_BYTES", 1 << 20)
    files, place = open_file_io(Location.parse(base)), Location.parse(f"{base}/large")

    def broken() -> Iterator[bytes]:
        yield from content()
        raise OSError("the source is gone")

    with pytest.raises(StorageError, match="the source is gone"):
        files.write_new(place, broken())
    assert files.size(place) is None
    files.write_new(place, content())
    assert files.read_bytes(place) == b"".join(content())
    with pytest.raises(StorageError, match="there already"):
        files.write_new(place, [*content(), b"more"])
    assert files.read_bytes(place, 1, 1 << 21) == b"".join(content())[1 : 1 << 21]
    assert files.delete(place)
    assert files.size(place) is None


def test_a_pipeline_commits_each_batch_once(base: str) -> None:
    batches = [pa.table({"k": [f"k{i % 7}" for i in range(50)], "v": range(50)}) for _ in "abc"]

    def job() -> StatefulJob:
        operator = AggregateOperator(
            "totals",
            "k",
            {"n": count(), "total": sum("v")},
            schema="k string, v bigint",
            output=True,
        )
        return StatefulJob(LocalEngine(), "totals", f"{base}/jobs", operator)

    first, second = job(), job()
    first.run(batches[0], input_id=0)
    second.run(batches[1], input_id=1)
    with pytest.raises(FencedError, match="does not own this pipeline"):
        first.run(batches[2], input_id=2)
    second.run(batches[2], input_id=2)
    again = job().run(batches[2], input_id=2)
    assert {row["k"]: row["n"] for row in again.output.to_arrow().to_pylist()} == {
        f"k{i}": 3 * len(range(i, 50, 7)) for i in range(7)
    }
    latest = Snapshot.load(second.latest_path())
    assert verify_snapshot(latest).findings == []
    assert collect_garbage(f"{base}/jobs", delete=True).garbage == []
