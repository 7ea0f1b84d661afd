"""Settings that every test shares.

Property tests run under a fixed seed (profile ``ci``). ``make test`` takes 20 of 100 examples,
``make test-fast`` 5 (``DSTL_PROFILE=fast``), and ``make soak`` 500. The long runs take their seed
and time from the environment: ``DSTL_SOAK_SEED`` (default 0), ``DSTL_SOAK_SECONDS`` (default 60).
"""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import hypothesis
import pytest

from dstl_core.spark.session_start import DAEMON, OPTIONS, start_settings
from dstl_core.storage.location import Location
from tests.cloud_servers import CloudServer, azure_server, gcs_server
from tests.other_process import OtherProcess, other_process
from tests.progress import ProgressPlugin
from tests.s3_server import S3Server, s3_server
from tests.sharing import SessionsApart, in_order
from tests.warm_commands import VARIABLE, warm_commands

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BUCKETS = itertools.count()

# Spark's JVM of a test lives for a minute: the second compiler costs more than it gives. It takes
# settings of Spark as properties, too.
_SETTINGS = start_settings("-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
_JVM_OPTIONS = _SETTINGS[OPTIONS].replace('"', "")
for _name in ("SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(_name, _JVM_OPTIONS)
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{_JVM_OPTIONS} -D{DAEMON}={_SETTINGS[DAEMON]}")

_WARM_WORKERS = str(Path(__file__).parent / "warm_workers")
if _WARM_WORKERS not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(
        path for path in (_WARM_WORKERS, os.environ.get("PYTHONPATH")) if path
    )

hypothesis.settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, max_examples=20
)
hypothesis.settings.register_profile(
    "fast", derandomize=True, deadline=None, database=None, max_examples=5
)
hypothesis.settings.register_profile("soak", deadline=None, database=None, max_examples=500)
hypothesis.settings.load_profile(
    "soak" if "DSTL_SOAK_SECONDS" in os.environ else os.environ.get("DSTL_PROFILE", "ci")
)


@pytest.hookimpl(trylast=True)  # the reporter comes first
def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # what xdist gives to the processes that run tests
        config.pluginmanager.register(ProgressPlugin(config))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SessionsApart:
    return SessionsApart(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "stores" not in config.option.markexpr:  # only ``make test-stores`` installs their servers
        away = [item for item in items if item.get_closest_marker("stores")]
        config.hook.pytest_deselected(items=away)
        items[:] = [item for item in items if item not in away]
    items[:] = in_order(items)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What is collected lives to the end: no collection of garbage goes over it again.

    14,000 tests and their modules are 700,000 objects, a third of a second for each collection.
    Dagster's tests ask for hundreds.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def soak_seed() -> int:
    return int(os.environ.get("DSTL_SOAK_SEED", "0"))


@pytest.fixture
def soak_seconds() -> float:
    return float(os.environ.get("DSTL_SOAK_SECONDS", "60"))


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """The session of this process. It goes on after the module."""
    from tests.spark_session import local_session

    return local_session()


@pytest.fixture
def memory_files() -> Iterator[None]:
    """An empty in-memory file system, before and after: fsspec's is one for the process."""
    files = fsspec.filesystem("memory")
    _clear(files)
    yield
    _clear(files)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """One S3 server process for the whole session."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def gcs() -> Iterator[CloudServer]:
    """One server of Google Cloud Storage for the whole session."""
    with gcs_server() as server:
        yield server


@pytest.fixture(scope="session")
def azure() -> Iterator[CloudServer]:
    """One server of Azure's blobs for the whole session."""
    with azure_server() as server:
        yield server


@pytest.fixture(scope="session")
def commands() -> Iterator[None]:
    """Calls of the commands in ``docs/bin`` are forks of one process."""
    with warm_commands() as socket, pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, socket)
        yield


@pytest.fixture
def bucket(s3: S3Server) -> str:
    """The URL of a new, empty bucket on ``s3``."""
    return s3.make_bucket(f"bucket-{next(_BUCKETS)}")


@pytest.fixture(scope="session")
def other_processes(s3: S3Server) -> Iterator[dict[str, OtherProcess]]:
    """A file IO in a process of its own for each scheme: somebody else who writes."""
    local = other_process(Location.parse("/"))
    with local as on_disk, other_process(Location.parse("s3://b"), s3.storage_options) as on_s3:
        yield {"file": on_disk, "s3": on_s3}


def _clear(files: fsspec.AbstractFileSystem) -> None:
    files.store.clear()
    files.pseudo_dirs[:] = [""]
