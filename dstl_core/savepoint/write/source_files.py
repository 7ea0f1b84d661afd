"""The state files of a source: that none of them is written anew while work on it is under way, or
between two runs of the work.

``_metadata`` names files, and not their bytes. What tells one version of a file from another is
what its store says without a read: its size, and a tag of the store or a time.
"""

from __future__ import annotations

from collections.abc import Mapping

from dstl_core.errors import PathNotAllowedError, SavepointError, StorageError
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.write.work_record import Entries
from dstl_core.storage.location import Location

Versions = Mapping[str, str]
_FILES = "files"


class SourceFiles:
    """The files of a snapshot, as they are when work on it begins.

    A file that is not there is no concern of this class: who reads it says so.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._before = _versions_of(snapshot)

    def check(self) -> None:
        """Checks that the files are still those.

        Raises:
            SavepointError: One was written anew.
        """
        changed = _changed(self._before, _versions_of(self._snapshot))
        if changed is not None:
            raise SavepointError(
                f"A file of the source was written anew while it was read: {changed}; nothing is "
                f"published: run the command again, on a source that nobody writes to."
            )

    def keep_in(self, entries: Entries, name: str = "source") -> None:
        """Keeps in a record what the files are, or checks that an earlier run had the same ones.

        Raises:
            SavepointError: One was written anew since the work began.
        """
        kept = entries.get(name) if entries.continues else None
        if kept is None:
            entries.keep(name, {_FILES: self._before})
            return
        changed = _changed(kept.facts[_FILES], self._before)
        if changed is not None:
            raise SavepointError(
                f"A file of the source was written anew since an unfinished run had begun: "
                f"{changed}; put the file back as it was, choose another folder, or delete "
                f"{entries.folder} to begin anew."
            )


def _changed(before: Versions, now: Versions) -> str | None:
    """The first file that has another version."""
    for path, version in before.items():
        if now.get(path, version) != version:
            return f"{path}: expected {version}, got {now[path]}"
    return None


def _versions_of(snapshot: Snapshot) -> dict[str, str]:
    wanted = _locations_of(snapshot)
    versions = {}
    for folder in sorted({location.parent for location in wanted}, key=str):
        try:
            statuses = snapshot.file_io.list_folder(folder)
        except StorageError:
            continue  # who may read files may not always list them
        for status in statuses:
            if status.location in wanted:
                versions[str(status.location)] = f"{status.size} bytes of {status.version}"
    return versions


def _locations_of(snapshot: Snapshot) -> set[Location]:
    locations = set()
    for operator in snapshot.metadata.operators:
        for subtask in operator.subtasks:
            for stream in subtask.streams():
                try:
                    place = snapshot.resolver.resolve(stream).location
                except PathNotAllowedError:
                    continue
                if place is not None:
                    locations.add(place)
    return locations
