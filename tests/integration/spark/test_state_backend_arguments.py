"""Flink's methods take a state backend; ours say that they need none."""

import pytest

from dstl_core import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    SavepointReader,
    SavepointWriter,
)
from dstl_core.errors import ConfigError
from tests.golden_files import snapshot

pytestmark = pytest.mark.spark

SAVEPOINT = str(snapshot("a-hashmap-canonical"))
CALLS = {
    "SavepointReader.read": lambda spark, backend: SavepointReader.read(spark, SAVEPOINT, backend),
    "SavepointWriter.new_savepoint": lambda spark, backend: SavepointWriter.new_savepoint(
        spark, backend, 128
    ),
    "SavepointWriter.from_existing_savepoint": (
        lambda spark, backend: SavepointWriter.from_existing_savepoint(spark, SAVEPOINT, backend)
    ),
}
NAMED_CALLS = {
    "SavepointReader.read": lambda spark, backend: SavepointReader.read(
        spark, SAVEPOINT, state_backend=backend
    ),
    "SavepointWriter.new_savepoint": lambda spark, backend: SavepointWriter.new_savepoint(
        spark, state_backend=backend
    ),
    "SavepointWriter.from_existing_savepoint": (
        lambda spark, backend: SavepointWriter.from_existing_savepoint(
            spark, SAVEPOINT, state_backend=backend
        )
    ),
}


@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize("backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend])
def test_a_backend_is_an_argument_too_many(spark, method, backend):
    expected = f"{method} takes no state backend: expected no such argument, got {backend.__name__}"
    with pytest.raises(ConfigError, match=expected):
        CALLS[method](spark, backend())
    with pytest.raises(ConfigError, match=expected):
        NAMED_CALLS[method](spark, backend())


def test_a_backend_may_come_after_the_number_of_key_groups(spark):
    with pytest.raises(ConfigError, match="takes no state backend"):
        SavepointWriter.new_savepoint(spark, 128, HashMapStateBackend())
