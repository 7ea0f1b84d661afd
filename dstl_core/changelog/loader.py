"""Finds a changelog storage by the options or by a handle.

Source: ``StateChangelogStorageLoader``, ``FsStateChangelogStorageFactory`` and
``InMemoryStateChangelogStorageFactory`` of Flink 2.2.1. Unlike in Flink, an unknown name is an
error at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from dstl_core.changelog.in_memory_storage import InMemoryStateChangelogStorage
from dstl_core.changelog.interfaces import (
    StateChangelogStorage,
    StateChangelogStorageFactory,
    StateChangelogStorageView,
)
from dstl_core.changelog.ledger import STORAGE_IDENTIFIER
from dstl_core.changelog.local_recovery import LOCAL_RECOVERY_DISABLED, LocalRecoveryConfig
from dstl_core.changelog.storage import (
    FsStateChangelogStorage,
    FsStateChangelogStorageForRecovery,
    segment_reader,
)
from dstl_core.changelog.upload.uploader import base_location
from dstl_core.config import ChangelogOptions
from dstl_core.errors import ConfigError
from dstl_core.metrics import MetricGroup
from dstl_core.model.handle import ChangelogStateHandle
from dstl_core.model.ids import JobID
from dstl_core.storage.file_io import open_file_io

_LOG = logging.getLogger(__name__)


class FsStateChangelogStorageFactory:
    """``filesystem``: segments below ``base-path``."""

    identifier = STORAGE_IDENTIFIER

    def create_storage(
        self,
        job_id: JobID,
        options: ChangelogOptions,
        metrics: MetricGroup | None = None,
        local_recovery: LocalRecoveryConfig = LOCAL_RECOVERY_DISABLED,
    ) -> StateChangelogStorage:
        return FsStateChangelogStorage(
            job_id, options, metrics=metrics, local_recovery=local_recovery
        )

    def create_storage_view(self, options: ChangelogOptions) -> StateChangelogStorageView:
        base = base_location(options)
        return FsStateChangelogStorageForRecovery(
            segment_reader({base.scheme: open_file_io(base)}, [base]), options
        )


class InMemoryStateChangelogStorageFactory:
    """``memory``: changes inside the handles."""

    identifier = "memory"

    def create_storage(
        self,
        job_id: JobID,
        options: ChangelogOptions,
        metrics: MetricGroup | None = None,
        local_recovery: LocalRecoveryConfig = LOCAL_RECOVERY_DISABLED,
    ) -> StateChangelogStorage:
        return InMemoryStateChangelogStorage()

    def create_storage_view(self, options: ChangelogOptions) -> StateChangelogStorageView:
        return InMemoryStateChangelogStorage()


class StateChangelogStorageLoader:
    """Finds factories by name: the given ones, then ``memory`` and ``filesystem``. The first
    factory of a name wins. Names are compared in lower case.
    """

    def __init__(self, plugins: Iterable[StateChangelogStorageFactory] = ()) -> None:
        self._factories: dict[str, StateChangelogStorageFactory] = {}
        built_in = (InMemoryStateChangelogStorageFactory(), FsStateChangelogStorageFactory())
        for factory in (*plugins, *built_in):
            name = factory.identifier.lower()
            if name in self._factories:
                _LOG.warning("a changelog storage is already registered: name=%s", name)
            else:
                self._factories[name] = factory

    def load(
        self,
        job_id: JobID,
        options: ChangelogOptions,
        metrics: MetricGroup | None = None,
        local_recovery: LocalRecoveryConfig = LOCAL_RECOVERY_DISABLED,
    ) -> StateChangelogStorage:
        """Makes the storage that ``state.changelog.storage`` names.

        Raises:
            ConfigError: The name is not registered. The message lists the registered names.
        """
        factory = self._factories.get(options.storage)
        if factory is None:
            raise ConfigError(
                f"There is no changelog storage {options.storage!r}; expected one of "
                f"{', '.join(sorted(self._factories))}."
            )
        return factory.create_storage(job_id, options, metrics, local_recovery)

    def load_from_state_handle(
        self, options: ChangelogOptions, handle: ChangelogStateHandle
    ) -> StateChangelogStorageView:
        """Makes a view that reads a handle. Each handle needs its own call.

        Raises:
            ConfigError: The storage of the handle is not registered.
        """
        factory = self._factories.get(handle.storage_identifier)
        if factory is None:
            raise ConfigError(
                f"Cannot find a factory for changelog storage with name "
                f"{handle.storage_identifier!r} to restore from handle {handle.state_handle_id}; "
                f"expected one of {', '.join(sorted(self._factories))}."
            )
        return factory.create_storage_view(options)
