"""How the changes of an epoch are uploaded, as a resource."""

from typing import Any, Literal

import dagster as dg
from pydantic import Field

from dstl_core.config import ChangelogOptions


class RetryOptions(dg.Config):
    """Attempts of one upload. They multiply with Dagster's own retries, so keep one of them low."""

    max_attempts: int = Field(default=3, ge=1, description="Attempts of one upload.")
    timeout_ms: int = Field(default=1_000, ge=0, description="Of one attempt; 0 for none.")
    delay_ms: int = Field(default=500, ge=0, description="Pause after a failed attempt.")

    def options(self) -> dict[str, Any]:
        return {
            "max_attempts": self.max_attempts,
            "upload_timeout_ms": self.timeout_ms,
            "next_attempt_delay_ms": self.delay_ms,
        }


class DirectUploads(dg.Config):
    """Every writer's changes are uploaded at once, a file each."""

    kind: Literal["direct"] = "direct"
    retry: RetryOptions = RetryOptions()

    def options(self) -> dict[str, Any]:
        return {"persist_delay_ms": 0, **self.retry.options()}


class BatchingUploads(dg.Config):
    """Changes wait for those of other writers and share files."""

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

    It holds options only. The schedulers themselves, with their threads, live in the tasks and end
    with them: flushed when the task is done, closed without a trace when it fails.
    """

    scheduler: DirectUploads | BatchingUploads = Field(
        default=BatchingUploads(), discriminator="kind", description="direct or batching."
    )
    compress: bool = Field(default=False, description="Whether segments are compressed.")

    def changelog_options(self) -> dict[str, Any]:
        """Options of the changelog.

        Raises:
            ConfigError: They do not go together, e.g. a batch larger than what may be in flight.
        """
        found = {"compression_enabled": self.compress, **self.scheduler.options()}
        ChangelogOptions.of(**found)
        return found
