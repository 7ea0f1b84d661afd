"""State backends by name. A backend stores the keyed and operator state of subtasks.

Source: ``StateBackend``, ``StateBackendFactory``, ``StateBackendLoader``, ``HashMapStateBackend``,
``EmbeddedRocksDBStateBackend`` of Flink 2.2.1, and ``MemoryStateBackend`` and ``FsStateBackend`` of
Flink 1.20.
"""

from __future__ import annotations

import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dstl_core.clock import Clock
from dstl_core.codec.serializers import BUILT_IN, AnySerializer, SerializerRegistry
from dstl_core.config import CheckpointConfig
from dstl_core.errors import ConfigError
from dstl_core.extras import require
from dstl_core.model.handle import KeyedStateHandle, OperatorStreamStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.backends.backend import (
    HashMapKeyedStateBackend,
    KeyedStateBackend,
    RocksDBKeyedStateBackend,
)
from dstl_core.state.backends.operator_backend import DefaultOperatorStateBackend
from dstl_core.state.restore.into_tables import restore_keyed_state
from dstl_core.state.tables.store import EntryStore
from dstl_core.storage.handle_resolver import HandleResolver


@dataclass(frozen=True)
class KeyedStateBackendParameters:
    """The arguments of a keyed backend.

    Args:
        key_serializer: The type of the key.
        number_of_key_groups: The max parallelism of the operator.
        key_group_range: The key groups of the subtask.
        handles: The handles that were assigned to the subtask. The backend skips other key groups
            in them.
        resolver: Reads the files of the handles.
        clock: Measures times to live.
        registry: Reads the types in the files.
    """

    key_serializer: AnySerializer
    number_of_key_groups: int
    key_group_range: KeyGroupRange
    handles: Sequence[KeyedStateHandle]
    resolver: HandleResolver
    clock: Clock
    registry: SerializerRegistry = BUILT_IN


class StateBackend(ABC):
    """Makes the backends of subtasks. It is a value: it has configuration and no state."""

    @property
    @abstractmethod
    def identifier(self) -> str:
        """The name of the backend in ``state.backend.type``."""

    @abstractmethod
    def create_keyed_state_backend(
        self, parameters: KeyedStateBackendParameters
    ) -> KeyedStateBackend:
        """Restores the keyed state of a subtask.

        Raises:
            RestoreError: Part of the state cannot be restored.
        """

    def create_operator_state_backend(
        self,
        handles: Sequence[OperatorStreamStateHandle],
        resolver: HandleResolver,
        registry: SerializerRegistry = BUILT_IN,
    ) -> DefaultOperatorStateBackend:
        """Restores the operator state of a subtask. Every backend keeps it in memory."""
        return DefaultOperatorStateBackend.restore(handles, resolver, registry)


class StateBackendFactory(Protocol):
    """Makes a backend from a configuration."""

    def get_identifier(self) -> str: ...

    def create_from_config(self, config: CheckpointConfig) -> StateBackend: ...


def _create(
    kind: type[KeyedStateBackend], store: EntryStore, parameters: KeyedStateBackendParameters
) -> KeyedStateBackend:
    try:
        state = restore_keyed_state(
            parameters.handles,
            parameters.key_group_range,
            parameters.number_of_key_groups,
            parameters.resolver,
            parameters.registry,
            key_serializer=parameters.key_serializer,
            store=store,
        )
        return kind(state, parameters.key_serializer, clock=parameters.clock)
    except BaseException:
        store.close()
        raise


@dataclass(frozen=True)
class HashMapStateBackend(StateBackend):
    """Keyed state in memory."""

    identifier = "hashmap"

    def create_keyed_state_backend(
        self, parameters: KeyedStateBackendParameters
    ) -> KeyedStateBackend:
        store = HashMapKeyedStateBackend.create_store()
        return _create(HashMapKeyedStateBackend, store, parameters)


