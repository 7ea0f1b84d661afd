"""Storage profiles: credentials and endpoints by base location.

A process registers profiles. The longest base that contains a location applies; a location without
a base uses the environment. Credentials are never sent to workers. A worker gets the path of a file
that only its user can read, in a folder that only its user can open. Workers on other machines
cannot see that file; there, ``DSTL_STORAGE_PROFILES`` names a file of the machine::

    [{"base": "s3://bucket/folder", "options": {"key": "..", "secret": "..", "endpoint_url": ".."}}]
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from dstl_core.errors import ConfigError
from dstl_core.storage.file_systems import protocol_of
from dstl_core.storage.json_document import CONVERSION_ERRORS
from dstl_core.storage.location import Location

VARIABLE = "DSTL_STORAGE_PROFILES"
"""The environment variable that names a file of profiles."""

Profiles = dict[Location, dict[str, Any]]


def register_profile(base: Location, options: Mapping[str, Any]) -> None:
    """Defines the options for a location and all locations below it, in this process and its
    workers.

    Local folders need no options and get none.

    Args:
        base: Folder or bucket.
        options: Options of the fsspec file system as plain JSON values; empty to use the
            environment.

    Raises:
        ConfigError: The place is registered with other options.
    """
    if not base.is_local:
        _PROCESS.register(_normal(base), dict(options))


def options_for(location: Location) -> Mapping[str, Any]:
    """The options for a location; empty to use the environment."""
    return _PROCESS.find(_normal(location))


def profile_file() -> str:
    """Path of the file from which workers read this process's profiles."""
    return _PROCESS.path_for_workers()


def use_profile_file(path: str | None) -> None:
    """Uses the profiles of the process that sent the path, if its file is visible here."""
    if path is not None:
        _PROCESS.received = path


def _normal(location: Location) -> Location:
    return Location(protocol_of(location.scheme), location.path)


class _PrivateFile:
    """A file that only this process and its user can read; deleted when the process ends.

    The process holds a lock on the folder. A folder without a lock is left over from a process that
    was killed; the next process that creates such a folder deletes it.
    """

    def __init__(self, root: Path) -> None:
        self.pid = os.getpid()
        self.folder = root / f"{self.pid}-{uuid4().hex}"
        self.path = self.folder / "profiles.json"
        self._root = root
        self._lock: int | None = None

    def write(self, text: str) -> None:
        if self._lock is None:
            self._make_folder()
        temporary = self.folder / uuid4().hex
        temporary.touch(mode=0o600, exist_ok=False)
        temporary.write_text(text)
        temporary.replace(self.path)

    def _make_folder(self) -> None:
        self._root.mkdir(mode=0o700, exist_ok=True)
        _check_private(self._root, os.lstat(self._root), 0o077)
        _delete_unlocked(self._root)
        while self._lock is None:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self._lock = _locked(self.folder)
        atexit.register(self._delete)

    def _delete(self) -> None:
        if os.getpid() == self.pid:  # not in a fork
            shutil.rmtree(self.folder, ignore_errors=True)


def _locked(folder: Path) -> int | None:
    """An open handle with the folder's lock, or None if it is locked or gone."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_nlink:  # the folder was not deleted before the lock was taken
            return handle
    except BlockingIOError:
        pass
    os.close(handle)
    return None


def _delete_unlocked(root: Path) -> None:
    for folder in root.iterdir():
        handle = _locked(folder)
        if handle is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(handle)


def _check_private(path: str | Path, status: os.stat_result, forbidden: int) -> None:
    """Raises ConfigError if other users than this one and root may read or change the file."""
    mode = stat.S_IMODE(status.st_mode)
    is_link = stat.S_ISLNK(status.st_mode)
    if status.st_uid not in (os.getuid(), 0) or mode & forbidden or is_link:
        raise ConfigError(
            f"Storage profiles are not private: expected {path} to belong to user {os.getuid()} "
            f"or root with none of the rights {forbidden:03o}, got user {status.st_uid} and mode "
            f"{mode:03o}; change its owner and mode, or remove it."
        )


class _ProcessProfiles:
    """The profiles that this process knows. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own: Profiles = {}
        self._file: _PrivateFile | None = None
        self._read: dict[str, tuple[object, Profiles]] = {}
        self.received: str | None = None

    def renew_lock(self) -> None:
        """Another thread may hold the lock while this one forks, and is not there to give it
        back.
        """
        self._lock = threading.Lock()

    def register(self, base: Location, options: dict[str, Any]) -> None:
        with self._lock:
            known = self._own.get(base)
            if known == options:
                return
            if known is not None:
                raise ConfigError(
                    f"Two storage resources of this process reach {base} with different "
                    f"credentials or endpoints; give both the same, or start a process for each."
                )
            self._own[base] = options
            self._private_file().write(_to_json(self._own))

    def find(self, location: Location) -> Mapping[str, Any]:
        with self._lock:
            known = {**self._of_files(), **self._own}
        bases = [base for base in known if base.contains(location)]
        return known[max(bases, key=lambda base: len(base.path))] if bases else {}

    def path_for_workers(self) -> str:
        with self._lock:
            if not self._own and self.received is not None:
                return self.received
            return str(self._private_file().path)

    def _private_file(self) -> _PrivateFile:
        """Creates the file if needed. The caller holds the lock."""
        if self._file is None or self._file.pid != os.getpid():
            self._file = _PrivateFile(Path(tempfile.gettempdir(), f"dstl-profiles-{os.getuid()}"))
            if self._own:
                self._file.write(_to_json(self._own))
        return self._file

    def _of_files(self) -> Profiles:
        profiles: Profiles = {}
        file = os.environ.get(VARIABLE)
        if file:
            profiles.update(self._of_file(file, must_exist=True))
        if self.received is not None:
            profiles.update(self._of_file(self.received, must_exist=False))
        return profiles

    def _of_file(self, path: str, *, must_exist: bool) -> Profiles:
        try:
            with open(path, "rb") as stream:
                status = os.fstat(stream.fileno())
                version = (status.st_ino, status.st_mtime_ns, status.st_size)
                known = self._read.get(path)
                if known is None or known[0] != version:
                    _check_private(path, status, 0o027)
                    known = self._read[path] = (version, _from_json(stream.read(), path))
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not must_exist:
                return {}  # the driver runs on another machine, or has no profiles
            raise ConfigError(
                f"The storage profiles {path} cannot be read ({error.strerror}); {VARIABLE} names "
                f"the file."
            ) from error
        return known[1]


def _to_json(profiles: Profiles) -> str:
    return json.dumps(
        [{"base": str(base), "options": options} for base, options in profiles.items()]
    )


def _from_json(raw: bytes, path: str) -> Profiles:
    try:
        return {
            _normal(Location.parse(profile["base"])): dict(profile["options"])
            for profile in json.loads(raw)
        }
    except (*CONVERSION_ERRORS, RecursionError) as error:
        # The text of the error could quote a secret.
        raise ConfigError(
            f"The storage profiles {path} are damaged ({type(error).__name__}); expected a JSON "
            f"list of objects with base and options."
        ) from None


_PROCESS = _ProcessProfiles()
os.register_at_fork(after_in_child=_PROCESS.renew_lock)
