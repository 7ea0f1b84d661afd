"""A Flink cluster as a resource, and savepoints of its running jobs as assets."""

import re
from typing import Any

import dagster as dg
from pydantic import ConfigDict, Field, field_validator

from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.state.tables.named_objects import SERIALIZERS, registry_from
from dstl_dagster import metadata as show
from dstl_dagster.resources.checked_options import CheckedOptions
from dstl_dagster.resources.flink_client import (
    FlinkCheckpoint,
    FlinkClient,
    FlinkClusterError,
    FlinkJob,
    poll_until,
)
from dstl_dagster.resources.savepoint_resource import version_of
from dstl_dagster.resources.storage_resource import DstlStorageResource
from dstl_dagster.translator import DagsterDstlTranslator, DstlTranslatorData


class FlinkClusterResource(CheckedOptions, dg.ConfigurableResource):
    """Takes, finds and deletes savepoints of a cluster's jobs through Flink's REST interface.

    It connects on first use. If the cluster is away, the op fails, which Dagster can retry, and
    not the resource, which Dagster cannot.
    """

    # Pydantic's errors quote wrong values, and the authorization is a secret.
    model_config = ConfigDict(hide_input_in_errors=True)

    url: str = Field(description="REST endpoint, e.g. http://jobmanager:8081.")
    request_timeout_s: float = Field(default=30.0, gt=0, description="Timeout of one request.")
    savepoint_timeout_s: float = Field(default=600.0, gt=0, description="Timeout of one savepoint.")
    poll_interval_s: float = Field(default=1.0, gt=0, description="Between two looks.")
    authorization: str | None = Field(
        default=None, repr=False, description="Authorization header, for a proxy; use EnvVar."
    )
    serializers: str | None = Field(default=None, description=SERIALIZERS)

    @field_validator("url", mode="before")
    @classmethod
    def _is_url(cls, url: Any) -> Any:
        if isinstance(url, str) and not isinstance(url, dg.EnvVar):
            FlinkClient(url)
        return url

    @property
    def client(self) -> FlinkClient:
        """The plain REST client."""
        headers = {"Authorization": self.authorization} if self.authorization else None
        return FlinkClient(self.url, timeout_s=self.request_timeout_s, headers=headers)

    def job(self, name_or_id: str) -> FlinkJob:
        """A job by id, or the running job of a name."""
        return self.client.job(name_or_id)

    def checkpoints(self, name_or_id: str) -> list[FlinkCheckpoint]:
        """The latest completed checkpoints and savepoints of a job, oldest first."""
        return self.client.checkpoints(self.job(name_or_id).job_id)

    def savepoint(
        self,
        name_or_id: str,
        target: str | None = None,
        *,
        native: bool = False,
        trigger_id: str | None = None,
    ) -> str:
        """Takes a savepoint of a running job and waits for it; returns its path.

        Args:
            name_or_id: The job.
            target: Folder in which Flink makes the folder of the savepoint.
            native: Use the format of the state backend instead of the canonical format.
            trigger_id: 32 hex digits. A repeated request with the same id takes no second
                savepoint.

        Raises:
            FlinkClusterError: The savepoint failed or timed out.
        """
        job_id = self.job(name_or_id).job_id
        asked = self.client.trigger_savepoint(job_id, target, native=native, trigger_id=trigger_id)
        return self.wait_for_savepoint(job_id, asked)

    def stop_with_savepoint(
        self,
        name_or_id: str,
        target: str | None = None,
        *,
        drain: bool = False,
        native: bool = False,
        trigger_id: str | None = None,
    ) -> str:
        """Stops a job with a savepoint; returns its path. ``drain`` fires event timers first."""
        job_id = self.job(name_or_id).job_id
        asked = self.client.stop_with_savepoint(
            job_id, target, drain=drain, native=native, trigger_id=trigger_id
        )
        return self.wait_for_savepoint(job_id, asked)

    def dispose(self, path: str) -> None:
        """Makes the cluster delete a savepoint with its files."""
        asked = self.client.dispose_savepoint(path)
        poll_until(
            lambda: self.client.disposal_is_done(asked),
            what=f"The disposal of {path}",
            timeout_s=self.savepoint_timeout_s,
            interval_s=self.poll_interval_s,
        )

    def wait_for_savepoint(self, job_id: str, trigger_id: str) -> str:
        """Waits for a requested savepoint; returns its path."""
        path = poll_until(
            lambda: self.client.savepoint_result(job_id, trigger_id),
            what=f"The savepoint of job {job_id}",
            timeout_s=self.savepoint_timeout_s,
            interval_s=self.poll_interval_s,
        )
        return str(path)


