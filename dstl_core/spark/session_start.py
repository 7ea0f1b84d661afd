"""What makes a session start fast: an archive of Spark's classes, and a daemon of its workers.

A JVM that maps the archive starts in half the time. Java has such archives since version 13
(JEP 350). Java ignores an archive that another Java made, or that was made for other jars: it
compares the order, the sizes and the times of the jars with those that the archive names.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dstl_core.errors import ConfigError
from dstl_core.private_folders import private_folder, user_cache
from dstl_core.spark import worker_daemon

if TYPE_CHECKING:
    from dstl_core.spark.savepoints.spark_units import SparkUnits

OPTIONS = "spark.driver.extraJavaOptions"
DAEMON = "spark.python.daemon.module"
_ANSWER_S = 10.0
_MASTER = re.compile(r"local(-cluster)?(\[.+\])?|yarn|[a-z0-9]+://.+")
_QUIET = "-Xlog:cds*=off -Xlog:class+path=off"  # Java prints to the output why it ignores one


def archive_of(folder: Path, size: int) -> Path:
    """The file of an archive for the jars of this Spark.

    A JVM that maps a cut archive crashes, so the name has the size. Jars that are installed anew
    in the same place have other times, so the name has a digest of what Java compares.
    """
    return folder / f"spark-{_jars()}-{size}.jsa"


def archive_folder() -> Path | None:
    """Where the archive of this Java and this Spark is kept.

    Returns:
        None without Java, without Spark, or if nothing may be kept for this user.
    """
    java, spark, cache = _java_home(), _pyspark(), user_cache()
    if java is None or spark is None or cache is None:
        return None
    digest = hashlib.sha256()
    for file in (java / "release", spark / "version.py"):
        digest.update(f"{file}\n".encode())
        with suppress(OSError):  # some Java has no such file
            digest.update(file.read_bytes())
    return private_folder(cache / "classes" / digest.hexdigest()[:16])


def kept_archive() -> Path | None:
    """The archive of this Java and this Spark, if one is kept."""
    folder = archive_folder()
    if folder is None:
        return None
    with suppress(OSError):  # another process may replace one meanwhile
        for file in folder.glob("*.jsa"):
            if file == archive_of(folder, file.stat().st_size):
                return file
    return None


def start_settings(options: str = "", *, is_local: bool = True) -> dict[str, str]:
    """Settings of a session that make its start fast. The start of the JVM reads them.

    Args:
        options: Further options of the JVM. They stay alone if they name another archive.
        is_local: Whether the workers run on this machine, with this Python.
    """
    settings = {DAEMON: worker_daemon.MODULE} if is_local else {}
    archive = kept_archive()
    if archive is not None and "-XX:SharedArchiveFile" not in options:
        options = f'{options} "-XX:SharedArchiveFile={archive}" {_QUIET}'.strip()
    return {**settings, OPTIONS: options} if options else settings


@contextmanager
def units_on(master: str) -> Iterator[SparkUnits]:
    """Starts a session for units of savepoints, and stops it at the end.

    Args:
        master: The address of Spark's master, e.g. ``local[4]`` or ``spark://host:7077``.

    Raises:
        ConfigError: Spark does not start, or no master answers.
    """
    from pyspark.sql import SparkSession

    from dstl_core.spark.savepoints.spark_units import SparkUnits

    require_answer(master)
    builder = SparkSession.builder.master(master).appName("dstl")
    for name, value in start_settings(is_local=master.startswith("local")).items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # of the gateway to Java, of Java, or of Spark
        raise ConfigError(
            f"Spark does not start with the master {master!r} "
            f"({str(error).partition(chr(10))[0].rstrip('.')}); give one such as local[4] or "
            f"spark://host:7077; Spark needs a Java runtime >= 17."
        ) from error
    try:
        yield SparkUnits(spark)
    finally:
        spark.stop()


def require_answer(master: str) -> None:
    """Checks that somebody listens at an address of ``spark://HOST:PORT,HOST:PORT``. Spark itself
    tries for a minute, for which it has no setting. Other masters are not asked.

    Raises:
        ConfigError: It is no address of a master, or nobody listens at any of them.
    """
    if not _MASTER.fullmatch(master):
        raise ConfigError(
            f"The master of Spark is wrong: expected one such as local[4], spark://host:7077, "
            f"k8s://https://host:6443 or yarn, got {master!r}."
        )
    scheme, _, addresses = master.partition("://")
    if scheme != "spark":
        return
    reasons = []
    for address in addresses.split(","):
        try:
            place = urlsplit(f"//{address}")
            if place.hostname is None or place.port is None:
                return  # Spark says what is wrong with it
            socket.create_connection((place.hostname, place.port), _ANSWER_S).close()
            return
        except ValueError:
            return
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
    raise ConfigError(
        f"No master of Spark answers at {master!r} ({'; '.join(reasons)}); start one there, or "
        f"give another master, e.g. local[4]."
    )


def making(archive: Path) -> str:
    """The options of a JVM that makes an archive of its classes when it ends."""
    return f'"-XX:ArchiveClassesAtExit={archive}" -Xlog:disable'


def _pyspark() -> Path | None:
    """The folder of the package, which is not imported."""
    spark = find_spec("pyspark")
    return None if spark is None or spark.origin is None else Path(spark.origin).parent


def _jars() -> str:
    """A digest of what Java compares: the order, the sizes and the times of the jars."""
    home = os.environ.get("SPARK_HOME") or _pyspark() or ""
    digest = hashlib.sha256()
    with suppress(OSError), os.scandir(Path(home, "jars")) as jars:
        for jar in jars:
            status = jar.stat()
            digest.update(f"{jar.name} {status.st_size} {int(status.st_mtime)}\n".encode())
    return digest.hexdigest()[:16]


def _java_home() -> Path | None:
    """The home of the Java that PySpark starts."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return Path(home).resolve()
    java = shutil.which("java")
    return None if java is None else Path(java).resolve().parents[1]
