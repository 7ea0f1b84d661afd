"""Uploading change sets: tasks, schedulers, the file-system uploader."""

from dstl_core.changelog.upload.scheduler import (
    DirectUploadScheduler,
    StateChangeUploadScheduler,
    direct_scheduler,
)
from dstl_core.changelog.upload.task import UploadResult, UploadTask
from dstl_core.changelog.upload.uploader import StateChangeFsUploader, StateChangeUploader

__all__ = [
    "DirectUploadScheduler",
    "StateChangeFsUploader",
    "StateChangeUploadScheduler",
    "StateChangeUploader",
    "UploadResult",
    "UploadTask",
    "direct_scheduler",
]
