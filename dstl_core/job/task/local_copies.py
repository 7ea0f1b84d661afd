"""Copies of state on a worker's disk, named by the committed handles of the state.

    <root>/<pipeline>/<operator>/<first>-<last>-of-<max parallelism>/<digest>/     one copy
                                                                    /copy.json     what it copies

A pipeline is named by the id of its job and a digest of its base path. Pipelines of one name with
two base paths (for example, development and production) do not evict each other's copies.

The name of a copy is a digest of the handles that its task reported. Handles have random file
names, so no task looks for a copy of a failed epoch. A copy is never a part of a checkpoint. If it
is missing or damaged, the state is restored from the checkpoint.

The description of a copy has the sha256 of each of its files. They are checked before a task uses
them; a file that has not changed since this process checked it is not read again. If a task fails
that used a copy, the files are read again, and damage deletes all copies of these key groups: they
may share the damaged file.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.metadata.handles import write_keyed_handle
from dstl_core.errors import StorageError
from dstl_core.job.spec.job_spec import TaskSpec
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    ChangelogStateHandle,
    KeyedStateHandle,
)
from dstl_core.model.ids import JobID
from dstl_core.state.columns.checked_files import digest_of, set_mark

_LOG = logging.getLogger(__name__)
MANIFEST = "copy.json"
_UNUSED = (MANIFEST, "LOG", "LOCK")
"""Files of a copy that no task reads."""
KEPT_PER_RANGE = 3
ABANDONED_S = 24 * 3600
COUNTED_PARTS = 64
"""A process counts all copies after it has added this part of their limit in bytes."""
_UNCOUNTED: dict[Path, int] = {}
"""Bytes that this process may add to a folder before it counts the copies there."""


@dataclass(frozen=True)
class CopyParts:
    """The parts of a state: digests of its bases, and of the logs after them, in order."""

    base: tuple[str, ...]
    log: tuple[str, ...]
    log_handles: tuple[ChangelogStateHandle, ...] = ()

    @classmethod
    def of(cls, handles: Sequence[KeyedStateHandle]) -> CopyParts:
        base: list[KeyedStateHandle] = []
        log: list[ChangelogStateHandle] = []
        for handle in handles:
            if isinstance(handle, ChangelogStateBackendHandle):
                base += handle.materialized
                log += handle.non_materialized
            else:
                base.append(handle)
        return cls(tuple(map(_digest, base)), tuple(_digest(each) for each in log), tuple(log))

    @property
    def name(self) -> str:
        text = json.dumps([self.base, self.log])
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def since(self, older: CopyParts) -> tuple[ChangelogStateHandle, ...] | None:
        """The logs from an older state to this one; None if ``older`` is not an earlier state."""
        count = len(older.log)
        if older.base != self.base or older.log != self.log[:count]:
            return None
        return self.log_handles[count:]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(handle: KeyedStateHandle) -> str:
    out = DataOutput()
    write_keyed_handle(out, handle)
    return hashlib.sha256(out.to_bytes()).hexdigest()


@dataclass(frozen=True)
class BegunCopy:
    """The files of a copy that has no name yet, and fields of its manifest."""

    path: Path
    notes: dict[str, Any] = field(default_factory=dict)


class CopyFolder:
    """The copies of one subtask's key groups on this machine. Safe for several processes.

    Invariant: a copy does not change once it has its name.
    """

    def __init__(self, task: TaskSpec, subtask: int) -> None:
        groups = task.job.key_groups(subtask)
        self._max_bytes = task.job.local_copies.max_bytes
        self._used: tuple[Path, Mapping[str, str]] | None = None
        self._root = _root(task.job.local_copies.folder)
        self._folder = (
            self._root
            / f"{task.job.job_id.hex}-{_sha256(task.job.base_path)[:16]}"
            / task.operator.operator_id.hex
            / f"{groups.start_key_group}-{groups.end_key_group}-of-{task.job.max_parallelism}"
        )

    def find(self, wanted: CopyParts) -> tuple[Path, dict[str, Any], CopyParts] | None:
        """The copy with the fewest logs missing for a state, with its manifest and parts.

        Returns:
            None if no copy leads to the state. Incomplete and damaged copies are deleted.
        """
        leading: list[tuple[int, Path, dict[str, Any], CopyParts]] = []
        for path in self._copies():
            manifest = _read_manifest(path)
            if manifest is None:
                self.drop(path)
                continue
            parts = CopyParts(tuple(manifest["base"]), tuple(manifest["log"]))
            missing = wanted.since(parts)
            if missing is not None:
                leading.append((len(missing), path, manifest, parts))
        for _, path, manifest, parts in sorted(leading, key=lambda copy: copy[0]):
            if _damage_of(path, manifest["files"]) is None:
                self._used = path, manifest["files"]
                return path, manifest, parts
            self.drop(path)
        return None

    def check_used(self) -> None:
        """Checks again the files of the copy that the task uses.

        Raises:
            StorageError: They were damaged while the task ran.
        """
        damage = self.damage_of_used()
        if damage is not None:
            raise StorageError(
                f"A local copy of state was damaged while a task used it ({damage}), and nothing "
                f"is committed; run the input again: the state is then restored from the "
                f"checkpoint.",
                location=str(self._folder),
            )

    def damage_of_used(self) -> str | None:
        """The damage of the copy that the task uses; None if it has none.

        A task goes on with files that another process has deleted.
        """
        damage = None if self._used is None else _damage_of(*self._used)
        return None if damage is None or damage.is_gone else damage.text

    def drop_damaged(self) -> None:
        """Deletes all copies of these key groups if the one that a failed task used is damaged."""
        if self._used is not None and _damage_of(*self._used, again=True) is not None:
            for path in self._copies():
                self.drop(path)

    @property
    def path(self) -> Path:
        """The folder in which copies are built under hidden names; finished copies stay in it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    def begin(self, save: Callable[[Path], dict[str, Any]]) -> BegunCopy | None:
        """Makes the files of a copy: ``save`` writes them, and returns fields for the manifest.

        An error of the disk ends the copy, never the task: for example, the disk is full, or
        another process has deleted the copy that this one shares files with.
        """
        begun = None
        try:
            begun = BegunCopy(Path(tempfile.mkdtemp(prefix=".new-", dir=self.path)))
            begun.notes.update(save(begun.path))
        except OSError as error:
            _log_loss(error)
            self.give_up(begun)
            return None
        return begun

    def finish(self, begun: BegunCopy, parts: CopyParts, digests: Mapping[str, str]) -> None:
        """Publishes the files of ``begin``, unless the copy that they share files with is damaged.

        ``digests`` has the sha256 of files that are known.
        """
        damage = self.damage_of_used()
        if damage is None:
            self.publish(begun.path, parts, begun.notes, digests)
            return
        _LOG.warning(
            "a local copy was not kept: the copy that it was made from is damaged: %s", damage
        )
        self.give_up(begun)

    def give_up(self, begun: BegunCopy | None) -> None:
        """Deletes the files of ``begin``."""
        if begun is not None:
            shutil.rmtree(begun.path, ignore_errors=True)

    def publish(
        self,
        built: Path,
        parts: CopyParts,
        notes: dict[str, Any],
        digests: Mapping[str, str] | None = None,
    ) -> None:
        """Gives a finished copy its name, and deletes old copies. Errors of the disk are logged.

        Args:
            built: The folder of the copy.
            parts: The state that it is a copy of.
            notes: Fields for the manifest.
            digests: The sha256 of files, by name. By default files that the task's copy has as
                well are shared with it, and keep their digest.
        """
        try:
            known = self._shared() if digests is None else digests
            files = {
                path.name: known.get(path.name) or _digest_of_new(path)
                for path in built.iterdir()
                if path.is_file() and path.name not in _UNUSED
            }
            size = sum((built / name).stat().st_size for name in files)
            text = json.dumps({"base": parts.base, "log": parts.log, "files": files, **notes})
            manifest = {"copy": text, "sha256": _sha256(text)}
            (built / MANIFEST).write_text(json.dumps(manifest))
            target = self._folder / parts.name
            if target.exists():
                shutil.rmtree(built, ignore_errors=True)
                return
            built.rename(target)
            self._evict(target, size)
        except OSError as error:
            _log_loss(error)
            shutil.rmtree(built, ignore_errors=True)

    def newest_bytes(self) -> int:
        """The bytes of the newest copy; 0 if there is none."""
        copies = self._copies()
        return _disk_bytes(copies[0], set()) if copies else 0

    def drop(self, path: Path) -> None:
        """Deletes an unusable copy."""
        if self._used is not None and self._used[0] == path:
            self._used = None
        with_other_name = path.with_name(f".old-{uuid4().hex}")
        try:
            path.rename(with_other_name)
        except OSError:
            return  # another process was faster
        shutil.rmtree(with_other_name, ignore_errors=True)

    def _shared(self) -> Mapping[str, str]:
        """The digests of files that never change, by names that are never given again."""
        files = {} if self._used is None else self._used[1]
        return {name: digest for name, digest in files.items() if name.endswith(".sst")}

    def _copies(self) -> list[Path]:
        """The copies, newest first."""
        if not self._folder.is_dir():
            return []
        copies = [each for each in self._folder.iterdir() if not each.name.startswith(".")]
        return sorted(copies, key=_age, reverse=True)

    def _evict(self, newest: Path, added: int) -> None:
        for path in self._copies()[KEPT_PER_RANGE:]:
            self.drop(path)
        for path in self._folder.glob(".*"):  # left by killed processes
            if time.time() - path.stat().st_mtime > ABANDONED_S:
                shutil.rmtree(path, ignore_errors=True)
        # The copies of all subtasks are counted now and then: a count takes a time that grows with
        # their number.
        left = _UNCOUNTED.get(self._root, 0) - added
        if left <= 0:
            self._keep_limit(newest)
            left = self._max_bytes // COUNTED_PARTS
        _UNCOUNTED[self._root] = left

    def _keep_limit(self, newest: Path) -> None:
        copies = sorted(self._root.glob("*/*/*/[!.]*"), key=_age, reverse=True)
        total = 0
        seen: set[tuple[int, int]] = set()
        for path in copies:
            total += _disk_bytes(path, seen)
            if total > self._max_bytes and path != newest:
                self.drop(path)


