"""Paths in Flink's form, and operations on them. No I/O.

A local path has the form ``file:/a/b``, as Flink's ``Path`` prints it. Other paths keep their URL
form (``s3://bucket/a``, ``memory://a``).
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dstl_core.errors import ConfigError, PathNotAllowedError
from dstl_core.storage.redaction import redacted

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_LOCAL_SCHEMES = ("file", "local")


@dataclass(frozen=True, slots=True)
class Location:
    """A file or folder: the scheme, and the absolute path in it.

    The path is ``/a/b``; for an object store ``/bucket/key``.
    """

    scheme: str
    path: str

    @classmethod
    def parse(cls, text: str | os.PathLike[str]) -> Location:
        """Parses a path or URL; a plain path is local and made absolute.

        Raises:
            ConfigError: It is neither text nor a path.
            PathNotAllowedError: The text is a chained URL (``a::b``), has characters that file
                names cannot have, or is a URL with a password or signature.
        """
        raw = os.fspath(text) if isinstance(text, os.PathLike) else text
        if not isinstance(raw, str):
            raise ConfigError(f"A path is wrong: expected text or a Path, got {text!r}.")
        if not raw:
            raise ConfigError("A path is empty; give a folder or a file.")
        location = _of_url(raw)
        if location is not None:
            return location
        # POSIX distinguishes two leading slashes from one; dstl does not.
        return cls("file", "/" + os.path.abspath(raw).lstrip("/"))

    @property
    def is_local(self) -> bool:
        return self.scheme == "file"

    @property
    def name(self) -> str:
        return posixpath.basename(self.path)

    @property
    def parent(self) -> Location:
        return Location(self.scheme, posixpath.dirname(self.path))

    def child(self, *names: str) -> Location:
        """A location below this one; the names are base names or relative paths without ``..``.

        Raises:
            PathNotAllowedError: The path is absolute, leaves the folder, or is not a valid name.
        """
        relative = posixpath.join(*names)
        _check_characters(relative)
        parts = relative.split("/")
        if relative.startswith("/") or ".." in parts:
            raise PathNotAllowedError(
                f"A relative path leaves its folder: got {relative!r} under {self}.",
                path=relative,
            )
        return Location(self.scheme, posixpath.normpath(posixpath.join(self.path, relative)))

    def contains(self, other: Location) -> bool:
        """Whether ``other`` is this location or below it."""
        if self.scheme != other.scheme:
            return False
        root = self.path.rstrip("/")
        return other.path == root or other.path.startswith(root + "/")

    def relative_to(self, root: Location) -> str:
        return posixpath.relpath(self.path, root.path)

    def __str__(self) -> str:
        return f"file:{self.path}" if self.is_local else f"{self.scheme}://{self.path[1:]}"


def further_roots(folders: Sequence[str]) -> tuple[str, ...]:
    """The value of ``allow_roots``. Each letter of a text would be a folder; ``/`` has all files.

    Raises:
        ConfigError: It is a text.
    """
    if isinstance(folders, str):
        raise ConfigError(f"allow_roots is wrong: expected a list of folders, got {folders!r}.")
    return tuple(folders)


@lru_cache(maxsize=1024)
def _of_url(text: str) -> Location | None:
    """The location of a URL; None for a plain path. An epoch parses each of its URLs some times."""
    _check_characters(text)
    match = _SCHEME.fullmatch(text)
    if match is None:
        return None
    scheme, rest = match.group(1).lower(), match.group(2)
    path = posixpath.normpath("/" + rest.lstrip("/"))
    if scheme in _LOCAL_SCHEMES:
        return Location("file", path)
    location = Location(scheme, path)
    _check_no_secret(str(location))
    return location


def _check_characters(path: str) -> None:
    """Refuses chained URLs, NUL, and lone surrogates (which file systems cannot store)."""
    try:
        os.fsencode(path)
        encodable = True
    except UnicodeEncodeError:
        encodable = False
    if "::" in path or "\0" in path or not encodable:
        raise PathNotAllowedError(
            f"A path is not allowed: expected one path or URL without '::', NUL and lone "
            f"surrogates, got {redacted(path)!r}.",
            path=redacted(path),
        )


def _check_no_secret(url: str) -> None:
    """Refuses URLs with secrets, since paths are logged, shown and stored."""
    if redacted(url) != url:
        raise PathNotAllowedError(
            f"A URL is not allowed: it holds a password or a signature, got {redacted(url)!r}; "
            f"give the URL without it, and the secret in the environment or in a storage profile.",
            path=redacted(url),
        )


UUID_NAME = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Name of a state file, of a changelog segment, or of a file uploaded by RocksDB. Each name is used
for one file only.
"""
OUTPUT_NAME = re.compile(r"part-[0-9]{5}-[0-9a-f]{32}\.parquet")
"""Name of a file of an epoch's output. Each name is used for one file only."""
METADATA_FILE_NAME = "_metadata"
SIDECAR_FILE_NAME = "_dstl.json"
CHECKPOINT_DIR_PREFIX = "chk-"
SHARED_DIR = "shared"
TASK_OWNED_DIR = "taskowned"
CHANGELOG_DIR = "dstl"
INTERNAL_DIR = "_dstl"
MIGRATION_DIR = "migration"
PLAN_PREFIX = "plan-"
_SCRATCH = re.compile(rf"{MIGRATION_DIR}|{PLAN_PREFIX}[0-9a-f]{{32}}")


@dataclass(frozen=True, slots=True)
class JobLayout:
    """The folder of one pipeline: ``<base>/<job id>``.

    Flink's names: ``chk-<n>``, ``shared``, ``taskowned``, ``dstl`` (changelog segments). dstl's own
    name: ``_dstl``, with the commit log and the output of epochs.
    """

    root: Location

    @classmethod
    def of(cls, base: Location, job_id_hex: str) -> JobLayout:
        return cls(base.child(job_id_hex))

    @property
    def commit_log(self) -> Location:
        return self.root.child(INTERNAL_DIR, "log")

    @property
    def changelog(self) -> Location:
        return self.root.child(CHANGELOG_DIR)

    @property
    def task_owned(self) -> Location:
        return self.root.child(TASK_OWNED_DIR)

    def checkpoint(self, checkpoint_id: int) -> Location:
        return self.root.child(f"{CHECKPOINT_DIR_PREFIX}{checkpoint_id}")

    def scratch(self, name: str) -> Location:
        """A folder of a migration or of a plan of one, which deletes it when it ends."""
        return self.root.child(INTERNAL_DIR, name)

    def output(self, checkpoint_id: int) -> Location:
        return self.root.child(INTERNAL_DIR, "output", f"{CHECKPOINT_DIR_PREFIX}{checkpoint_id}")


def checkpoint_id_of(folder_name: str) -> int | None:
    """The number of a ``chk-<n>`` folder, or None for any other name."""
    digits = folder_name.removeprefix(CHECKPOINT_DIR_PREFIX)
    if not folder_name.startswith(CHECKPOINT_DIR_PREFIX) or not re.fullmatch("[0-9]{1,18}", digits):
        return None  # a Java long of more digits could overflow
    return int(digits)


def is_scratch(place: Location) -> bool:
    """Whether a place is in a folder in which migrations write before their commit, or is one."""
    _, internal, below = f"{place.path}/".partition(f"/{INTERNAL_DIR}/")
    return bool(internal) and _SCRATCH.fullmatch(below.split("/")[0]) is not None
