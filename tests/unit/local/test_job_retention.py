"""Old output goes when it is told to; what was committed stays known."""

from pathlib import Path

import pytest

from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError, InputChangedError, StateFileNotFoundError
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies
from dstl_core.stateful_job import StatefulJob
from dstl_core.storage.location import Location
from tests.integration.spark.job_functions import OUTPUT, SCHEMA, TotalsByRow

pytestmark = pytest.mark.slow


def job_at(session, base, **options):
    operator = KeyedOperator("totals", "k", Types.STRING, TotalsByRow(), OUTPUT)
    local = LocalCopies(str(base / "local"))
    return StatefulJob(
        session, "job", str(base), operator, parallelism=1, local_copies=local, **options
    )


def batch(session, number):
    return session.createDataFrame([("a", number, None)], SCHEMA)


def outputs_in(job):
    root = Location.parse(job.path).path
    return sorted(path.name for path in Path(root, "_dstl", "output").iterdir())


def test_the_output_of_the_last_epochs_is_kept(session, tmp_path):
    job = job_at(session, tmp_path, num_retained_outputs=2)
    results = [job.run(batch(session, number), number, order_by=["v"]) for number in range(1, 5)]
    last_two = [each.checkpoint.checkpoint_id for each in results[2:]]
    assert outputs_in(job) == [f"chk-{each}" for each in last_two]
    for result, total in zip(results[2:], (6, 10), strict=True):
        again = job.run(batch(session, result.facts.input.id), result.facts.input.id)
        assert again.committed_before and not again.output_retired
        assert [tuple(row) for row in again.output.collect()] == [("a", total)]


def test_an_input_whose_output_is_gone_is_still_committed(session, tmp_path):
    job = job_at(session, tmp_path, num_retained_outputs=1)
    first, _ = (job.run(batch(session, number), number, order_by=["v"]) for number in (1, 2))
    commits = job.history()
    again = job_at(session, tmp_path).run(batch(session, 1), 1, order_by=["v"])
    assert (again.committed_before, again.output_retired) == (True, True)
    assert (again.output, again.outputs, again.checkpoint) == (None, {}, first.checkpoint)
    with pytest.raises(StateFileNotFoundError, match="output of checkpoint 2 is no longer kept"):
        job.output_of(first.checkpoint)
    with pytest.raises(InputChangedError):
        job.run(batch(session, 3), 1, order_by=["v"])
    assert job.history() == commits


def test_all_output_is_kept_by_default_and_never_none_of_it(session, tmp_path):
    job = job_at(session, tmp_path)
    for number in (1, 2, 3):
        job.run(batch(session, number), number, order_by=["v"])
    assert len(outputs_in(job)) == 3
    with pytest.raises(ConfigError, match="num_retained_outputs >= 1"):
        job_at(session, tmp_path, num_retained_outputs=0)


def test_the_current_output_is_that_of_the_epochs_that_the_state_stands_on(session, tmp_path):
    job = job_at(session, tmp_path, num_retained=5)
    for number in (1, 2, 3):
        job.run(batch(session, number), number, order_by=["v"])
    assert [tuple(row) for row in job.current_output()["totals"].collect()] == [
        ("a", 1),
        ("a", 3),
        ("a", 6),
    ]
    job.run(batch(session, 10), 2, order_by=["v"], rewind=True)
    assert [tuple(row) for row in job.current_output()["totals"].collect()] == [
        ("a", 1),
        ("a", 11),
    ]


def test_output_of_drivers_that_were_killed_takes_no_place(session, tmp_path):
    job = job_at(session, tmp_path, num_retained_outputs=2)
    first, second = (job.run(batch(session, number), number, order_by=["v"]) for number in (1, 2))
    killed = [
        job_at(session, tmp_path, num_retained_outputs=2).persist(
            batch(session, 3), 3, order_by=["v"]
        )
        for _ in range(3)
    ]
    job = job_at(session, tmp_path, num_retained_outputs=2)
    third = job.run(batch(session, 3), 3, order_by=["v"])
    assert [tuple(row) for row in job.output_of(second.checkpoint)["totals"].collect()] == [
        ("a", 3)
    ]
    kept = [second.checkpoint.checkpoint_id, third.checkpoint.checkpoint_id]
    kept += [each.checkpoint_id for each in killed]
    assert outputs_in(job) == sorted(f"chk-{each}" for each in kept)
    with pytest.raises(StateFileNotFoundError):
        job.output_of(first.checkpoint)
    assert [row.total for row in job.current_output()["totals"].collect()] == [3, 6]