def drop_copies_of(job_id: JobID, folder: str | None = None) -> int:
    """Deletes all copies of the state of a job on this machine; returns how many there were.

    Copies of pipelines of the same name with other base paths go as well: one place may have
    several spellings. Tasks go on with files that they have open, and restore the next time.

    Args:
        job_id: The job.
        folder: The folder of the copies; None: the usual one.
    """
    pipelines = [*_root(folder).glob(f"{job_id.hex}*")]
    copies = sum(1 for pipeline in pipelines for _ in pipeline.glob("*/*/[!.]*"))
    for pipeline in pipelines:
        shutil.rmtree(pipeline)
    return copies


def _root(folder: str | None) -> Path:
    if folder is not None:
        return Path(folder)
    root = Path(tempfile.gettempdir(), f"dstl-local-{os.getuid()}")
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        return _private_root()
    return root


@cache
def _private_root() -> Path:
    """A new folder for this process alone, if other users can write to the shared folder."""
    return Path(tempfile.mkdtemp(prefix="dstl-local-"))


def _log_loss(error: OSError) -> None:
    """Logs why a copy was not kept. That another process deletes old copies is no fault."""
    level = logging.INFO if isinstance(error, FileNotFoundError) else logging.WARNING
    _LOG.log(level, "a local copy was not kept: %s", error)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _disk_bytes(folder: Path, seen: set[tuple[int, int]]) -> int:
    """Bytes of files that are not in ``seen``: copies share files by hard links."""
    total = 0
    try:
        for path in folder.iterdir():
            status = path.stat()
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_size
    except OSError:
        return total
    return total


def _read_manifest(path: Path) -> dict[str, Any] | None:
    """The manifest of a copy; None if it is damaged."""
    try:
        stored = json.loads((path / MANIFEST).read_text())
        if _sha256(stored["copy"]) != stored["sha256"]:
            return None
        manifest: dict[str, Any] = json.loads(stored["copy"])
        _ = manifest["base"], manifest["log"], manifest["files"].items()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return manifest


def _digest_of_new(path: Path) -> str:
    set_mark(path)
    return digest_of(path)


@dataclass(frozen=True)
class _Damage:
    """What is wrong with a copy; ``is_gone`` if a file was deleted."""

    text: str
    is_gone: bool = False


def _damage_of(path: Path, files: Mapping[str, str], *, again: bool = False) -> _Damage | None:
    """The damage of a copy; None if all its files have their digests."""
    try:
        for name, digest in files.items():
            if digest_of(path / name, again=again) != digest:
                return _Damage(f"{name} has changed")
    except OSError as error:
        return _Damage(str(error), isinstance(error, FileNotFoundError))
    return None
