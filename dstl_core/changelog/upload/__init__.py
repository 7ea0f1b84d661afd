"""Uploads change sets: tasks, schedulers, retries, uploaders on file systems."""

from dstl_core.changelog.change_set import StateChangeSet
from dstl_core.changelog.storage_metrics import ChangelogStorageMetricGroup
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
from dstl_core.model.handle import FileStateHandle
from dstl_core.scheduling import Scheduler, ThreadScheduler

__all__ = [
    "AvailabilityProvider",
    "BatchingStateChangeUploadScheduler",
    "ChangelogStorageMetricGroup",
    "DirectUploadScheduler",
    "DuplicatingStateChangeFsUploader",
    "FileStateHandle",
    "RetriableAction",
    "RetryPolicy",
    "RetryingExecutor",
    "Scheduler",
    "StateChangeFsUploader",
    "StateChangeSet",
    "StateChangeUploadScheduler",
    "StateChangeUploader",
    "ThreadScheduler",
    "UploadResult",
    "UploadTask",
    "UploadTasksResult",
    "UploadThrottle",
]
