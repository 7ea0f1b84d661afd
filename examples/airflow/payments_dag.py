"""The pipeline of payments.py in Airflow 3: a sensor, an epoch a day, and an asset of its state."""

from __future__ import annotations

import os
from datetime import datetime
from functools import partial

from airflow.sdk import DAG, Asset, task
from airflow_dstl import CommittedSensor, EpochOperator
from payments import file_of, payments_job, run_day

DATA = os.environ.get("PAYMENTS_DATA", "/data/payments")
STATE = os.environ.get("PAYMENTS_STATE", "/data/state")
DAY = "{{ macros.ds_add(ds, -1) }}"
"""The day before the run."""
TOTALS = Asset(name="payments_totals", uri=f"file://{STATE}/payments")

with DAG(
    "payments",
    schedule="5 0 * * *",
    start_date=datetime(2026, 1, 2),
    catchup=True,
    max_active_runs=1,
    default_args={"retries": 2, "depends_on_past": True},
) as epochs:

    @task.sensor(poke_interval=60, timeout=6 * 3600, mode="reschedule")
    def file_is_there(day: str) -> bool:
        return file_of(DATA, day).exists()

    epoch = EpochOperator(
        task_id="epoch",
        run=partial(run_day, DATA, STATE),
        input_id=DAY,
        outlets=[TOTALS],
    )
    file_is_there(DAY) >> epoch

with DAG("payments_report", schedule=[TOTALS], start_date=datetime(2026, 1, 2)) as report:

    @task
    def largest_totals(count: int = 3) -> list[dict[str, object]]:
        rows = payments_job(STATE).current_output()["totals"].to_arrow().to_pylist()
        return sorted(rows, key=lambda row: -row["total"])[:count]

    largest_totals()

with DAG("payments_backup", schedule="0 3 * * *", start_date=datetime(2026, 1, 2)) as backup:

    @task
    def savepoint(day: str) -> str:
        return payments_job(STATE).savepoint(f"{STATE}/savepoints/{day}")

    yesterday = CommittedSensor(
        task_id="yesterday_is_applied",
        job=partial(payments_job, STATE),
        input_id=DAY,
        mode="reschedule",
    )
    yesterday >> savepoint(DAY)
