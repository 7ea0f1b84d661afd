"""A resource that configures how the changes of an epoch are uploaded."""

from typing import Any, Literal

import dagster as dg
from pydantic import Field

from dstl_core.config import ChangelogOptions


class RetryOptions(dg.Config):
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


class DirectUploads(dg.Config):
    """Uploads the changes of each writer at once, into a file of its own."""

    kind: Literal["direct"] = "direct"
    retry: RetryOptions = RetryOptions()

    def options(self) -> dict[str, Any]:
        return {"persist_delay_ms": 0, **self.retry.options()}


class BatchingUploads(dg.Config):
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


class UploadSchedulerResource(dg.ConfigurableResource):
    """The upload scheduler of a pipeline's tasks: ``direct`` or ``batching``.

    It holds options only. The schedulers and their threads live in the tasks. A task that succeeds
    flushes its scheduler; a task that fails closes it and drops its changes.
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
