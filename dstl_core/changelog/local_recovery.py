"""Folders of the copies for local recovery.

Source: ``LocalRecoveryConfig`` and ``LocalRecoveryDirectoryProviderImpl`` of Flink 2.2.1.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from dstl_core.errors import ConfigError
from dstl_core.model.ids import JobID
from dstl_core.storage.file_io import FileIO, FsspecFileIO
from dstl_core.storage.location import TASK_OWNED_DIR, Location


@dataclass(frozen=True, slots=True)
class LocalRecoveryConfig:
    """Configures copies of segments on the machine that wrote them.

    ``base_dirs`` are folders of the allocation, usually one per disk. Without them there are no
    copies. A job uses one of them.
    """

    base_dirs: tuple[Location, ...] = ()
    file_io: FileIO = field(default_factory=lambda: FsspecFileIO("file", fsync=False))
    """Writes the copies. They need not survive a power loss: the remote file is authoritative."""

    def __post_init__(self) -> None:
        for each in self.base_dirs:
            if each.scheme != "file":
                raise ConfigError(
                    f"Copies for local recovery lie on this machine: expected a local folder, got "
                    f"{each}."
                )

    @property
    def is_local_backup_enabled(self) -> bool:
        return bool(self.base_dirs)

    def task_owned_dir(self, job_id: JobID) -> Location:
        """``<base dir>/jid_<job id>/taskowned``, where Flink puts a job's local segments."""
        base = self.base_dirs[(java_hash(job_id) & 0x7FFFFFFF) % len(self.base_dirs)]
        return base.child(f"jid_{job_id.hex}", TASK_OWNED_DIR)


def java_hash(job_id: JobID) -> int:
    """``AbstractID.hashCode()`` without its sign: the four words of the id, combined by xor."""
    a, b, c, d = struct.unpack(">4I", job_id.raw)
    return int(a ^ b ^ c ^ d)


LOCAL_RECOVERY_DISABLED = LocalRecoveryConfig()
