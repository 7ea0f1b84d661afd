"""Epochs of a job: what is committed, what is refused, and what a repetition gives."""

import random

import pyarrow as pa
import pytest

from dstl_core import Snapshot
from dstl_core.codec.serializers import Types
from dstl_core.errors import (
    ConfigError,
    FencedError,
    InputChangedError,
    SavepointError,
    UserFunctionError,
)
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.spec.operators import KeyedOperator
from dstl_core.state.tables.descriptor import ListStateDescriptor, ValueStateDescriptor
from dstl_core.stateful_job import StatefulJob
from tests.local_session import state_rows

pytestmark = pytest.mark.slow

OUTPUT = pa.schema([("k", pa.string()), ("total", pa.int64())])


class Totals(KeyedProcessFunction):
    """Sum, last value and the list of values that are multiples of ten."""

    def __init__(self, fail_at=None):
        self._fail_at = fail_at

    def open(self, runtime_context):
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG))
        self._last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG))
        self._tens = runtime_context.get_list_state(ListStateDescriptor("tens", Types.LONG))

    def process_element(self, value, ctx):
        if value["v"] == self._fail_at:
            raise ValueError("no")
        assert ctx.get_current_key() == value["k"]
        self._total.update((self._total.value() or 0) + value["v"])
        if value["v"] % 7 == 0:
            self._last.clear()
        else:
            self._last.update(value["v"])
        if value["v"] % 10 == 0:
            self._tens.add(value["v"])
        yield {"k": value["k"], "total": self._total.value()}


class Reference:
    """The same, by hand."""

    def __init__(self):
        self.state = {}

    def apply(self, rows):
        for key, value in rows:
            total, _, tens = self.state.get(key, (0, None, []))
            last = None if value % 7 == 0 else value
            self.state[key] = (total + value, last, tens + [value] * (value % 10 == 0))

    def rows(self):
        return {key: (total, last, tens or None) for key, (total, last, tens) in self.state.items()}


def operator(fail_at=None):
    return KeyedOperator("totals", "k", Types.STRING, Totals(fail_at), OUTPUT)


def job_on(session, base, name="job", **options):
    fail_at = options.pop("fail_at", None)
    return StatefulJob(session, name, str(base), operator(fail_at), **options)


def batch(session, rows):
    return session.createDataFrame(rows, "k string, v long")


def state_of(session, path):
    rows = state_rows(path)
    return {row.state_key: (row.total, row.last, row.tens) for row in rows}


def random_rows(seed, count=200):
    chooser = random.Random(seed)
    keys = [f"key-{i}" for i in range(30)] + ["", "ключ", "😀", "x" * 300]
    values = chooser.sample(range(1, 10_000), count)
    return [(chooser.choice(keys), value) for value in sorted(values)]


def test_epochs_with_other_parallelism_equal_the_reference(session, tmp_path):
    reference = Reference()
    for number, parallelism in enumerate([1, 2, 5, 3]):
        rows = random_rows(number)
        shuffled = random.Random(number).sample(rows, len(rows))
        job = job_on(session, tmp_path, parallelism=parallelism, compress_log=number % 2 == 1)
        result = job.run(batch(session, shuffled), number, order_by=["v"])
        reference.apply(rows)
        assert state_of(session, job.latest_path()) == reference.rows()
        assert result.facts.input.rows == len(rows)
        assert result.facts.changed_keys == len({key for key, _ in rows})
        if number == 2:
            job.materialize()
            assert job.state_size().log == 0
            assert state_of(session, job.latest_path()) == reference.rows()
    running = Reference()
    totals = {}
    for key, value in random_rows(3):
        running.apply([(key, value)])
    for row in result.output.collect():
        totals[row.k] = max(row.total, totals.get(row.k, 0))
    last_batch = {key for key, _ in random_rows(3)}
    assert totals == {key: reference.rows()[key][0] for key in last_batch}


