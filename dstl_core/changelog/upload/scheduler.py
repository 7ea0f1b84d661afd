"""When change sets are uploaded.

Source: ``StateChangeUploadScheduler`` of Flink 2.2.1.
"""

from __future__ import annotations

from typing import Protocol

from dstl_core.changelog.upload.task import UploadTask
from dstl_core.changelog.upload.uploader import StateChangeUploader
from dstl_core.errors import WriterClosedError


class StateChangeUploadScheduler(Protocol):
    """Takes tasks and finishes each of them exactly once, at its own time."""

    def upload(self, task: UploadTask) -> None: ...

    def close(self) -> None: ...


class DirectUploadScheduler:
    """Uploads every task at once, on the caller's thread."""

    def __init__(self, uploader: StateChangeUploader) -> None:
        self._uploader = uploader
        self._closed = False

    def upload(self, task: UploadTask) -> None:
        if self._closed:
            task.fail(WriterClosedError("An upload was asked for after its scheduler closed."))
            return
        try:
            result = self._uploader.upload([task])
        except Exception as error:
            # Whatever an uploader raises is this task's outcome; the writer keeps and reports it.
            task.fail(error)
        else:
            result.complete()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._uploader.close()


def direct_scheduler(uploader: StateChangeUploader) -> DirectUploadScheduler:
    """A scheduler without batching, threads or retries."""
    return DirectUploadScheduler(uploader)
