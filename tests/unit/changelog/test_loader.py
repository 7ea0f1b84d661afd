"""Finding a storage by name: Flink's StateChangelogStorageLoaderTest and the rest."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dstl_core.changelog import (
    FsStateChangelogStorage,
    InMemoryStateChangelogStorage,
    StateChangelogStorageLoader,
)
from dstl_core.changelog.interfaces import StateChangelogStorage
from dstl_core.changelog.loader import InMemoryStateChangelogStorageFactory
from dstl_core.config import ChangelogOptions
from dstl_core.errors import ConfigError
from dstl_core.metrics import MetricGroup
from dstl_core.model.handle import ChangelogStateHandleStream
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange

JOB = JobID.for_name("job")


def load(loader: StateChangelogStorageLoader, **options: object) -> StateChangelogStorage:
    return loader.load(JOB, ChangelogOptions.of(**options))


def test_load_spi_implementation(tmp_path: Path) -> None:
    loader = StateChangelogStorageLoader()
    assert isinstance(load(loader), InMemoryStateChangelogStorage)
    storage = load(loader, storage="FileSystem", base_path=str(tmp_path))
    assert isinstance(storage, FsStateChangelogStorage)
    storage.close()


def test_load_not_exist() -> None:
    # The original warns and gives null, which fails much later.
    with pytest.raises(
        ConfigError, match="no changelog storage 'not_exist'; expected one of filesystem, memory"
    ):
        load(StateChangelogStorageLoader(), storage="not_exist")


class Plugin(InMemoryStateChangelogStorageFactory):
    """A storage of a user under a built-in name."""

    identifier = "Memory"

    def __init__(self) -> None:
        self.made = InMemoryStateChangelogStorage()

    def create_storage(self, *args: object, **options: object) -> StateChangelogStorage:
        return self.made


def test_load_plugin_implementation(caplog: pytest.LogCaptureFixture) -> None:
    plugin, late = Plugin(), Plugin()
    with caplog.at_level(logging.WARNING):
        loader = StateChangelogStorageLoader([plugin, late])
    assert load(loader) is plugin.made
    assert caplog.text.count("already registered: name=memory") == 2


def test_a_filesystem_storage_needs_a_folder() -> None:
    with pytest.raises(ConfigError, match=r"set state\.changelog\.dstl\.dfs\.base-path"):
        load(StateChangelogStorageLoader(), storage="filesystem")


def test_metrics_go_where_they_are_asked_to(tmp_path: Path) -> None:
    metrics = MetricGroup()
    options = ChangelogOptions.of(storage="filesystem", base_path=str(tmp_path))
    StateChangelogStorageLoader().load(JOB, options, metrics).close()
    assert [group.scope for group in metrics.walk()] == [(), ("ChangelogStorage",)]


def test_a_handle_of_an_unknown_storage() -> None:
    handle = ChangelogStateHandleStream((), KeyGroupRange(0, 1), 0, 0, "the-id", "elsewhere")
    with pytest.raises(
        ConfigError,
        match="Cannot find a factory for changelog storage with name 'elsewhere' to restore from "
        "handle the-id",
    ):
        StateChangelogStorageLoader().load_from_state_handle(ChangelogOptions.of(), handle)


def test_the_memory_storage_has_no_segments() -> None:
    handle = ChangelogStateHandleStream((), KeyGroupRange(0, 1), 0, 0, "the-id", "memory")
    view = StateChangelogStorageLoader().load_from_state_handle(ChangelogOptions.of(), handle)
    assert list(view.create_reader().get_changes(handle)) == []