def trigger_id_of(run_id: str, retry_number: int) -> str:
    """The id of a savepoint request. An attempt of a run always has the same id."""
    digits = "".join(c for c in run_id if c in "0123456789abcdef").ljust(32, "0")
    return f"{retry_number % 16:x}{digits[1:32]}"


def build_flink_savepoint_asset(
    name: str,
    *,
    job: str,
    group: str,
    stop: bool = False,
    drain: bool = False,
    native: bool = False,
    deps: Any = (),
    translator: DagsterDstlTranslator | None = None,
    automation_condition: dg.AutomationCondition | None = None,
) -> dg.AssetsDefinition:
    """A savepoint of a running Flink job, taken when the asset is materialized.

    Args:
        name: Name of the savepoint in the key.
        job: Name or id of the job.
        group: First part of the key.
        stop: Whether the savepoint stops the job.
        drain: With ``stop``: whether event timers fire first.
        native: Use the format of the state backend.
        deps: Upstream assets.
        translator: Names the assets.
        automation_condition: When Dagster materializes the asset by itself.
    """
    data = DstlTranslatorData(group, "external", name=name)
    spec = (translator or DagsterDstlTranslator()).get_asset_spec(data)
    spec = spec.replace_attributes(
        deps=[*spec.deps, *deps],
        automation_condition=automation_condition or spec.automation_condition,
    )
    op_name = re.sub(r"[^A-Za-z0-9]", "_", f"{group}_{name}")

    @dg.multi_asset(
        name=op_name,
        specs=[spec],
        retry_policy=dg.RetryPolicy(max_retries=2, delay=5, backoff=dg.Backoff.EXPONENTIAL),
    )
    def flink_savepoint(
        context: dg.AssetExecutionContext,
        storage: DstlStorageResource,
        flink: FlinkClusterResource,
    ) -> dg.MaterializeResult:
        run_id, attempt = context.run.run_id, context.retry_number
        earlier = [trigger_id_of(run_id, each) for each in range(attempt)]
        running, path = _taken_before(flink, job, earlier)
        asked, target = trigger_id_of(run_id, attempt), storage.savepoint(name)
        if path is None and stop:
            path = flink.stop_with_savepoint(
                running.job_id, target, drain=drain, native=native, trigger_id=asked
            )
        elif path is None:
            path = flink.savepoint(running.job_id, target, native=native, trigger_id=asked)
        types = registry_from(flink.serializers, "the Flink cluster")
        snapshot = Snapshot.load(path, serializers=types)
        return dg.MaterializeResult(
            spec.key,
            metadata={
                **show.snapshot_metadata(snapshot),
                "dstl/flink_job": running.job_id,
                "dstl/flink_job_name": running.name,
                "dstl/stopped": stop,
                "dstl/flink": dg.MetadataValue.url(f"{flink.url}/#/job/running/{running.job_id}"),
                "dstl/run": dg.MetadataValue.dagster_run(context.run.run_id),
            },
            data_version=dg.DataVersion(version_of(snapshot)),
        )

    return flink_savepoint


def _taken_before(
    flink: FlinkClusterResource, job: str, trigger_ids: list[str]
) -> tuple[FlinkJob, str | None]:
    """The job, and the savepoint that an earlier attempt of the run requested, if it exists.

    A job that it stopped no longer runs, so this asks all jobs of the name.
    """
    if trigger_ids:
        for candidate in flink.client.jobs():
            for trigger_id in trigger_ids if job in (candidate.job_id, candidate.name) else []:
                try:
                    return candidate, flink.wait_for_savepoint(candidate.job_id, trigger_id)
                except FlinkClusterError as error:
                    dg.get_dagster_logger().info(f"no savepoint of an earlier attempt: {error}")
    return flink.job(job), None


__all__ = [
    "FlinkClusterError",
    "FlinkClusterResource",
    "build_flink_savepoint_asset",
    "trigger_id_of",
]
