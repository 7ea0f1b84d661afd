"""A resource that configures how the changes of an epoch are uploaded."""

from typing import Any, Literal

import dagster as dg
from pydantic import Field

from dstl_core.changelog.storage import FsStateChangelogStorage
from dstl_core.changelog.upload.scheduler import (
    BatchingStateChangeUploadScheduler,
    StateChangeUploadScheduler,
)
from dstl_core.changelog.upload.uploader import StateChangeUploader
from dstl_core.config import ChangelogOptions
from dstl_core.model.ids import JobID
from dstl_core.scheduling import ThreadScheduler
from dstl_core.storage.location import Location
from dstl_dagster.resources.checked_options import CheckedOptions
from dstl_dagster.resources.storage_resource import DstlStorageResource


class RetryOptions(CheckedOptions, dg.Config):
    """Attempts of one upload. Dagster's own retries multiply them, so keep one of the two low."""

    max_attempts: int = Field(default=3, ge=1, description="Attempts of one upload.")
    timeout_ms: int = Field(default=1_000, ge=0, description="Timeout of one attempt; 0 for none.")
    delay_ms: int = Field(default=500, ge=0, description="Pause after a failed attempt.")

    def options(self) -> dict[str, Any]:
        return {
            "max_attempts": self.max_attempts,
            "upload_timeout_ms": self.timeout_ms,
            "next_attempt_delay_ms": self.delay_ms,
        }


class DirectUploads(CheckedOptions, dg.Config):
    """Uploads the changes of each writer at once, into a file of its own."""

    kind: Literal["direct"] = "direct"
    retry: RetryOptions = RetryOptions()

    def options(self) -> dict[str, Any]:
        return {"persist_delay_ms": 0, **self.retry.options()}


class BatchingUploads(CheckedOptions, dg.Config):
    """Collects the changes of several writers and uploads them into shared files."""

    kind: Literal["batching"] = "batching"
    persist_delay_ms: int = Field(default=10, ge=1, description="How long changes wait.")
    persist_size_bytes: int = Field(default=10 << 20, ge=1, description="Size that ends the wait.")
    max_in_flight_bytes: int = Field(
        default=100 << 20, ge=1, description="Bytes on their way at a time; more waits."
    )
    num_threads: int = Field(default=5, ge=1, description="Uploads at once.")
    retry: RetryOptions = RetryOptions()

    def options(self) -> dict[str, Any]:
        return {
            "persist_delay_ms": self.persist_delay_ms,
            "persist_size_threshold": self.persist_size_bytes,
            "max_in_flight": self.max_in_flight_bytes,
            "num_upload_threads": self.num_threads,
            **self.retry.options(),
        }


class UploadSchedulerResource(CheckedOptions, dg.ConfigurableResource):
    """The upload scheduler of a pipeline's tasks: ``direct`` or ``batching``.

    It holds options only. The schedulers and their threads live in the tasks of a pipeline. A task
    that succeeds flushes its scheduler; a task that fails closes it and drops its changes. Ops of
    your own get a storage or a scheduler from it, and close what they got.
    """

    scheduler: DirectUploads | BatchingUploads = Field(
        default=BatchingUploads(), discriminator="kind", description="direct or batching."
    )
    compress: bool = Field(default=True, description="Whether segments are compressed.")

    def changelog_options(self) -> dict[str, Any]:
        """Options of the changelog.

        Raises:
            ConfigError: Options contradict each other, e.g. a batch above the limit in flight.
        """
        options = {"compression_enabled": self.compress, **self.scheduler.options()}
        ChangelogOptions.of(**options)
        return options

    def changelog_storage(self, storage: DstlStorageResource, name: str) -> FsStateChangelogStorage:
        """A changelog below the storage's base path, in ``changelogs``, for ops of your own.

        It is a context: its end completes the uploads that wait.

        Args:
            storage: Where the changelog lies.
            name: The name of the log. The same name is the same folder.
        """
        base = Location.parse(storage.base_path).child("changelogs")
        options = ChangelogOptions.of(base_path=str(base), **self.changelog_options())
        return FsStateChangelogStorage(JobID.for_name(name), options)

    def scheduler_of(self, uploader: StateChangeUploader) -> StateChangeUploadScheduler:
        """A scheduler with threads of its own, for an uploader of yours."""
        options = ChangelogOptions.of(**self.changelog_options())
        threads = ThreadScheduler("dstl-changelog")
        return BatchingStateChangeUploadScheduler.of_options(
            uploader, threads, options, owns_threads=True
        )
