"""A pipeline with output, which a second operator reads, and a process that runs it.

    python -m tests.integration.dagster.orders <base path> <Spark master, or "local engine">

The process says ``{}`` when its engine is up, and then answers each line of its standard input, one
JSON object for one: ``{"do": "run", "days": [..]}``. It takes credentials from its environment.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
from pyspark import cloudpickle

from dstl_core import Snapshot
from dstl_core.codec.serializers import Types
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.spec.operators import KeyedOperator
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_core.stateful_job import StatefulJob
from dstl_dagster import (
    DstlSparkResource,
    DstlStorageResource,
    StatefulPipeline,
    build_pipeline_defs,
    dstl_assets,
    run_epochs,
)
from dstl_dagster.snapshots import Rewrite
from tests.integration.dagster.small_pipeline import LOCAL, SPARK_CONFIG
from tests.integration.spark.standalone_cluster import HOST_VARIABLE

ROOT = Path(__file__).parents[3]
LOCAL_ENGINE = "local engine"
CUSTOMERS = 40
DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01", end_date="2026-01-10")
ALL_DAYS = tuple(DAYS.get_partition_keys())
RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
OUTPUT = pa.schema([("customer", pa.string()), ("total", pa.int64()), ("host", pa.string())])


def rows_of(engine: Any, day: str) -> pa.Table:
    customers, amounts = zip(*orders_of(day), strict=True)
    return pa.table({"customer": customers, "amount": amounts})


def orders_of(day: str) -> list[tuple[str, int]]:
    """Customer and amount: 1 to 3 orders of every customer."""
    number = ALL_DAYS.index(day) + 1
    return [(f"c{at}", at + number * i) for at in range(CUSTOMERS) for i in range(1, at % 3 + 2)]


def expected_totals(*days: str) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for day in days:
        for customer, amount in orders_of(day):
            totals[customer] += amount
    return dict(totals)


class Totals(KeyedProcessFunction):
    """The sum of a customer; each order gives the sum after it, and on which host."""

    def open(self, runtime_context: Any) -> None:
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG))

    def process_element(self, value: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        total = (self._total.value() or 0) + value["amount"]
        self._total.update(total)
        yield {
            "customer": value["customer"],
            "total": total,
            "host": os.environ.get(HOST_VARIABLE, ""),
        }


class Largest(KeyedProcessFunction):
    """The largest sum that the first operator gave."""

    order_insensitive = True

    def open(self, runtime_context: Any) -> None:
        self._largest = runtime_context.get_state(ValueStateDescriptor("largest", Types.LONG))

    def process_element(self, value: Any, ctx: Any) -> None:
        self._largest.update(max(self._largest.value() or 0, value["total"]))


def open_job(session: Any, base_path: str) -> StatefulJob:
    totals = KeyedOperator("totals", "customer", Types.STRING, Totals(), OUTPUT)
    largest = KeyedOperator("largest", "customer", Types.STRING, Largest(), source="totals")
    return StatefulJob(
        session, "orders", base_path, totals, max_parallelism=32, downstream=[largest]
    )


ORDERS = StatefulPipeline("orders", "totals", open_job, order_by=("amount",), engine="engine")


@dstl_assets(pipeline=ORDERS, partitions_def=DAYS)
def orders_state(
    context: dg.AssetExecutionContext, storage: DstlStorageResource, engine: dg.ResourceParam[Any]
) -> Iterator[Any]:
    yield from run_epochs(context, ORDERS, rows_of, storage=storage, engine=engine)


DEFS = build_pipeline_defs(
    ORDERS,
    [orders_state],
    rewrite=Rewrite(rename={"totals": "sums"}, max_parallelism=64),
    max_log_ratio=0.05,
)
BEHIND = tuple(ORDERS.key(kind) for kind in ("materialization", "savepoint", "rewritten"))


def materialize(
    selection: Any,
    storage: DstlStorageResource,
    engine: Any,
    instance: dg.DagsterInstance,
    **options: Any,
) -> dg.ExecuteInProcessResult:
    """Some assets of the pipeline, with their checks."""
    return dg.materialize(
        [*(DEFS.assets or ()), *(DEFS.asset_checks or ())],  # type: ignore[list-item]
        selection=dg.AssetSelection.assets(*selection),
        instance=instance,
        resources={"storage": storage, "engine": engine},
        raise_on_error=False,
        **options,
    )


def run_days(first: str, last: str, *setup: Any) -> dg.ExecuteInProcessResult:
    """A backfill of some days in one run."""
    return materialize([orders_state], *setup, tags=dict(zip(RANGE, (first, last), strict=True)))


def answer_of(done: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """What a run did, as JSON: data versions and URIs of its assets, checks, errors."""
    versions, uris = {}, {}
    for event in done.get_asset_materialization_events():
        materialization = event.step_materialization_data.materialization
        name = "/".join(
            [*materialization.asset_key.path, *([event.partition] if event.partition else [])]
        )
        versions[name] = (materialization.tags or {}).get("dagster/data_version")
        uri = materialization.metadata.get("dagster/uri")
        uris[name] = None if uri is None else str(uri.value)
    return {
        "success": done.success,
        "versions": versions,
        "uris": uris,
        "checks": {each.check_name: each.passed for each in done.get_asset_check_evaluations()},
        "errors": [
            str(event.event_specific_data.error)  # type: ignore[union-attr]
            for event in done.all_events
            if event.is_step_failure
        ],
    }


def state_in(snapshot: Snapshot, uid: str, state: str) -> dict[str, int]:
    return {each.key: each.value for each in snapshot[f"uid:{uid}"].keyed_entries(state)}


# ------------------------------------------------------------------------- another process


class PipelineProcess:
    """A driver of its own; ``tell`` begins something, ``answer`` waits for it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, do: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process has ended"
        return json.loads(line)

    def do(self, do: str, **arguments: Any) -> Any:
        self.tell(do, **arguments)
        return self.answer()


