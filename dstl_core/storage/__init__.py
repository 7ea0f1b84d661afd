"""Access to file systems: locations, file IO, publish-once, the commit log.

A name loads its module on first use.
"""

from typing import TYPE_CHECKING

from dstl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dstl_core.storage.file_io import (
        FileIO as FileIO,
        FileStatus as FileStatus,
        FsspecFileIO as FsspecFileIO,
        open_file_io as open_file_io,
    )
    from dstl_core.storage.location import JobLayout as JobLayout, Location as Location


__getattr__, __dir__ = lazy_names(__name__)
