"""An epoch in two halves: persist here, confirm there."""

import json

import pytest

from dstl_core.errors import CheckpointError, FencedError, FormatError
from dstl_core.job.coordination.job_coordinator import PersistedCheckpoint
from dstl_core.savepoint.gc import collect_garbage
from tests.local_session import state_rows
from tests.unit.local.test_job_epochs import batch, job_on


def persist(job, rows, input_id):
    """Through JSON, as between two processes."""
    persisted = job.persist(batch(job.engine, rows), input_id, ["v"])
    return PersistedCheckpoint.from_json(json.loads(json.dumps(persisted.to_json())))


def totals(job):
    return {row.state_key: row.total for row in state_rows(job.latest_path())}


@pytest.fixture
def job(session, tmp_path):
    job = job_on(session, tmp_path)
    job.run(batch(session, [("a", 1), ("b", 2)]), 1, ["v"])
    return job


def test_what_is_persisted_is_seen_only_when_another_process_has_confirmed_it(
    session, tmp_path, job
):
    persisted = persist(job, [("a", 5)], 2)
    before = job.latest()
    assert totals(job) == {"a": 1, "b": 2}

    result = job_on(session, tmp_path).confirm(persisted)

    assert totals(job) == {"a": 6, "b": 2}
    assert job.latest() == result.checkpoint != before
    assert result.facts.input.id == 2
    assert [tuple(row) for row in result.output.collect()] == [("a", 6)]
    again = job_on(session, tmp_path).confirm(persisted)
    assert again.committed_before
    assert again.checkpoint == result.checkpoint


def test_the_first_epoch_begins_with_an_empty_commit_that_binds_to_nothing(session, tmp_path):
    fresh = job_on(session, tmp_path)
    fresh.persist(batch(session, [("a", 1)]), 1, ["v"])
    assert [commit.facts.kind for commit in fresh.history()] == ["start"]
    assert totals(fresh) == {}
    # Another process, which knows the JSON only, commits.
    carried = json.loads(json.dumps(fresh.persist(batch(session, [("b", 2)]), 1, ["v"]).to_json()))
    job_on(session, tmp_path).confirm(carried)
    assert [commit.facts.kind for commit in fresh.history()] == ["start", "epoch"]
    assert totals(fresh) == {"b": 2}


@pytest.mark.parametrize("wrong", [{}, {"checkpoint_id": 1}, {"checkpoint_id": "x"}])
def test_what_was_never_persisted_is_not_confirmed(job, wrong):
    with pytest.raises(FormatError, match=r"give the result of persist\(\)"):
        job.confirm(wrong)


def test_an_input_that_was_committed_is_not_persisted_again(session, tmp_path, job):
    persisted = persist(job, [("a", 1), ("b", 2)], 1)
    assert persisted.is_committed
    assert job.confirm(persisted).committed_before
    assert job.latest().checkpoint_id == persisted.checkpoint_id


def test_what_was_not_confirmed_was_never_there(session, tmp_path, job):
    old = persist(job, [("a", 100)], 2)
    other = job_on(session, tmp_path)
    other.run(batch(session, [("a", 5)]), 2, ["v"])
    assert totals(job) == {"a": 6, "b": 2}
    with pytest.raises(FencedError):
        job_on(session, tmp_path).confirm(old)
    assert totals(job) == {"a": 6, "b": 2}
    report = collect_garbage(str(tmp_path), older_than_ms=0)
    garbage = {str(each.location) for each in report.garbage}
    assert garbage, "what the first half wrote is found"
    assert not garbage & {str(each.location) for each in _named(job)}


def _named(job):
    snapshot = job.snapshot()
    for operator in snapshot.operators:
        for subtask in operator.state.subtasks:
            for stream in subtask.streams():
                place = snapshot.resolver.resolve(stream)
                if place.location is not None:
                    yield place


def test_of_two_that_were_persisted_one_is_confirmed(session, tmp_path, job):
    first = persist(job, [("a", 10)], 2)
    second = persist(job, [("a", 20)], 2)
    job.confirm(second)
    assert totals(job) == {"a": 21, "b": 2}
    with pytest.raises(CheckpointError, match="cannot be confirmed"):
        job.confirm(first)
    assert totals(job) == {"a": 21, "b": 2}


@pytest.mark.parametrize("body", [{}, {"reports": [{}]}, {"checkpoint_id": "x"}])
def test_another_json_is_refused(body):
    with pytest.raises(FormatError, match="the result of persist"):
        PersistedCheckpoint.from_json(body)
