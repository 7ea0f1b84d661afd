from __future__ import annotations

from pathlib import Path

import pytest

from dstl_core.clock import SystemClock
from dstl_core.codec.serializers import Types
from dstl_core.config import CheckpointConfig
from dstl_core.errors import ConfigError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.backends.state_backend import (
    EmbeddedRocksDBStateBackend,
    FsStateBackend,
    HashMapStateBackend,
    KeyedStateBackendParameters,
    MemoryStateBackend,
    load_state_backend,
    register_state_backend,
)
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location


def config(**options: object) -> CheckpointConfig:
    return CheckpointConfig.of(**{key.replace("__", "."): value for key, value in options.items()})


@pytest.mark.parametrize("size", [-1, 1.5, "8mb", None])
@pytest.mark.parametrize("name", ["cache_bytes", "write_buffer_bytes"])
def test_a_size_of_rocksdb_is_a_number_of_bytes(name: str, size: object) -> None:
    with pytest.raises(ConfigError, match=f"{name} of EmbeddedRocksDB.* expected a number of"):
        EmbeddedRocksDBStateBackend(**{name: size})  # type: ignore[arg-type]  # wrong on purpose


def test_backends_by_name(tmp_path: Path) -> None:
    assert load_state_backend(config()) == HashMapStateBackend()
    loaded = load_state_backend(
        CheckpointConfig.of(
            **{
                "state.backend.type": "RocksDB",
                "state.backend.rocksdb.localdir": str(tmp_path),
                "state.backend.rocksdb.block.cache-size": "8mb",
            }
        )
    )
    assert loaded == EmbeddedRocksDBStateBackend(str(tmp_path), 8 << 20, 64 << 20)
    with pytest.raises(ConfigError, match="no state backend 'other': expected one of hashmap"):
        load_state_backend(CheckpointConfig.of(state_backend_type="other"))


def test_old_names_warn_and_work() -> None:
    with pytest.warns(FutureWarning, match="MemoryStateBackend is a name of older releases"):
        assert MemoryStateBackend().identifier == "hashmap"
    with pytest.warns(FutureWarning, match="execution.checkpointing.dir: file:///checkpoints"):
        assert FsStateBackend("file:///checkpoints").identifier == "hashmap"
    with pytest.warns(DeprecationWarning, match="use state.backend.type"):
        old = CheckpointConfig.of(**{"state.backend": "filesystem"})
    with pytest.warns(FutureWarning, match="state.backend.type: hashmap"):
        assert load_state_backend(old) == HashMapStateBackend()


def test_a_backend_of_ones_own() -> None:
    class Factory:
        def get_identifier(self) -> str:
            return "of-ones-own"

        def create_from_config(self, config: CheckpointConfig) -> HashMapStateBackend:
            return HashMapStateBackend()

    register_state_backend(Factory())
    assert load_state_backend(CheckpointConfig.of(state_backend_type="of-ones-own"))
    with pytest.raises(ConfigError, match="state backend 'of-ones-own' is registered already"):
        register_state_backend(Factory())


def test_a_database_is_gone_when_it_is_closed(tmp_path: Path) -> None:
    folder = Location.parse(tmp_path)
    parameters = KeyedStateBackendParameters(
        Types.STRING,
        128,
        KeyGroupRange(0, 127),
        (),
        HandleResolver(open_file_io(folder), folder),
        SystemClock(),
    )
    backend = EmbeddedRocksDBStateBackend(str(tmp_path)).create_keyed_state_backend(parameters)
    state = backend.get_value_state(ValueStateDescriptor("n", Types.LONG))
    for number in range(100):
        backend.set_current_key(f"key-{number}")
        state.update(number)
    captured = backend.state.capture()
    before = captured.write_canonical()
    backend.set_current_key("key-5")
    state.update(-1)
    # What was captured does not move with the state.
    assert captured.write_canonical() == before
    assert backend.state.write_canonical() != before
    assert backend.num_key_value_state_entries() == 100
    assert list(tmp_path.iterdir())
    backend.close()
    backend.close()
    assert not list(tmp_path.iterdir())
