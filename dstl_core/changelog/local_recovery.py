"""Folders of the copies for local recovery.

Source: ``LocalRecoveryConfig`` and ``LocalRecoveryDirectoryProviderImpl`` of Flink 2.2.1.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from dstl_core.errors import ConfigError
from dstl_core.model.ids import JobID
from dstl_core.storage.file_io import FileIO, FsspecFileIO
from dstl_core.storage.location import TASK_OWNED_DIR, Location

Folder = Location | str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class LocalRecoveryConfig:
    """Configures copies of segments on the machine that wrote them.

    Args:
        base_dirs: A folder or folders of the allocation, usually one per disk. Without them there
            are no copies. A job uses one of them.
        file_io: Writes the copies.

    Raises:
        ConfigError: ``base_dirs`` are not local folders.
    """

    base_dirs: Folder | Sequence[Folder] = field(default=(), repr=False, compare=False)
    file_io: FileIO = field(default_factory=lambda: FsspecFileIO("file", fsync=False))
    """Writes the copies. They need not survive a power loss: the remote file is authoritative."""

    folders: tuple[Location, ...] = field(init=False)
    """``base_dirs`` as locations."""

    def __post_init__(self) -> None:
        dirs = self.base_dirs
        if isinstance(dirs, Location | str | os.PathLike):
            dirs = [dirs]
        elif not isinstance(dirs, Sequence):
            raise ConfigError(
                f"The folders for local recovery are wrong: expected a folder or a list of "
                f"folders, got {dirs!r}."
            )
        folders = tuple(
            folder if isinstance(folder, Location) else Location.parse(folder) for folder in dirs
        )
        for folder in folders:
            if not folder.is_local:
                raise ConfigError(
                    f"Copies for local recovery lie on this machine: expected a local folder, got "
                    f"{folder}."
                )
        object.__setattr__(self, "folders", folders)

    @property
    def is_local_backup_enabled(self) -> bool:
        return bool(self.folders)

    def task_owned_dir(self, job_id: JobID) -> Location:
        """``<base dir>/jid_<job id>/taskowned``, where Flink puts a job's local segments."""
        base = self.folders[(java_hash(job_id) & 0x7FFFFFFF) % len(self.folders)]
        return base.child(f"jid_{job_id.hex}", TASK_OWNED_DIR)


def java_hash(job_id: JobID) -> int:
    """``AbstractID.hashCode()`` without its sign: the four words of the id, combined by xor."""
    a, b, c, d = struct.unpack(">4I", job_id.raw)
    return int(a ^ b ^ c ^ d)


LOCAL_RECOVERY_DISABLED = LocalRecoveryConfig()