def test_a_committed_input_runs_nothing_and_gives_what_was_stored(session, tmp_path):
    job = job_on(session, tmp_path)
    rows = random_rows(1)
    first = job.run(batch(session, rows), "a", order_by=["v"])
    job.run(batch(session, random_rows(2)), "b", order_by=["v"])
    commits = len(job.history())
    again = job_on(session, tmp_path).run(batch(session, rows[::-1]), "a", order_by=["v"])
    assert again.committed_before and not first.committed_before
    assert again.checkpoint == first.checkpoint
    assert sorted(again.output.collect()) == sorted(first.output.collect())
    assert len(job.history()) == commits
    assert "committed before" in str(again)


def test_every_committed_epoch_run_again_gives_what_it_gave(session, tmp_path):
    batches = [random_rows(number) for number in range(4)]
    first = [
        job_on(session, tmp_path, parallelism=number + 1).run(batch(session, rows), number, ["v"])
        for number, rows in enumerate(batches)
    ]
    stored = [sorted(result.output.collect()) for result in first]
    job = job_on(session, tmp_path)
    latest, state = job.latest(), state_of(session, job.latest_path())
    for number, rows in enumerate(batches):
        again = job.run(batch(session, rows), number, order_by=["v"])
        assert again.checkpoint == first[number].checkpoint
        assert sorted(again.output.collect()) == stored[number]
    assert job.latest() == latest
    assert state_of(session, job.latest_path()) == state


def test_other_rows_under_a_committed_id_are_refused(session, tmp_path):
    job = job_on(session, tmp_path)
    rows = random_rows(1)
    job.run(batch(session, rows), "a", order_by=["v"])
    for other in (rows[1:], [*rows[1:], ("key-0", rows[0][1] + 1)], [*rows, rows[0]]):
        with pytest.raises(
            InputChangedError, match=r"with other rows or columns: (its|expected) 200 rows"
        ):
            job.run(batch(session, other), "a", order_by=["v"])


def test_an_earlier_id_is_refused(session, tmp_path):
    job = job_on(session, tmp_path)
    job.run(batch(session, random_rows(1)), 10, order_by=["v"])
    with pytest.raises(ConfigError, match="9 comes before the last committed one, 10"):
        job.run(batch(session, random_rows(2)), 9, order_by=["v"])
    with pytest.raises(ConfigError, match="expected int, got str"):
        job.run(batch(session, random_rows(2)), "11", order_by=["v"])


def test_a_failed_epoch_leaves_no_trace_and_runs_again(session, tmp_path):
    check_a_failed_epoch(session, tmp_path)


def check_a_failed_epoch(session, tmp_path):
    """It holds for every engine."""
    job = job_on(session, tmp_path)
    job.run(batch(session, random_rows(1)), 1, order_by=["v"])
    rows = random_rows(2)
    before = job.latest()
    files = visible_files(tmp_path)
    failing = job_on(session, tmp_path, fail_at=rows[150][1])
    with pytest.raises(UserFunctionError, match=r"Totals\.process_element raised ValueError: no"):
        failing.run(batch(session, rows), 2, order_by=["v"])
    assert job.latest() == before
    assert visible_files(tmp_path) == files
    # The failed driver owns the pipeline and may go on.
    reference = Reference()
    reference.apply(random_rows(1))
    reference.apply(rows)
    again = job_on(session, tmp_path)
    again.run(batch(session, rows), 2, order_by=["v"])
    assert state_of(session, again.latest_path()) == reference.rows()


def visible_files(base):
    """Checkpoints and outputs; the log's claims and unreferenced segments are nobody's state."""
    return {
        path.relative_to(base)
        for pattern in ("*/chk-*/*", "*/_dstl/output/*/*")
        for path in base.glob(pattern)
    }


def test_a_driver_that_lost_its_claim_commits_nothing(session, tmp_path):
    first, second = job_on(session, tmp_path), job_on(session, tmp_path)
    first.run(batch(session, random_rows(1)), 1, order_by=["v"])
    second.run(batch(session, random_rows(2)), 2, order_by=["v"])
    files = visible_files(tmp_path)
    with pytest.raises(FencedError, match="does not own this pipeline"):
        first.run(batch(session, random_rows(3)), 3, order_by=["v"])
    assert visible_files(tmp_path) == files
    second.run(batch(session, random_rows(3)), 3, order_by=["v"])