@contextmanager
def pipeline_process(
    base_path: str, master: str, environment: Mapping[str, str], log: Path
) -> Iterator[PipelineProcess]:
    """Starts one; its first answer comes when its engine is up."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.dagster.orders", base_path, master],
            cwd=log.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdin is not None
        with process:
            try:
                yield PipelineProcess(process)
            finally:
                process.stdin.close()


def _serve(base_path: str, master: str) -> None:
    # What others print must not be taken for an answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    storage = DstlStorageResource(base_path=base_path)
    engine: Any = LOCAL
    if master != LOCAL_ENGINE:
        config = {**SPARK_CONFIG, **_of_cluster(master)}
        engine = DstlSparkResource(master=master, spark_config=config)
        session = engine.spark_session
    with dg.DagsterInstance.ephemeral() as instance:
        setup = (storage, engine, instance)
        answer: dict[str, Any] = {}
        while True:
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
            line = sys.stdin.readline()
            if not line:
                break
            match json.loads(line):
                case {"do": "run", "days": [first, *_, last] | [first as last]}:
                    answer = answer_of(run_days(first, last, *setup))
                case {"do": "behind"}:
                    answer = answer_of(materialize(BEHIND, *setup))
                case {"do": "output"}:
                    commit = ORDERS.store(storage).require_latest()
                    output = ORDERS.open(session, storage).output_of(commit)["totals"]
                    answer = {"rows": sorted(map(list, output.collect()))}
    if master != LOCAL_ENGINE:
        session.stop()


def _of_cluster(master: str) -> dict[str, str]:
    if master.startswith("local"):
        return {}
    return {
        "spark.executor.memory": "600m",
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.pyspark.python": sys.executable,
        "spark.executor.extraJavaOptions": os.environ["SPARK_DAEMON_JAVA_OPTS"],
    }


if __name__ == "__main__":
    _serve(*sys.argv[1:])
