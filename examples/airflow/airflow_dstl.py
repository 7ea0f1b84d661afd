"""An operator and a sensor of Airflow 3 for pipelines of dstl. Copy the file beside your DAGs.

An epoch commits its state, its output and the name of its input together. So a task that Airflow
retries, clears or starts twice applies its input once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from airflow.sdk import BaseOperator, BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from dstl_core import StatefulJob, errors


class EpochOperator(BaseOperator):
    """Runs a function that applies one input, and shows its facts on the asset of the task.

    Args:
        run: The function. It gets ``input_id`` and returns facts for JSON.
        input_id: The name of the input, for example ``{{ macros.ds_add(ds, -1) }}``.
    """

    template_fields: Sequence[str] = ("input_id",)

    def __init__(self, *, run: Callable[[str], dict[str, Any]], input_id: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.run_input = run
        self.input_id = input_id

    def execute(self, context: Context) -> dict[str, Any]:
        try:
            facts = self.run_input(self.input_id)
        except errors.DstlError as error:
            if errors.is_permanent(error):  # a retry fails in the same way
                raise AirflowFailException(str(error)) from error
            raise
        for asset in self.outlets:
            context["outlet_events"][asset].extra = facts
        return facts


class CommittedSensor(BaseSensorOperator):
    """Waits until a pipeline has applied an input, for DAGs that read its state.

    Args:
        job: Makes the job. The sensor reads its commit log and nothing else.
        input_id: The name of the input. Names grow, so a later input will do.
    """

    template_fields: Sequence[str] = ("input_id",)

    def __init__(self, *, job: Callable[[], StatefulJob], input_id: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.job = job
        self.input_id = input_id

    def poke(self, context: Context) -> bool:
        last = self.job().last_input()
        return last is not None and str(last) >= self.input_id
