"""Publishes a file exactly once: of several writers on any machines, one succeeds.

Local disks link a temporary file to the name. S3 has ``If-None-Match: *``, Google Cloud Storage
``ifGenerationMatch=0``, and Azure ``If-None-Match: *`` again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from dstl_core.errors import InvariantViolation
from dstl_core.storage import local_files, multipart

_MEMORY_LOCK = threading.Lock()
_TRIES = 8
"""Number of tries of a conditional PUT that conflicts with another one."""


def _publish_local(fs: Any, path: str, data: bytes) -> bool:
    try:
        local_files.publish(path, data)
    except FileExistsError:
        return local_files.read_regular(path, 0, None) == data
    return True


def _publish_memory(fs: Any, path: str, data: bytes) -> bool:
    with _MEMORY_LOCK:
        if fs.exists(path):
            return bool(fs.cat_file(path) == data)
        fs.pipe_file(path, data)
        return True


def _put_once(fs: Any, path: str, data: bytes, **create: Any) -> bool:
    """Sends a request that the store refuses if the object exists; ``create`` tells the file system
    so.

    The response to a successful PUT can get lost. The client then repeats the PUT and is refused,
    or gives up. So after any error, the object at the key is compared with the data. Nothing is
    deleted, since the object may belong to another writer.
    """
    for tried in range(1, _TRIES + 1):
        try:
            fs.pipe_file(path, data, **create)
            return True
        except Exception as error:
            is_ours = _object_is(fs, path, data)
            if is_ours is not None:
                return is_ours
            if tried == _TRIES or not _is_conflict(error):
                raise
    raise InvariantViolation("a PUT ends with an answer or an error")


def _object_is(fs: Any, path: str, data: bytes) -> bool | None:
    """Whether an object has these bytes; None if it does not exist, or its state is unknown."""
    try:
        return bool(fs.info(path)["size"] == len(data) and fs.cat_file(path) == data)
    except Exception:
        return None


def _is_conflict(error: Exception) -> bool:
    """Whether S3 refused a conditional request because another one is in progress."""
    answer: dict[str, Any] = getattr(error.__cause__, "response", {})
    return bool(answer.get("Error", {}).get("Code") == "ConditionalRequestConflict")


PUBLISHERS: dict[str, Callable[[Any, str, bytes], bool]] = {
    "file": _publish_local,
    "memory": _publish_memory,
    "s3": partial(_put_once, mode="create"),
    "gcs": partial(_put_once, mode="create"),
    "abfs": partial(_put_once, overwrite=False),
}
"""What publishes a file, by the protocol of its file system."""


def create_object(protocol: str, fs: Any, path: str, buffers: Iterable[bytes | memoryview]) -> int:
    """As ``multipart.create_object``, on a store that publishes."""
    return multipart.create_object(fs, path, buffers, PUBLISHERS[protocol])
