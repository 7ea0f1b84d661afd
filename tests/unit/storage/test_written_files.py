"""The sha256 of a file that others read."""

from __future__ import annotations

import hashlib
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dstl_core.storage.file_io import FsspecFileIO
from dstl_core.storage.location import Location
from dstl_core.storage.written_files import DigestOfReads

DATA = random.Random(7).randbytes(1 << 20)


@pytest.fixture
def place(tmp_path: Path) -> Location:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    return Location.parse(path)


def test_reads_in_any_order_and_size_give_the_digest_of_the_file(place: Location) -> None:
    source, expected = random.Random(3), hashlib.sha256(DATA).hexdigest()
    for _ in range(20):
        digest = DigestOfReads()
        for _ in range(source.randrange(12)):
            start = source.choice([0, source.randrange(len(DATA))])
            digest.add(start, DATA[start : start + source.randrange(len(DATA))])
        assert digest.sha256(FsspecFileIO("file"), place) == expected


def test_threads_that_read_the_same_bytes_add_them_once(place: Location) -> None:
    expected = hashlib.sha256(DATA).hexdigest()
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            digest = DigestOfReads()
            list(pool.map(lambda _, digest=digest: digest.add(0, DATA), range(8)))
            assert digest.sha256(FsspecFileIO("file"), place) == expected
