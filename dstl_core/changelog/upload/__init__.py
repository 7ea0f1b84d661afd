"""Uploads change sets: tasks, schedulers, retries, uploaders on file systems."""

from dstl_core.changelog.upload.retry import RetriableAction, RetryingExecutor, RetryPolicy
from dstl_core.changelog.upload.scheduler import (
    BatchingStateChangeUploadScheduler,
    DirectUploadScheduler,
    StateChangeUploadScheduler,
)
from dstl_core.changelog.upload.task import UploadResult, UploadTask, UploadTasksResult
from dstl_core.changelog.upload.throttle import AvailabilityProvider, UploadThrottle
from dstl_core.changelog.upload.uploader import (
    DuplicatingStateChangeFsUploader,
    StateChangeFsUploader,
    StateChangeUploader,
)

__all__ = [
    "AvailabilityProvider",
    "BatchingStateChangeUploadScheduler",
    "DirectUploadScheduler",
    "DuplicatingStateChangeFsUploader",
    "RetriableAction",
    "RetryPolicy",
    "RetryingExecutor",
    "StateChangeFsUploader",
    "StateChangeUploadScheduler",
    "StateChangeUploader",
    "UploadResult",
    "UploadTask",
    "UploadTasksResult",
    "UploadThrottle",
]
