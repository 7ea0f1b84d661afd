"""A store reads the first bytes of the next unit while a process uses the last ones of a unit."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import s3fs

from dstl_core import (
    LocalEngine,
    OperatorIdentifier,
    OperatorTransformation,
    SavepointWriter,
    Snapshot,
    verify_snapshot,
)
from dstl_core.codec.columnar.keyed import sst_rows
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.access.unit_pool import _SharedUnits, run_units
from dstl_core.savepoint.access.units import Unit, units_to_count
from dstl_core.savepoint.read import entry_reader
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.verify.range_check import RangeCheck, RangeReport
from dstl_core.storage import read_ahead
from dstl_core.storage.location import SIDECAR_FILE_NAME
from tests.s3_proxy import S3Proxy, s3_proxy
from tests.s3_server import S3Server

KEY_GROUPS = 8
ROWS = 20_000


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit is a key group of about 300 KiB, of which a store gives a few parts."""
    monkeypatch.setattr(entry_reader, "BYTES_AT_ONCE", 1 << 10)
    monkeypatch.setattr(sst_rows, "STORE_READ_BYTES", 1 << 16)
    monkeypatch.setattr(read_ahead, "_PART_BYTES", 1 << 16)


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    with s3_proxy(s3) as running:
        for name, value in running.server.environment.items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture(params=["native", "canonical"])
def operator(
    request: pytest.FixtureRequest, proxy: S3Proxy, s3: S3Server, bucket: str, tmp_path: Path
) -> OperatorSnapshot:
    values = random.Random(7)
    table = pa.table({"k": range(ROWS), "v": [values.randbytes(100) for _ in range(ROWS)]})
    keyed = OperatorTransformation.bootstrap_with(table).key_by("k").transform_columns()
    writer = SavepointWriter.new_savepoint(LocalEngine(), max_parallelism=KEY_GROUPS)
    of_form = writer.with_format(request.param)
    of_form.with_operator(OperatorIdentifier.for_uid("u"), keyed).write(str(tmp_path / "out"))
    store = s3fs.S3FileSystem(skip_instance_cache=True, **s3.storage_options)
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file() and path.name != SIDECAR_FILE_NAME:  # no digests: records are read alone
            store.put_file(str(path), f"{bucket}/{path.relative_to(tmp_path)}")
    return Snapshot.load(f"{bucket}/out")["u"]


def ranges(proxy: S3Proxy) -> list[tuple[str, str]]:
    """What was asked for, with the files."""
    asked = zip(proxy.requests, proxy.headers, strict=True)
    return [(path, headers["range"]) for (_, path), headers in asked if "range" in headers]


def coming(operator: OperatorSnapshot) -> int:
    """The number of reads that are coming."""
    reads = operator.snapshot.resolver._coming
    assert reads is not None
    return len(reads._coming)


def test_the_next_unit_is_coming_when_one_ends(proxy: S3Proxy, operator: OperatorSnapshot) -> None:
    every = units_to_count(operator)
    assert len(every) == KEY_GROUPS
    left = []
    for _, report in run_units(RangeCheck(operator), every, 1):
        assert not report.counts
        left.append(coming(operator))
    assert all(left[:-1])
    assert left[-1] == 0, "nothing was read that nobody asked for"
    asked = ranges(proxy)
    assert len(asked) > 2 * KEY_GROUPS
    assert len(asked) == len(set(asked))


class Left(RangeCheck):
    """Says how many reads are coming when a unit ends."""

    def __call__(self, unit: Unit) -> RangeReport:
        return replace(super().__call__(unit), keys_checked=coming(self.reads_all_of))


def test_a_process_of_a_pool_takes_the_next_unit_ahead(
    proxy: S3Proxy, operator: OperatorSnapshot
) -> None:
    every = units_to_count(operator)
    several = list(run_units(Left(operator), every, 2))
    assert [unit for unit, _ in several] == every
    assert sum(report.entries for _, report in several) == ROWS
    assert any(report.keys_checked for _, report in several), "of the next unit"
    asked = ranges(proxy)
    assert max(map(asked.count, asked)) <= 2, "each process opens the files"


def test_each_file_is_asked_once_for_its_size(
    proxy: S3Proxy, operator: OperatorSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes know it from the one that they come from, and need no client for it."""
    monkeypatch.setattr(entry_reader, "BYTES_AT_ONCE", 1 << 17)
    assert not verify_snapshot(operator.snapshot, jobs=2).findings
    names = [path.rpartition("/")[2] for method, path in proxy.requests if method == "HEAD"]
    asked = Counter(name for name in names if not name.startswith("_"))  # files of state
    assert asked
    assert set(asked.values()) == {1}


def test_units_are_taken_once_and_within_the_window() -> None:
    every = [Unit(0, KeyGroupRange(at, at), 1) for at in range(3)]
    shared = _SharedUnits(lambda unit: None, every, 2)
    assert shared.take() == 0
    assert shared.take_ahead() == every[1]
    assert shared.take_ahead() is None, "the third one may not be taken yet"
    assert (shared.take(), shared.take()) == (1, None)
    shared.allow(9)
    assert (shared.take(), shared.take()) == (2, None)


class _InSequence:
    """A task that wants one process to do the units of the handles 1 and 2."""

    in_sequence = frozenset({1, 2})

    def __call__(self, unit: Unit) -> None:
        return None


def test_units_of_a_handle_are_taken_in_sequence() -> None:
    every = [Unit(handle, KeyGroupRange(at, at), 1) for handle in range(3) for at in range(2)]
    first = _SharedUnits(_InSequence(), every, 1)
    second = copy(first)  # as another process has it
    taken = [(first.take(), second.take()) for _ in range(3)]
    assert taken == [(0, 1), (2, 4), (3, 5)]
    assert (first.take(), second.take()) == (None, None)


def test_a_process_without_units_takes_some_from_the_end_of_a_sequence() -> None:
    every = [Unit(1, KeyGroupRange(at, at), 1) for at in range(6)]
    first = _SharedUnits(_InSequence(), every, 1)
    second = copy(first)
    taken = [(first.take(), second.take()) for _ in range(3)]
    assert taken == [(0, 4), (1, 3), (2, None)]
    assert (second.take(), first.take(), first.take()) == (None, 5, None), "who began it, ends it"
