"""A Spark session for assets: started on first use, replaced when it is dead."""

import atexit
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import ConfigDict, Field, PrivateAttr

from dstl_core.errors import ConfigError
from dstl_dagster.resources.checked_options import CheckedOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATIC_SQL = (
    "spark.sql.catalogImplementation",
    "spark.sql.extensions",
    "spark.sql.warehouse.dir",
)
"""SQL settings that only the start of the JVM can set."""

_START_LOCK = threading.Lock()


class DstlSparkResource(CheckedOptions, dg.ConfigurableResource):
    """Holds dagster-pyspark's ``LazyPySparkResource``.

    The JVM (or the connection to a Spark Connect server) starts on first use, and all steps of a
    process share it. A stopped session is replaced. Each run has its own session, so that SQL
    settings of one run do not reach the next run.
    """

    model_config = ConfigDict(hide_input_in_errors=True)  # settings of Spark may hold secrets

    master: str | None = Field(
        default=None, description="Spark master, e.g. local[2]; local[*] without a remote."
    )
    remote: str | None = Field(default=None, description="Spark Connect, e.g. sc://host:15002.")
    app_name: str = Field(default="dstl", description="Name in the Spark UI.")
    spark_config: dict[str, str] = Field(default={}, description="Further Spark configuration.")
    stop_on_teardown: bool = Field(
        default=False, description="Whether the session is stopped at the end of each run."
    )

    _lazy: Any = PrivateAttr(default=None)
    _session: Any = PrivateAttr(default=None)

    @property
    def spark_session(self) -> "SparkSession":
        """The running session of this run.

        Raises:
            ConfigError: Both a master and a remote are given.
        """
        if self.master and self.remote:
            raise ConfigError("Give DstlSparkResource a master or a remote, not both.")
        with _START_LOCK:
            if self._session is None or is_stopped(self._session):
                self._session = self._new_session()
            session: SparkSession = self._session
        return session

    def _new_session(self) -> "SparkSession":
        from dagster_pyspark import LazyPySparkResource

        if not self.remote and (self.master or "local").startswith("local"):
            # PySpark takes the Python of local workers from here, else the one on the PATH.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        self._lazy = LazyPySparkResource(spark_config=self._start_config())
        shared = self._lazy.spark_session
        session: SparkSession = shared.newSession()
        if self.remote:
            # An open session of Spark Connect can keep Python from ending.
            for session_to_stop in (shared, session):
                atexit.register(_stop, session_to_stop)
        for key, value in self.spark_config.items():
            if _is_runtime(key):
                session.conf.set(key, value)
        self._warn_of_ignored(session)
        return session

    def _start_config(self) -> dict[str, Any]:
        from dstl_core.spark.session_start import OPTIONS, start_settings

        started_with = {k: v for k, v in self.spark_config.items() if not _is_runtime(k)}
        if self.remote:
            return {"spark.remote": self.remote, **started_with}
        master = self.master or "local[*]"
        defaults = {"spark.master": master, "spark.app.name": self.app_name}
        is_local = master.startswith("local")
        if is_local:
            # Local workers need the packages of this process.
            defaults["spark.pyspark.python"] = sys.executable
        options = started_with.pop(OPTIONS, "")
        return {**defaults, **start_settings(options, is_local=is_local), **started_with}

    def _warn_of_ignored(self, session: "SparkSession") -> None:
        """Warns that a running JVM ignores memory settings of the configuration."""
        for key, value in self._start_config().items():
            running = session.conf.get(key, None) if key in self.spark_config else None
            if running not in (None, value):
                dg.get_dagster_logger().warning(
                    f"{key}={value} has no effect: Spark runs in this process with {running}; "
                    f"use another process or the same setting."
                )

    @contextmanager
    def tagged(self, *names: str) -> Iterator["SparkSession"]:
        """The session of this run, as ``tagged_session`` gives it."""
        with tagged_session(self.spark_session, *names) as session:
            yield session

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        if self.stop_on_teardown and self._session is not None:
            _stop(self._session)


@contextmanager
def tagged_session(session: Any, *names: str) -> Iterator["SparkSession"]:
    """A session whose Spark jobs have the joined names as their tag.

    An exception that leaves the block, also that of a cancelled run, cancels these jobs. An
    error that dstl raised in a worker leaves the block as itself, with Spark's as its cause.
    """
    from dstl_core.spark.engine.worker_errors import errors_of_workers

    tag = "/".join(name.replace(",", "_") for name in names)
    _add_tag(session, tag)
    try:
        with errors_of_workers():
            yield session
    except BaseException:
        if not is_stopped(session):
            _cancel_tagged(session, tag)
        raise
    finally:
        if not is_stopped(session):
            _remove_tag(session, tag)


def _is_runtime(key: str) -> bool:
    return key.startswith("spark.sql.") and key not in _STATIC_SQL


def _is_remote(session: Any) -> bool:
    return hasattr(session, "is_stopped")  # only sessions of Spark Connect have it


# A classic session knows its tags by thread, and the thread of an interrupted call is lost with its
# connection to the JVM. The tags of the context are plain.


def _add_tag(session: Any, tag: str) -> None:
    if _is_remote(session):
        session.addTag(tag)
    else:
        session.sparkContext.addJobTag(tag)


def _remove_tag(session: Any, tag: str) -> None:
    if _is_remote(session):
        session.removeTag(tag)
    else:
        session.sparkContext.removeJobTag(tag)


def _cancel_tagged(session: Any, tag: str) -> None:
    if _is_remote(session):
        session.interruptTag(tag)
    else:
        session.sparkContext.cancelJobsWithTag(tag)


def _stop(session: Any) -> None:
    if not is_stopped(session):
        session.stop()


def is_stopped(session: Any) -> bool:
    """Whether a session, classic or Spark Connect, was stopped."""
    if _is_remote(session):
        return bool(session.is_stopped)
    try:
        session.sparkContext.defaultParallelism  # noqa: B018  # asks the JVM, runs nothing
    except Exception:  # which one depends on who stopped it: Python, the JVM, a lost JVM
        return True
    return False
