"""Opens the jars and the descriptor sets of a job, for values that only they explain."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dstl_core.codec.classfile.job_jar import JarFile, JobClasses
from dstl_core.codec.protobuf.descriptors import Messages, read_descriptor_sets
from dstl_core.errors import ConfigError, StateFileNotFoundError
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.location import Location

MAX_JAR_BYTES = 1 << 30
"""Of all jars together, which are held in memory."""
MAX_PROTO_BYTES = 32 << 20
"""Of a descriptor set."""


def open_job_classes(
    jars: Sequence[str | os.PathLike[str]], storage_options: dict[str, Any] | None = None
) -> JobClasses:
    """The classes in some jars, searched in this order. No class is loaded or run.

    Raises:
        StateFileNotFoundError: A jar does not exist.
        ConfigError: The jars are larger together than ``MAX_JAR_BYTES``.
        FormatError: A file is no jar.
    """
    files = [_JarPlace.find(jar, storage_options) for jar in jars]
    total = 0
    for file in files:
        total += file.size
        if total > MAX_JAR_BYTES:
            raise ConfigError(
                f"The jars are too large together: expected at most {MAX_JAR_BYTES} bytes, got "
                f"{total} up to this one; give the jars of the job itself.",
                location=str(file.location),
            )
    return JobClasses([file.read() for file in files])


def read_protos(
    protos: Sequence[str | os.PathLike[str]], storage_options: dict[str, Any] | None = None
) -> Messages | None:
    """The messages of some descriptor sets; None without any.

    Raises:
        StateFileNotFoundError: A file does not exist.
        ConfigError: A file is no descriptor set, or is larger than ``MAX_PROTO_BYTES``.
    """
    contents: dict[str, bytes] = {}
    for proto in protos:
        location = Location.parse(proto)
        file_io = open_file_io(location, storage_options)
        size = file_io.size(location)
        if size is None:
            raise StateFileNotFoundError(
                "There is no such file; make a descriptor set by protoc --include_imports "
                "--descriptor_set_out=FILE.desc.",
                location=str(location),
            )
        if size > MAX_PROTO_BYTES:
            raise ConfigError(
                f"The descriptor set is too large: expected at most {MAX_PROTO_BYTES} bytes, got "
                f"{size}.",
                location=str(location),
            )
        contents[str(location)] = file_io.read_bytes(location)
    return read_descriptor_sets(contents) if contents else None


@dataclass(frozen=True)
class _JarPlace:
    location: Location
    file_io: FileIO
    size: int

    @classmethod
    def find(cls, jar: str | os.PathLike[str], storage_options: dict[str, Any] | None) -> _JarPlace:
        location = Location.parse(jar)
        file_io = open_file_io(location, storage_options)
        size = file_io.size(location)
        if size is None:
            raise StateFileNotFoundError(
                "The jar does not exist; give the path of the job's jar. A savepoint of the job is "
                "another argument: Snapshot.load(..), --expect.",
                location=str(location),
            )
        return cls(location, file_io, size)

    def read(self) -> JarFile:
        return JarFile(str(self.location), io.BytesIO(self.file_io.read_bytes(self.location)))
