from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.defs_state.base import set_defs_state_storage

from dstl_dagster import DstlStorageResource
from examples.flights.run import RANGE_END, RANGE_START
from tests.integration.dagster.small_pipeline import LOCAL, small_defs
from tests.spark_session import end_session_of_tests


@pytest.fixture(scope="module", autouse=True)
def no_session_of_other_tests() -> None:
    end_session_of_tests()


@pytest.fixture(scope="module", autouse=True)
def no_storage_of_other_tests() -> Iterator[None]:
    """The current storage of Dagster may be that of an instance that is gone."""
    gc.collect()
    with set_defs_state_storage(None):
        yield


@pytest.fixture
def storage(tmp_path) -> DstlStorageResource:
    return DstlStorageResource(base_path=str(tmp_path / "state"))


@contextmanager
def instance_in(home: Path) -> Iterator[dg.DagsterInstance]:
    """A Dagster instance of a folder. Whoever enters an instance and never leaves it, as contexts
    made for one call do, leaves a generator that sets Dagster's current storage back when it is
    collected: it is collected here, and not within a test.
    """
    gc.collect()
    with dg.DagsterInstance.local_temp(str(home)) as made:
        yield made


@pytest.fixture
def instance(tmp_path) -> Iterator[dg.DagsterInstance]:
    """An instance of one process. One of a folder makes a database for each run."""
    gc.collect()
    home = tmp_path / "dagster_home"
    home.mkdir()
    with dg.DagsterInstance.ephemeral(tempdir=str(home)) as made:
        yield made


@pytest.fixture
def instance_on_disk(tmp_path) -> Iterator[dg.DagsterInstance]:
    """An instance that other processes and contexts of schedules can open."""
    home = tmp_path / "home_on_disk"
    home.mkdir()
    with instance_in(home) as made:
        yield made


Run = Callable[..., dg.ExecuteInProcessResult]


@pytest.fixture
def run_days(storage, instance) -> Run:
    """Materializes the small pipeline's epochs of some days in one run."""

    def run(
        first: str, last: str | None = None, engine: Any = LOCAL, **options: Any
    ) -> dg.ExecuteInProcessResult:
        defs = small_defs(storage, **options)
        assets = [each for each in defs.assets or () if isinstance(each, dg.AssetsDefinition)]
        days = {RANGE_START: first, RANGE_END: last} if last else None
        return dg.materialize(
            [assets[0]],
            instance=instance,
            partition_key=None if last else first,
            tags=days,
            resources={"storage": storage, "engine": engine},
            raise_on_error=False,
        )

    return run
