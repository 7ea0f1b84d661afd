"""Opens the jars of a job, for values that only its classes explain."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any

from dstl_core.codec.classfile.job_jar import JarFile, JobClasses
from dstl_core.errors import ConfigError, StateFileNotFoundError
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location

MAX_JAR_BYTES = 1 << 30


def open_job_classes(
    jars: Sequence[str | os.PathLike[str]], storage_options: dict[str, Any] | None = None
) -> JobClasses:
    """The classes in some jars, searched in this order. No class is loaded or run.

    Raises:
        StateFileNotFoundError: A jar does not exist.
        ConfigError: A jar is larger than ``MAX_JAR_BYTES``.
        FormatError: A file is no jar.
    """
    return JobClasses([_open(each, storage_options) for each in jars])


def _open(jar: str | os.PathLike[str], storage_options: dict[str, Any] | None) -> JarFile:
    location = Location.parse(jar)
    file_io = open_file_io(location, storage_options)
    size = file_io.size(location)
    if size is None:
        raise StateFileNotFoundError(
            "The jar does not exist; give the path of the job's jar.", location=str(location)
        )
    if size > MAX_JAR_BYTES:
        raise ConfigError(
            f"The jar is too large: expected at most {MAX_JAR_BYTES} bytes, got {size}; give the "
            f"jar of the job itself.",
            location=str(location),
        )
    return JarFile(str(location), io.BytesIO(file_io.read_bytes(location)))