def test_output_that_a_rewind_undid_takes_no_place(session, tmp_path):
    job = job_at(session, tmp_path, num_retained_outputs=2, num_retained=9)
    results = [job.run(batch(session, number), number, order_by=["v"]) for number in (1, 2, 3, 4)]
    again = job.run(batch(session, 40), 4, order_by=["v"], rewind=True)
    kept = [results[2], results[3], again]  # the undone one is for tables that have merged it
    assert outputs_in(job) == [f"chk-{each.checkpoint.checkpoint_id}" for each in kept]
    assert [row.total for row in job.current_output()["totals"].collect()] == [6, 46]


def test_output_is_gone_with_the_commit_that_ends_it_whatever_files_are_there(session, tmp_path):
    """The driver was killed before it deleted them, so a part of them or all are left."""
    job = job_at(session, tmp_path, num_retained_outputs=2)
    first = job.run(batch(session, 1), 1, order_by=["v"])
    folder = Path(Location.parse(job.path).path, "_dstl", "output")
    left = folder / f"chk-{first.checkpoint.checkpoint_id}"
    files = {path: path.read_bytes() for path in left.iterdir()}
    for number in (2, 3):
        job.run(batch(session, number), number, order_by=["v"])
    left.mkdir()
    for path, content in files.items():
        path.write_bytes(content)
    other = job_at(session, tmp_path)
    assert [row.total for row in other.current_output()["totals"].collect()] == [3, 6]
    assert other.run(batch(session, 1), 1, order_by=["v"]).output_retired
    with pytest.raises(StateFileNotFoundError, match="no longer kept"):
        other.output_of(first.checkpoint)


def test_a_job_goes_back_as_far_as_it_was_told_whatever_was_undone(session, tmp_path):
    job = job_at(session, tmp_path, num_retained=2)
    for number in (1, 2, 3):
        job.run(batch(session, number), number, order_by=["v"])
    for amount in (30, 300, 3_000):
        again = job.run(batch(session, amount), 3, order_by=["v"], rewind=True)
        assert [tuple(row) for row in again.output.collect()] == [("a", 3 + amount)]


def test_output_that_was_switched_on_later_is_never_read_as_no_rows(session, tmp_path):
    def job(*, output):
        schema = OUTPUT if output else None
        operator = KeyedOperator("totals", "k", Types.STRING, TotalsByRow(), schema)
        return StatefulJob(session, "job", str(tmp_path), operator, parallelism=1, num_retained=9)

    first = job(output=False).run(batch(session, 1), 1, order_by=["v"])
    again = job(output=True).run(batch(session, 1), 1, order_by=["v"])
    assert again.committed_before and (again.output, again.outputs) == (None, {})
    refusal = (
        "The output 'totals' of pipeline 'job' is not stored for the input 1: the pipeline had no "
        "such output when it applied them; run them again with rewind=True."
    )
    with pytest.raises(ConfigError) as told:
        job(output=True).output_of(first.checkpoint)
    assert str(told.value) == refusal
    job(output=True).run(batch(session, 2), 2, order_by=["v"])
    with pytest.raises(ConfigError, match="not stored for the input 1"):
        job(output=True).current_output()
    # What the message says helps, with the same rows, too.
    job(output=True).run(batch(session, 1), 1, order_by=["v"], rewind=True)
    assert [row.total for row in job(output=True).current_output()["totals"].collect()] == [1]


def test_the_last_input_runs_again_for_its_output_only_once(session, tmp_path):
    def run(schema, **options):
        operator = KeyedOperator("totals", "k", Types.STRING, TotalsByRow(), schema)
        job = StatefulJob(session, "job", str(tmp_path), operator, parallelism=1, num_retained=9)
        return job.run(batch(session, 1), 1, order_by=["v"], **options)

    run(None)
    assert run(OUTPUT).committed_before
    assert not run(OUTPUT, rewind=True).committed_before
    again = run(OUTPUT, rewind=True)
    assert again.committed_before
    assert [row.total for row in again.output.collect()] == [1]
