"""Access to file systems: locations, file IO, publish-once, the commit log.

A name loads its module on first use.
"""

from typing import TYPE_CHECKING

from dstl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dstl_core.storage.file_io import FileIO, FileStatus, FsspecFileIO, open_file_io
    from dstl_core.storage.location import JobLayout, Location

__all__ = [
    "FileIO",
    "FileStatus",
    "FsspecFileIO",
    "JobLayout",
    "Location",
    "open_file_io",
]

__getattr__, __dir__ = lazy_names(__name__)