def test_a_driver_that_is_overtaken_in_the_middle_leaves_nothing(session, tmp_path):
    check_an_overtaken_driver(session, tmp_path)


def check_an_overtaken_driver(session, tmp_path):
    """It holds for every engine."""
    slow, fast = job_on(session, tmp_path), job_on(session, tmp_path)
    slow.run(batch(session, random_rows(1)), 1, order_by=["v"])
    rows = random_rows(2)

    class Overtaking:
        """Time passes while the slow driver's epoch runs: the fast one takes over. The driver
        looks at the clock for the request, for the trigger, and then for each report.
        """

        calls = 0

        def now_ms(self):
            return 0

        def monotonic_ms(self):
            self.calls += 1
            if self.calls == 3:
                fast.run(batch(session, rows), 2, order_by=["v"])
            return 0

    slow._coordinator._clock = Overtaking()
    with pytest.raises(FencedError):
        slow.run(batch(session, rows), 2, order_by=["v"])
    reference = Reference()
    reference.apply(random_rows(1))
    reference.apply(rows)
    assert state_of(session, fast.latest_path()) == reference.rows()
    committed = {f"chk-{each.checkpoint_id}" for each in fast.history()}
    assert {path.name for path in tmp_path.glob("*/chk-*")} <= committed


def test_a_savepoint_is_written_once_per_checkpoint(session, tmp_path):
    job = job_on(session, tmp_path / "jobs")
    job.run(batch(session, random_rows(1)), 1, order_by=["v"])
    path = job.savepoint(str(tmp_path / "savepoint"))
    assert job.savepoint(str(tmp_path / "savepoint")) == path
    snapshot = Snapshot.load(path)
    assert [operator.uid for operator in snapshot.operators] == ["totals"]
    assert state_of(session, path) == state_of(session, job.latest_path())
    job.run(batch(session, random_rows(2)), 2, order_by=["v"])
    with pytest.raises(SavepointError, match="Another snapshot is already there"):
        job.savepoint(path)


def test_the_last_input_is_known_after_a_commit_without_one(session, tmp_path):
    job = job_on(session, tmp_path, num_retained=9)
    assert job.last_input() is None
    job.start()
    assert job.last_input() is None
    for number in range(3):
        job.run(batch(session, random_rows(number)), number, order_by=["v"])
    job.materialize()
    assert (job.last_input(), job.latest().facts.input) == (2, None)
    job.run(batch(session, random_rows(7)), 1, order_by=["v"], rewind=True)
    assert job.last_input() == 1


def test_retention_drops_old_checkpoints_and_their_log(session, tmp_path):
    job = job_on(session, tmp_path)
    for number in range(3):
        job.run(batch(session, random_rows(number)), number, order_by=["v"])
    job.materialize()
    [folder] = tmp_path.glob("*/chk-*")
    assert folder.name == f"chk-{job.latest().checkpoint_id}"
    assert not list(tmp_path.glob("*/dstl/*")), "the log is folded into the base"
    assert len(list(tmp_path.glob("*/taskowned/*"))) == job.parallelism


def test_rows_without_a_key_or_order_are_refused(session, tmp_path):
    job = job_on(session, tmp_path)
    rows = batch(session, [("a", 1), (None, 2)])
    with pytest.raises(ConfigError, match=r"^A key is null, in the column 'k'.* fill such rows\.$"):
        job.run(rows, 1, order_by=["v"])
    with pytest.raises(ConfigError, match="The order of rows is not given"):
        job.run(rows, 1)
    with pytest.raises(ConfigError, match="no column 'w' in the input of 'totals'; it has: k, v"):
        job.run(rows, 1, order_by=["w"])


def test_an_empty_batch_is_an_epoch_without_changes(session, tmp_path):
    job = job_on(session, tmp_path)
    job.run(batch(session, random_rows(1)), 1, order_by=["v"])
    before = state_of(session, job.latest_path())
    result = job.run(batch(session, []), 2, order_by=["v"])
    assert result.facts.input.rows == 0 and result.output.count() == 0
    assert state_of(session, job.latest_path()) == before
    assert job.run(batch(session, []), 2, order_by=["v"]).committed_before
