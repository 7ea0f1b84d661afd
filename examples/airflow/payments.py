"""Totals of payments by account, one day at a time. Nothing here knows who starts it.

cron starts the days that have a file and are not applied yet:

    5 0 * * * cd /srv/payments && python payments.py /data/payments /data/state

Airflow starts one day: see payments_dag.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from dstl_core import AggregateOperator, LocalEngine, StatefulJob, aggregates

TOTALS = AggregateOperator(
    "totals",
    "account",
    {"payments": aggregates.count(), "total": aggregates.sum("amount")},
    schema="account string, amount bigint",
    output=True,
)


def payments_job(state: str) -> StatefulJob:
    """The job, whose state is below the folder ``state``."""
    return StatefulJob(LocalEngine(), "payments", state, TOTALS)


def file_of(data: str, day: str) -> Path:
    return Path(data, f"{day}.parquet")


def days_to_run(data: str, state: str) -> list[str]:
    """The days that have a file and come after the last one that is applied."""
    last = payments_job(state).last_input()
    days = sorted(file.stem for file in Path(data).glob("*.parquet"))
    return [day for day in days if last is None or day > str(last)]


def run_day(data: str, state: str, day: str) -> dict[str, Any]:
    """Applies a day exactly once: a day that is applied already changes nothing.

    Returns:
        What a scheduler may show of the day.
    """
    job = payments_job(state)
    result = job.run(str(file_of(data, day)), input_id=day)
    if job.state_size().has_large_log():
        job.materialize()
    commit = result.checkpoint
    return {
        "day": day,
        "checkpoint": commit.checkpoint_id,
        "rows": 0 if commit.facts.input is None else commit.facts.input.rows,
        "changed_keys": commit.facts.changed_keys,
        "applied_before": result.committed_before,
    }


def main() -> None:
    data, state = sys.argv[1:]
    for day in days_to_run(data, state):
        print(run_day(data, state, day))


if __name__ == "__main__":
    main()
