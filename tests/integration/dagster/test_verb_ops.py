"""The verbs of a pipeline as ops of a user's graph, with the options of the launchpad."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dstl_core import AggregateOperator, Snapshot, StatefulJob, aggregates
from dstl_core.changelog import ChangelogOptions, FsStateChangelogStorage, JobID, KeyGroupRange
from dstl_core.changelog.upload import FileStateHandle, StateChangeUploader, UploadTasksResult
from dstl_core.job.coordination.job_on_engine import JobOnEngine
from dstl_dagster.pipelines import (
    build_bootstrap_op,
    build_materialize_op,
    build_reset_op,
    build_rewrite_op,
    build_savepoint_op,
)
from dstl_dagster.resources import BatchingUploads, DirectUploads, UploadSchedulerResource
from tests.integration.dagster.small_pipeline import (
    LOCAL,
    PAYMENTS,
    expected_totals,
    payments,
    small_defs,
    totals_in,
)

pytestmark = pytest.mark.dagster

DAY, NEXT_DAY = "2026-01-01", "2026-01-02"


@pytest.fixture
def launch(storage, instance):
    """Runs a job with the configuration of some of its ops."""

    def run(job: dg.JobDefinition, **config: Any) -> dg.ExecuteInProcessResult:
        return job.execute_in_process(
            run_config={"ops": config},
            instance=instance,
            resources={"storage": storage, "engine": LOCAL},
            raise_on_error=False,
        )

    return run


def job_of(op: dg.OpDefinition, name: str = "alone") -> dg.JobDefinition:
    @dg.job(name=name)
    def job():
        op()

    return job


def message_of(done: dg.ExecuteInProcessResult) -> str:
    [failure] = [event for event in done.all_events if event.is_step_failure]
    data = failure.step_failure_data
    return f"{data.user_failure_data} {data.error and data.error.message}"


def log_of(storage) -> int:
    return PAYMENTS.store(storage).size().log


def test_a_log_is_cut_where_it_is_as_large_as_the_launchpad_says(run_days, launch, storage):
    assert run_days(DAY).success
    log = log_of(storage)
    assert log > 0
    job = job_of(build_materialize_op(PAYMENTS, name="cut"))
    for option in ({"above_log_ratio": 1e9}, {"above_log_bytes": log}):
        done = launch(job, cut={"config": option})
        assert done.output_for_node("cut") == 0
        assert log_of(storage) == log
    done = launch(job, cut={"config": {"above_log_bytes": log - 1}})
    assert done.output_for_node("cut") == log
    assert log_of(storage) == 0
    assert totals_in(storage) == expected_totals(DAY)
    assert launch(job).output_for_node("cut") == 0


def test_nothing_is_materialized_or_stopped_beside_a_run(run_days, launch, storage):
    assert run_days(DAY).success
    store = PAYMENTS.store(storage)
    store.begin("a-run-of-another-instance")
    asked = [(build_materialize_op, {}), (build_savepoint_op, {"stop": True})]
    for build, options in asked:
        done = launch(job_of(build(PAYMENTS, name="verb")), verb={"config": options})
        assert "a-run-of-another-instance is at work" in message_of(done)
    assert store.require_latest().facts.kind == "epoch"


def test_a_savepoint_goes_from_op_to_op_and_its_options_stand_in_the_launchpad(
    run_days, launch, storage
):
    assert run_days(DAY).success
    write, edit = build_savepoint_op(PAYMENTS), build_rewrite_op("renamed")

    @dg.job
    def release():
        edit(write())

    options = {"out": "release-1", "rename": {"totals": "sums"}, "max_parallelism": 64}
    done = launch(
        release,
        payments_savepoint_op={"config": {"place": "before-release"}},
        renamed={"config": options},
    )
    assert done.success
    original = Snapshot.load(storage.savepoint("before-release"))
    copy = Snapshot.load(done.output_for_node("renamed"))
    assert str(original.folder) == done.output_for_node("payments_savepoint_op")
    assert (copy["sums"].max_parallelism, original["totals"].max_parallelism) == (64, 128)
    totals = {line["key"]: line["value"] for line in copy["sums"].dump("total")}
    assert totals == {key: total for key, (_, total, _) in expected_totals(DAY).items()}
    alone = launch(
        job_of(edit),
        renamed={"config": options, "inputs": {"source": {"value": "before-release"}}},
    )
    assert alone.output_for_node("renamed") == str(copy.folder)


def test_a_stop_ends_runs_and_drain_is_part_of_a_stop(run_days, launch, storage):
    assert run_days(DAY).success
    job = job_of(build_savepoint_op(PAYMENTS, name="stop"))
    refused = launch(job, stop={"config": {"drain": True}})
    assert "drain ends event time for good" in message_of(refused)
    stopped = launch(job, stop={"config": {"stop": True, "drain": True}})
    assert stopped.success
    assert Snapshot.load(stopped.output_for_node("stop"))["totals"].states
    again = launch(job, stop={"config": {"stop": True}})
    assert again.output_for_node("stop") == stopped.output_for_node("stop")
    assert not run_days(NEXT_DAY).success
    assert totals_in(storage) == expected_totals(DAY)


def test_a_drained_savepoint_is_not_that_of_the_checkpoint_before(
    run_days, launch, storage, monkeypatch
):
    assert run_days(DAY).success
    job = job_of(build_savepoint_op(PAYMENTS, name="stop"))
    running = launch(job).output_for_node("stop")
    written = []

    def fail_once(job: Any, path: str, **options: Any) -> str:
        written.append(write(job, path, **options))
        if len(written) == 1:
            raise OSError("the attempt ends here")
        return written[-1]

    write = JobOnEngine.savepoint
    monkeypatch.setattr(JobOnEngine, "savepoint", fail_once)
    drain = {"config": {"stop": True, "drain": True}}
    assert not launch(job, stop=drain).success
    stopped = launch(job, stop=drain).output_for_node("stop")
    assert stopped == f"{running}-drained"
    assert written == [stopped, stopped]


def test_a_reset_takes_the_launchpads_word_that_a_run_is_dead(run_days, launch, storage):
    assert run_days(DAY).success
    store = PAYMENTS.store(storage)
    store.begin("gone")
    job = job_of(build_reset_op(PAYMENTS, name="reset"))
    assert launch(job).success
    assert [lease.run_id for lease in store.leases()] == ["gone"]
    assert launch(job, reset={"config": {"dead_runs": ["gone"]}}).success
    assert store.leases() == []
    assert totals_in(storage) == expected_totals(DAY)


def test_a_bootstrap_writes_once(launch, storage, tmp_path):
    written = []

    def write(session: Any, path: str) -> None:
        written.append(path)
        operator = AggregateOperator(
            "totals", "account", {"total": aggregates.sum("amount", "bigint")}, key_type="string"
        )
        seed = StatefulJob(session, "seed", str(tmp_path / "seed"), operator)
        seed.run(payments(("ada", 7)), input_id=1)
        seed.savepoint(path)

    job = job_of(build_bootstrap_op("seed", write, engine="engine"))
    for _ in range(2):
        done = launch(job, seed={"config": {"place": "seeded"}})
        assert done.output_for_node("seed") == storage.savepoint("seeded")
    assert written == [storage.savepoint("seeded")]
    lines = Snapshot.load(written[0])["totals"].dump("total")
    assert [(line["key"], line["value"]) for line in lines] == [("ada", 7)]


def test_two_ops_of_a_kind_fit_beside_the_jobs_of_the_pipeline(storage):
    builders = (build_materialize_op, build_reset_op, build_savepoint_op)
    jobs = [job_of(build(PAYMENTS), f"{build.__name__}_job") for build in builders]
    jobs += [
        job_of(build(PAYMENTS, name=f"{name}_{build.__name__}_op"), f"{name}_{build.__name__}")
        for build in builders
        for name in ("early", "late")
    ]
    defs = dg.Definitions.merge(small_defs(storage), dg.Definitions(jobs=jobs))
    dg.Definitions.validate_loadable(defs)


class Recording(StateChangeUploader):
    """Counts the tasks of each upload, and gives each change set a place in one file."""

    def __init__(self) -> None:
        self.tasks: list[int] = []

    def upload(self, tasks: Any) -> UploadTasksResult:
        self.tasks.append(len(tasks))
        places = {task: dict.fromkeys(task.change_sets, (0, 0)) for task in tasks}
        return UploadTasksResult(places, FileStateHandle("file:/nowhere", 1), lambda handle: None)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("kind", [DirectUploads, BatchingUploads])
def test_an_op_writes_a_changelog_of_its_own_by_the_resource(storage, instance, kind):
    uploads = UploadSchedulerResource(scheduler=kind(), compress=False)

    @dg.op(required_resource_keys={"storage", "uploads"})
    def log(context):
        own = context.resources.uploads.changelog_storage(context.resources.storage, "audit")
        with own, own.create_writer("audit", KeyGroupRange.of(0, 127)) as writer:
            writer.append(5, b"one")
            writer.append(9, b"two")
            future = writer.persist(writer.initial_sequence_number(), 1)
            handle = future.result(timeout_s=60).job_manager_owned_snapshot
            return [change.change for change in own.create_reader().get_changes(handle)]

    done = job_of(log).execute_in_process(
        instance=instance, resources={"storage": storage, "uploads": uploads}
    )
    assert done.output_for_node("log") == [b"one", b"two"]
    below = (Path(storage.base_path) / "changelogs").rglob("*")
    [segment] = [path for path in below if path.is_file()]
    assert segment.read_bytes()[0] == 0


def test_a_scheduler_of_the_resource_uploads_by_an_uploader_of_ones_own(storage, tmp_path):
    uploads = UploadSchedulerResource(scheduler=BatchingUploads(persist_delay_ms=1))
    uploader = Recording()
    options = ChangelogOptions.of(base_path=str(tmp_path))
    own = FsStateChangelogStorage(
        JobID.for_name("audit"), options, uploader=uploader, scheduler=uploads.scheduler_of
    )
    with own, own.create_writer("audit", KeyGroupRange.of(0, 127)) as writer:
        writer.append(5, b"one")
        result = writer.persist(writer.initial_sequence_number(), 1).result(timeout_s=60)
    assert uploader.tasks == [1]
    [(stream, _)] = result.job_manager_owned_snapshot.handles_and_offsets
    assert stream == FileStateHandle("file:/nowhere", 1)
