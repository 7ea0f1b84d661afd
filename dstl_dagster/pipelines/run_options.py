"""What a run is asked for, by its configuration and its tags: a rewind, or leave to skip windows.

Dagster copies both to runs that execute a run again, and the launchpad copies them on request. The
note of a rewind that is done has the id of its run: a retry of that run goes on, and no other run
takes the note for its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from dstl_dagster.pipelines.windows import ALLOW_GAP_TAG, REWIND_TAG, TRUE

REWOUND_UNTIL_TAG = "dstl/rewound-until"
"""The last window that a run has to run again after it went back."""
REWOUND_BY_TAG = "dstl/rewound-by"
"""The id of the run that went back."""
REWINDS_UNTIL_TAG = "dstl/rewinds-until"
"""The last window that a run has to run again, from before it goes back."""
REWINDS_BY_TAG = "dstl/rewinds-by"
"""The id of the run that is about to go back."""
CHECKPOINT_TAG = "dstl/checkpoint_id"
"""The latest checkpoint that a run has reported."""
_PARENT_TAG = "dagster/parent_run_id"


@dataclass(frozen=True)
class RunOptions:
    """The options of a run.

    Args:
        config: The configuration of its op.
        rewinds: Whether its tags ask for a rewind to before its first window.
        allow_gap: Whether it may leave out windows.
        until: The last window to run again, if this run has gone back already, or one that it
            goes on with after a failure.
        intended: The last window to run again, if this run, or one that it goes on with, was about
            to go back. It may have undone windows before it failed.
    """

    config: Mapping[str, Any]
    rewinds: bool
    allow_gap: bool
    until: str | None
    intended: str | None

    @classmethod
    def of(cls, context: dg.AssetExecutionContext | dg.OpExecutionContext) -> RunOptions:
        """What a run is asked for. What a run asked for that has succeeded is done: a run that
        executes it again is not asked for it.
        """
        instance, run = context.instance, _now(context.instance, context.run)
        op_context = getattr(context, "op_execution_context", context)
        config: dict[str, Any] = dict(op_context.op_config or {})
        tags = dict(run.tags)
        before = _success_before(instance, run)
        if before is not None:
            done = [config.pop(name, None) for name in ("rewind_to", "rewind", "allow_gap")]
            done += [tags.pop(name, None) for name in (REWIND_TAG, ALLOW_GAP_TAG)]
            if any(done):
                context.log.warning(
                    f"Run {before.run_id} has done what its rewind or its gap was for, and this "
                    f"run executes it again without them; launch a new run to go back again."
                )

        def of_this_run(until: str, by: str) -> str | None:
            return tags.get(until) if _continues(instance, run, tags.get(by)) else None

        return cls(
            config,
            tags.get(REWIND_TAG) == TRUE,
            bool(config.get("allow_gap")) or tags.get(ALLOW_GAP_TAG) == TRUE,
            of_this_run(REWOUND_UNTIL_TAG, REWOUND_BY_TAG),
            of_this_run(REWINDS_UNTIL_TAG, REWINDS_BY_TAG),
        )


def mark_rewinds(instance: dg.DagsterInstance, run_id: str, until: str) -> None:
    """Records in the tags which windows a run undoes, so that its retry runs all of them again."""
    instance.add_run_tags(run_id, {REWINDS_UNTIL_TAG: until, REWINDS_BY_TAG: run_id})


def mark_rewound(instance: dg.DagsterInstance, run_id: str, key: str, until: str) -> None:
    """Records in the tags that a run has gone back, so that its retry continues instead."""
    tags = {
        REWIND_TAG: f"done, to before {key}",
        REWOUND_UNTIL_TAG: until,
        REWOUND_BY_TAG: run_id,
    }
    instance.add_run_tags(run_id, tags)


def begin_tags(run: dg.DagsterRun) -> dict[str, str]:
    """Tags of a run that begins: it has not reported the checkpoint of the run that it repeats."""
    return {CHECKPOINT_TAG: "none yet"} if CHECKPOINT_TAG in run.tags else {}


def _now(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRun:
    """The run with the tags that an attempt before this one has set."""
    return instance.get_run_by_id(run.run_id) or run


def _parent(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRun | None:
    """The run that a run executes again."""
    run_id = run.parent_run_id or run.tags.get(_PARENT_TAG)
    return None if run_id is None else instance.get_run_by_id(run_id)


def _success_before(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRun | None:
    """The run that has done what a run asks for: it executes that run again, or a run that did and
    failed.
    """
    seen = _parent(instance, run)
    while seen is not None and not seen.is_success:
        seen = _parent(instance, seen)
    return seen


def _continues(instance: dg.DagsterInstance, run: dg.DagsterRun, by: str | None) -> bool:
    """Whether a run is the run ``by``, or executes it again after it failed."""
    if by is None:
        return False
    seen: dg.DagsterRun | None = run
    while seen is not None and seen.run_id != by:
        seen = _parent(instance, seen)
        if seen is not None and seen.is_success:
            return False
    return seen is not None
