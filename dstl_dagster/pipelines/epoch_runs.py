"""The inputs of a run: time windows, or inputs with an id of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from dstl_core.errors import ConfigError, InputChangedError
from dstl_core.job.coordination.input_windows import INPUT_NOTE, CommittedWindows
from dstl_dagster.pipelines.pipeline import StatefulPipeline
from dstl_dagster.pipelines.run_options import RunOptions, mark_rewinds, mark_rewound
from dstl_dagster.pipelines.windows import Windows
from dstl_dagster.resources.engines import rows_of

if TYPE_CHECKING:
    from dstl_core.job.coordination.result import EpochResult
    from dstl_core.stateful_job import StatefulJob

Batch = Callable[[Any, Any], Any]
"""Rows of the engine, from its session and a partition key or an input id."""
InputId = Callable[[dg.AssetExecutionContext], str | int]


class EpochConfig(dg.Config):
    """The options of a run of windows in the launchpad."""

    rewind_to: str | None = Field(
        default=None,
        description="Partition key of a window. The run goes back to before it, and runs it and "
        "all windows after it that were committed again, e.g. 2026-01-02.",
    )
    allow_gap: bool = Field(
        default=False,
        description="Whether the run may leave out the windows between the last committed one "
        "and its own.",
    )


class InputConfig(dg.Config):
    """The options of a run in the launchpad if its inputs are not time windows."""

    input_id: str | None = Field(
        default=None, description="Id of the input, for assets without partitions."
    )
    rewind: bool = Field(
        default=False,
        description="Whether state goes back to before the input. Later inputs are undone.",
    )


@dataclass(frozen=True)
class WindowRuns:
    """The windows of a run, in order.

    Args:
        pipeline: The pipeline.
        windows: Its windows.
        keys: Partition keys.
        rewind: Whether state goes back to before the first of them.
        allow_gap: Whether they may leave windows out.
    """

    pipeline: StatefulPipeline
    windows: Windows
    keys: Sequence[str]
    rewind: bool
    allow_gap: bool

    @classmethod
    def of(
        cls, context: dg.AssetExecutionContext, pipeline: StatefulPipeline, windows: Windows
    ) -> WindowRuns:
        """What the partitions, tags and configuration of a run ask for.

        Raises:
            ConfigError: There is no such window to go back to.
        """
        asked = RunOptions.of(context)
        keys = windows.in_order(context.partition_keys)
        target = asked.config.get("rewind_to")
        done = asked.until is not None
        if target is None and (asked.rewinds or done):
            target = keys[0]
        if target is None:
            return cls(pipeline, windows, keys, False, asked.allow_gap)
        until = [*keys, *(each for each in (asked.until, asked.intended) if each is not None)]
        again = windows.read().from_on(target, until)
        if not again or again[0] != target:
            raise ConfigError(
                f"The run cannot go back to {target!r}: expected a window of pipeline "
                f"{windows.pipeline!r} that is not after those of the run, {keys[0]!r} to "
                f"{keys[-1]!r}."
            )
        return cls(pipeline, windows, again, not done, asked.allow_gap)

    def run(
        self,
        context: dg.AssetExecutionContext,
        job: StatefulJob,
        batch: Batch,
        session: Any,
        number: int,
    ) -> EpochResult:
        """Runs the epoch of one window.

        Raises:
            ConfigError: It leaves others out, or comes before the last one.
            InputChangedError: It was committed with other rows.
        """
        key = self.keys[number]
        rewind = self.rewind and number == 0
        committed = self.windows.read()
        committed.check(key, allow_gap=self.allow_gap, rewind=rewind)
        rows = rows_of(batch, session, key)
        if rewind:
            mark_rewinds(context.instance, context.run.run_id, self.keys[-1])
        if number == 0:
            before = committed.input_id(key) if rewind else None
            self.pipeline.migrate(
                job,
                context.instance,
                before,
                lambda past: rows_of(batch, session, committed.key_of_input(past)),
            )
        result = self._run(job, committed, rows, key, rewind=rewind)
        if rewind:
            mark_rewound(context.instance, context.run.run_id, key, self.keys[-1])
        return result

    def _run(
        self,
        job: StatefulJob,
        committed: CommittedWindows,
        rows: Any,
        key: str,
        *,
        rewind: bool,
    ) -> EpochResult:
        input_id, notes = committed.input_id(key), committed.notes(key)
        order_by = self.pipeline.order_by or None
        try:
            return job.run(rows, input_id, order_by, rewind=rewind, notes=notes)
        except InputChangedError as error:
            if committed.commit_of(key) is None:
                raise
            message = f"{error} In Dagster, {committed.way_back(key)}"
            raise InputChangedError(message) from error


@dataclass(frozen=True)
class InputRuns:
    """The inputs of a run, in the order of their ids.

    Args:
        pipeline: The pipeline.
        keys: Partition keys; None for an asset without partitions.
        ids: What the commit log calls the inputs.
        rewind: Whether state goes back to before the first of them.
    """

    pipeline: StatefulPipeline
    keys: Sequence[str | None]
    ids: Sequence[str | int]
    rewind: bool

    @classmethod
    def of(
        cls,
        context: dg.AssetExecutionContext,
        pipeline: StatefulPipeline,
        input_id: InputId | None,
    ) -> InputRuns:
        """What the partitions, tags and configuration of a run ask for.

        Raises:
            ConfigError: Nothing says which input it is.
        """
        asked = RunOptions.of(context)
        rewind = (bool(asked.config.get("rewind")) or asked.rewinds) and asked.until is None
        if context.assets_def.partitions_def is not None:
            keys = sorted(context.partition_keys)
            return cls(pipeline, keys, keys, rewind)
        asked_id = asked.config.get("input_id")
        if asked_id is None and input_id is not None:
            asked_id = input_id(context)
        if asked_id is None:
            raise ConfigError(
                f"The run of pipeline {pipeline.name!r} has no input id: give run_epochs a "
                f"function input_id, or put input_id into the configuration of the run."
            )
        return cls(pipeline, [None], [asked_id], rewind)

    def run(
        self,
        context: dg.AssetExecutionContext,
        job: StatefulJob,
        batch: Batch,
        session: Any,
        number: int,
    ) -> EpochResult:
        """Runs the epoch of one input.

        Raises:
            ConfigError: It comes before the last committed one.
            InputChangedError: It was committed with other rows.
        """
        current_id = self.ids[number]
        rewind = self.rewind and number == 0
        notes = {INPUT_NOTE: {"partition": self.keys[number]}}
        order_by = self.pipeline.order_by or None
        rows = rows_of(batch, session, current_id)
        if number == 0:
            before = current_id if rewind else None
            self.pipeline.migrate(
                job, context.instance, before, lambda past: rows_of(batch, session, past)
            )
        result = job.run(rows, current_id, order_by, rewind=rewind, notes=notes)
        if rewind:
            mark_rewound(context.instance, context.run.run_id, str(current_id), str(self.ids[-1]))
        return result
