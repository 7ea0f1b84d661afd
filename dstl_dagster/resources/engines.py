"""What runs the epochs of a run, from the resource that a project has."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dstl_core.errors import ConfigError
from dstl_core.savepoint.access.units import Jobs
from dstl_dagster.resources.spark_resource import is_stopped, tagged_session


@contextmanager
def engine_of(resource: Any, *names: str) -> Iterator[Any]:
    """The engine of a run: a session of Spark, or another engine.

    Args:
        resource: A ``DstlSparkResource`` or ``DstlLocalEngineResource``; or any object with a
            ``spark_session``, such as dagster-pyspark's ``PySparkResource``; or a session.
        names: The tag of the Spark jobs, see ``tagged_session``.

    Raises:
        ConfigError: It is something else, or its session has not started.
    """
    if hasattr(resource, "tagged"):
        with resource.tagged(*names) as engine:
            yield engine
        return
    is_session = hasattr(resource, "createDataFrame")
    session = resource if is_session else getattr(resource, "spark_session", None)
    if session is None:
        raise ConfigError(
            f"The engine of a run is wrong: expected a DstlSparkResource, a "
            f"DstlLocalEngineResource, a PySparkResource of dagster_pyspark or a session of Spark, "
            f"got {resource!r}."
        )
    with tagged_session(session, *names) as tagged:
        yield tagged


@contextmanager
def units_of(context: Any, engine: str | None, name: str) -> Iterator[Jobs]:
    """What reads and writes keyed state of a copy: tasks of a Spark session, or this process.

    Args:
        context: Of an op or an asset.
        engine: Key of the resource with the session; None for this process.
        name: Of the op, for the tag of the Spark jobs.

    Raises:
        ConfigError: The resource has no session of Spark.
    """
    if engine is None:
        yield 1
        return
    resource = getattr(context.resources, engine)
    with engine_of(resource, "dstl", context.run.run_id, name) as session:
        if not hasattr(session, "createDataFrame"):
            raise ConfigError(
                f"The engine of {name!r} is wrong: expected the key of a resource with a session "
                f"of Spark, got {engine!r}, a {type(resource).__name__}; leave it out to copy in "
                f"the process of the run."
            )
        from dstl_core.spark.savepoints.spark_units import SparkUnits

        yield SparkUnits(session)


def rows_of(batch: Callable[[Any, Any], Any], session: Any, key: Any) -> Any:
    """The rows that a function gives for a partition key or an input id.

    Raises:
        ConfigError: It has stopped the session of Spark that runs the epoch.
    """
    try:
        rows = batch(session, key)
    except Exception as error:
        _check_open(session, key, error)
        raise
    _check_open(session, key)
    return rows


def _check_open(session: Any, key: Any, cause: Exception | None = None) -> None:
    if hasattr(session, "createDataFrame") and is_stopped(session):
        raise ConfigError(
            f"The function that gives the rows of {key!r} has stopped the Spark session, which "
            f"runs the epoch: leave it open, the resource ends it; nothing was applied."
        ) from cause
