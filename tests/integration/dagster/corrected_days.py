"""The small pipeline over days whose source is corrected and fails, and its runs."""

from abc import ABC, abstractmethod
from typing import Any

import dagster as dg

from dstl_dagster import DstlStorageResource
from tests.integration.dagster.small_pipeline import LOCAL, PAYMENTS, epochs_of


class CorrectedDays(ABC):
    """Runs of days. ``failing`` is the day for which the source is away."""

    def __init__(self, storage: DstlStorageResource, instance: dg.DagsterInstance) -> None:
        self.storage, self.instance = storage, instance
        self.failing: str | None = None

        days = epochs_of(PAYMENTS, self._batch, retry_policy=None)
        self.job = dg.Definitions(
            [days],
            jobs=[dg.define_asset_job("days_job", [days])],
            resources={"storage": storage, "engine": LOCAL},
        ).resolve_job_def("days_job")

    @abstractmethod
    def rows_of(self, day: str) -> Any:
        """The rows of a day as the source has them now."""

    def _batch(self, engine: Any, day: str) -> Any:
        if day == self.failing:
            raise OSError("the source is away")
        return self.rows_of(day)

    def run(self, day: str, **options: Any) -> dg.DagsterRun:
        done = self.job.execute_in_process(
            partition_key=day, instance=self.instance, raise_on_error=False, **options
        )
        run = self.instance.get_run_by_id(done.run_id)
        assert run is not None
        return run
