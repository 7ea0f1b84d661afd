"""Storages, writers and schedulers are closed by a ``with`` block, whatever happens in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dstl_core.changelog import FsStateChangelogStorage, InMemoryStateChangelogStorage
from dstl_core.changelog.upload import StateChangeUploadScheduler
from dstl_core.config import ChangelogOptions
from dstl_core.errors import DstlError
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange

GROUPS = KeyGroupRange.of(0, 127)


class Stop(Exception):
    """Ends a block."""


def storages(tmp_path: Path) -> list[Callable[[], Any]]:
    options = ChangelogOptions.of(base_path=str(tmp_path))
    return [
        lambda: FsStateChangelogStorage(JobID.for_name("job"), options),
        InMemoryStateChangelogStorage,
    ]


@pytest.mark.parametrize("kind", [0, 1], ids=["files", "memory"])
def test_a_block_closes_writer_and_storage(kind: int, tmp_path: Path) -> None:
    make = storages(tmp_path)[kind]
    with make() as storage, storage.create_writer("op", GROUPS) as writer:
        writer.append(1, b"change")
        start = writer.initial_sequence_number()
        assert writer.persist(start, 1).result(timeout_s=60) is not None
    with pytest.raises(DstlError):
        writer.append(1, b"later")


@pytest.mark.parametrize("kind", [0, 1], ids=["files", "memory"])
def test_a_block_that_fails_closes_too_and_its_error_comes_through(
    kind: int, tmp_path: Path
) -> None:
    make = storages(tmp_path)[kind]
    with pytest.raises(Stop), make() as storage, storage.create_writer("op", GROUPS) as writer:
        raise Stop
    with pytest.raises(DstlError):
        writer.append(1, b"later")


def test_a_block_closes_a_scheduler() -> None:
    closed: list[str] = []

    class Uploader:
        def close(self) -> None:
            closed.append("uploader")

    with StateChangeUploadScheduler.direct_scheduler(Uploader()) as scheduler:  # type: ignore[arg-type]
        assert isinstance(scheduler, StateChangeUploadScheduler)
    assert closed == ["uploader"]
