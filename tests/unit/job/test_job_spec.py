"""A job as one value: checked once, and small when it travels."""

import pytest
from pyspark import cloudpickle

from dstl_core import Types
from dstl_core.errors import ConfigError
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.spec.job_spec import UPLOAD_TIMEOUT_MS, JobSpec, task_changelog_options
from dstl_core.job.spec.operators import KeyedOperator
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange


class Unshippable:
    def __reduce__(self):
        raise TypeError("this stays on the driver")


class Counts(KeyedProcessFunction):
    def process_element(self, value, ctx):
        return ()


def operator(uid, **sources):
    return KeyedOperator(uid, "k", Types.STRING, Counts(), **sources)


def spec(*operators, parallelism=2):
    return JobSpec(
        name="orders",
        base_path="/data/state",
        operators=operators or (operator("a"),),
        parallelism=parallelism,
        max_parallelism=8,
    )


def test_a_job_knows_its_id_its_folders_and_what_subtasks_own():
    job = spec()
    assert job.job_id == JobID.for_name("orders")
    assert job.base_path == "file:/data/state"
    assert str(job.layout.root) == f"file:/data/state/{JobID.for_name('orders').hex}"
    assert [job.key_groups(each) for each in (0, 1)] == [KeyGroupRange(0, 3), KeyGroupRange(4, 7)]


def test_a_job_that_cannot_run_is_refused_where_it_is_given():
    with pytest.raises(ConfigError, match="parallelism"):
        spec(parallelism=9)
    with pytest.raises(ConfigError, match="The name 'a' is used twice"):
        spec(operator("a"), operator("a"))
    with pytest.raises(ConfigError, match="num_upload_threads: expected"):
        task_changelog_options("/data/state", {"num_upload_threads": "many"})


def test_tasks_get_one_operator_without_what_stays_on_the_driver():
    stays = Unshippable()
    first = operator("a", source=lambda frames: stays)
    second = operator("b", broadcast=lambda frames: stays)
    job = spec(first, second, parallelism=3)
    shipped = cloudpickle.loads(cloudpickle.dumps(job.shipped_for(second)))
    assert [each.uid for each in shipped.operators] == ["b"]
    assert shipped.operators[0].broadcast is None
    assert (shipped.job_id, shipped.parallelism) == (job.job_id, 3)


def test_the_log_stands_below_the_job_unless_its_options_say_another_place():
    assert task_changelog_options("/data/state", {}).base_path == "/data/state"
    other = task_changelog_options("/data/state", {"base_path": "/data/log"})
    assert other.base_path == "/data/log"
    assert not other.periodic_materialize_enabled


@pytest.mark.parametrize(
    ("key", "name", "text", "value"),
    [
        ("state.changelog.dstl.dfs.base-path", "base_path", "/data/log", "/data/log"),
        ("state.changelog.dstl.dfs.upload.timeout", "upload_timeout_ms", "2 s", 2_000),
        ("state.changelog.dstl.dfs.compression.enabled", "compression_enabled", "false", False),
    ],
)
def test_an_option_by_flinks_key_comes_before_what_a_job_takes_without_it(key, name, text, value):
    usual = task_changelog_options("/data/state", {}, compress=True)
    assert usual.upload_timeout_ms == UPLOAD_TIMEOUT_MS
    options = task_changelog_options("/data/state", {key: text}, compress=True)
    assert getattr(options, name) == value != getattr(usual, name)