@dataclass(frozen=True)
class EmbeddedRocksDBStateBackend(StateBackend):
    """Keyed state on local disk, in RocksDB.

    Args:
        local_dir: Folder under which each subtask has its database; the system's temporary folder
            by default.
        cache_bytes: Size of the block cache of each subtask.
        write_buffer_bytes: Size of a memtable; each subtask has up to three.

    Raises:
        ConfigError: A size is not a number of bytes.
    """

    local_dir: str | None = None
    cache_bytes: int = 128 << 20
    write_buffer_bytes: int = 64 << 20

    identifier = "rocksdb"

    def __post_init__(self) -> None:
        require("rocksdict", "EmbeddedRocksDBStateBackend")
        for name in ("cache_bytes", "write_buffer_bytes"):
            size = getattr(self, name)
            if not isinstance(size, int) or size < 0:
                raise ConfigError(
                    f"{name} of EmbeddedRocksDBStateBackend is wrong: expected a number of bytes, "
                    f"got {size!r}."
                )

    @property
    def memory_bytes(self) -> int:
        """The most memory of a subtask's database: its block cache and its memtables."""
        from dstl_core.state.backends.rocksdb_store import MEMTABLES

        return self.cache_bytes + MEMTABLES * self.write_buffer_bytes

    def create_keyed_state_backend(
        self, parameters: KeyedStateBackendParameters
    ) -> KeyedStateBackend:
        store = RocksDBKeyedStateBackend.create_store(
            Path(self.local_dir or tempfile.gettempdir()),
            cache_bytes=self.cache_bytes,
            write_buffer_bytes=self.write_buffer_bytes,
        )
        return _create(RocksDBKeyedStateBackend, store, parameters)


class HashMapStateBackendFactory:
    """Makes the backend ``hashmap``."""

    def get_identifier(self) -> str:
        return "hashmap"

    def create_from_config(self, config: CheckpointConfig) -> StateBackend:
        return HashMapStateBackend()


class EmbeddedRocksDBStateBackendFactory:
    """Makes the backend ``rocksdb``."""

    def get_identifier(self) -> str:
        return "rocksdb"

    def create_from_config(self, config: CheckpointConfig) -> StateBackend:
        return EmbeddedRocksDBStateBackend(
            config.rocksdb_local_dir, config.rocksdb_cache_size, config.rocksdb_write_buffer_size
        )


_FACTORIES: dict[str, StateBackendFactory] = {
    factory.get_identifier(): factory
    for factory in (HashMapStateBackendFactory(), EmbeddedRocksDBStateBackendFactory())
}
_OLD_NAMES = {"filesystem": "hashmap", "jobmanager": "hashmap"}


def register_state_backend(factory: StateBackendFactory) -> None:
    """Registers a backend under its identifier.

    Raises:
        ConfigError: The identifier is taken.
    """
    name = factory.get_identifier().lower()
    if _FACTORIES.setdefault(name, factory) is not factory:
        raise ConfigError(
            f"A state backend {name!r} is registered already; choose another identifier."
        )


def load_state_backend(config: CheckpointConfig) -> StateBackend:
    """Finds the backend that ``state.backend.type`` names. Names of older releases warn.

    Raises:
        ConfigError: No backend has that name. The message lists the known names.
    """
    name = config.state_backend_type.lower()
    if name in _OLD_NAMES:
        _warn_of_old_name(f"state.backend.type: {name}", f"state.backend.type: {_OLD_NAMES[name]}")
        name = _OLD_NAMES[name]
    factory = _FACTORIES.get(name)
    if factory is None:
        raise ConfigError(
            f"There is no state backend {name!r}: expected one of {', '.join(sorted(_FACTORIES))}, "
            f"or register it with register_state_backend."
        )
    return factory.create_from_config(config)


def _warn_of_old_name(old: str, new: str) -> None:
    warnings.warn(f"{old} is a name of older releases; use {new}.", FutureWarning, stacklevel=3)


class MemoryStateBackend(HashMapStateBackend):
    """The old name of ``HashMapStateBackend`` with checkpoints in memory."""

    def __init__(self) -> None:
        _warn_of_old_name("MemoryStateBackend", "HashMapStateBackend")


class FsStateBackend(HashMapStateBackend):
    """The old name of ``HashMapStateBackend`` with checkpoints on a file system; the pipeline
    sets their folder (``execution.checkpointing.dir``).
    """

    def __init__(self, checkpoint_data_uri: str) -> None:
        _warn_of_old_name(
            "FsStateBackend",
            f"HashMapStateBackend and execution.checkpointing.dir: {checkpoint_data_uri}",
        )


def check_no_backend(method: str, *arguments: object) -> None:
    """Checks that a method of Flink's API got no state backend, which Flink's method takes.

    Raises:
        ConfigError: ``arguments`` are not empty.
    """
    if arguments:
        raise ConfigError(
            f"{method} takes no state backend: expected no such argument, got "
            f"{type(arguments[0]).__name__}; leave it out, because the files of a snapshot say how "
            f"to read them, and a savepoint restores on every backend."
        )
