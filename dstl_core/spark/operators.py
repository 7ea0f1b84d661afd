"""What a job consists of, as plain values: the form in which it travels to Spark tasks."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from dstl_core.codec.serializers import AnySerializer
from dstl_core.config import ChangelogOptions
from dstl_core.model.ids import JobID, OperatorID
from dstl_core.model.key_group import KeyGroupRange, compute_key_group_range_for_operator_index
from dstl_core.state.changelog_backend import ValueLogging
from dstl_core.state.functions import KeyedProcessFunction
from dstl_core.storage.location import JobLayout, Location


@dataclass(frozen=True)
class KeyedOperator:
    """The operator of a job: a function over the rows of each key.

    Args:
        uid: Stable name; its hash is the operator's id in every snapshot.
        key_by: Column that holds the key.
        key_type: Flink type of the key.
        function: What runs for each row.
        output_schema: Arrow schema of the rows that the function gives; None: it gives none.
    """

    uid: str
    key_by: str
    key_type: AnySerializer
    function: KeyedProcessFunction
    output_schema: pa.Schema | None = None

    @property
    def operator_id(self) -> OperatorID:
        return OperatorID.for_uid(self.uid)


@dataclass(frozen=True)
class TaskSpec:
    """Where a task finds its state and leaves its files.

    ``parent`` is the folder of the snapshot to restore from, ``parent_operator`` the operator
    in it.
    """

    job_id: JobID
    base_path: str
    operator: KeyedOperator
    parallelism: int
    max_parallelism: int
    parent: str | None
    parent_operator: OperatorID
    changelog: ChangelogOptions
    value_logging: ValueLogging = ValueLogging.LAST_PER_CHECKPOINT

    @property
    def layout(self) -> JobLayout:
        return JobLayout.of(Location.parse(self.base_path), self.job_id.hex)

    def key_groups(self, subtask: int) -> KeyGroupRange:
        """The key groups that a subtask owns."""
        return compute_key_group_range_for_operator_index(
            self.max_parallelism, self.parallelism, subtask
        )
