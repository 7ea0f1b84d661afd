"""The start of a job from a savepoint follows Flink, on both engines: no state is left out unasked,
and a new operator starts empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dstl_core import KeyedOperator, StatefulJob
from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError, NonRestoredStateError, SavepointError
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.local.local_engine import LocalEngine
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from tests.golden_files import GOLDEN

pytestmark = pytest.mark.spark

FOLDER = GOLDEN / "o-source-coordinator"
[FLINKS] = FOLDER.glob("savepoint-*")
"""A savepoint of real Flink: ``count`` has keyed state, the source ``seq`` reader state."""
COUNTS = {
    entry["key"]: entry["value"]
    for entry in json.loads((FOLDER / "truth.json").read_text())["entries"]
    if entry.get("state") == "n"
}
OUTPUT = pa.schema([("k", pa.int64())])
ROWS = pa.table({"k": pa.array([4, 4, 5_000], pa.int64())})


class Adding(KeyedProcessFunction):
    """Adds one to the state ``n`` of the key, which Flink's job has, too."""

    order_insensitive = True

    def open(self, runtime_context: Any) -> None:
        self._n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self._n.update((self._n.value() or 0) + 1)
        yield {"k": value["k"]}


JobOf = Callable[..., StatefulJob]


@pytest.fixture(params=["local", "spark"])
def job_of(request: pytest.FixtureRequest, tmp_path: Path) -> JobOf:
    """A job with the operators of some uids, in a chain."""
    local = request.param == "local"
    engine = LocalEngine() if local else request.getfixturevalue("spark")

    def make(*uids: str, name: str = "job", **options: Any) -> StatefulJob:
        first, *others = (
            KeyedOperator(uid, "k", Types.LONG, Adding(), OUTPUT, source)
            for uid, source in zip(uids, ("input", *uids), strict=False)
        )
        copies = LocalCopies(str(tmp_path / "local"))
        jobs = str(tmp_path / "jobs")
        return StatefulJob(
            engine, name, jobs, first, downstream=others, local_copies=copies, **options
        )

    return make


def counts(job: StatefulJob, uid: str) -> dict[int, int]:
    operator = job.snapshot()[uid]
    return {line["key"]: line["value"] for line in operator.dump("n")} if operator.states else {}


def test_state_that_no_operator_takes_is_refused_unless_allowed(
    job_of: JobOf, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = (
        "No operator of the job takes the state of 'seq' in the savepoint; name the operator that "
        "takes it (uids={'uid in the job': 'uid in the savepoint'}), or pass "
        "allow_non_restored_state=True to leave it out"
    )
    job = job_of("count")
    with pytest.raises(NonRestoredStateError, match=re.escape(wrong)):
        job.start(str(FLINKS))
    assert job.latest() is None
    job.start(str(FLINKS), allow_non_restored_state=True)
    assert counts(job, "count") == COUNTS
    assert "is left out: operators=seq savepoint=" in caplog.text
    allowing = job_of("count", name="allowing", allow_non_restored_state=True)
    with pytest.raises(NonRestoredStateError, match="takes the state of 'seq'"):
        allowing.start(str(FLINKS), allow_non_restored_state=False)
    allowing.start(str(FLINKS))
    assert counts(allowing, "count") == COUNTS


def test_a_new_operator_starts_empty(job_of: JobOf) -> None:
    job = job_of("count", "new", allow_non_restored_state=True)
    job.start(str(FLINKS))
    assert (counts(job, "count"), counts(job, "new")) == (COUNTS, {})
    job.run(ROWS, 1)
    assert counts(job, "count") == {**COUNTS, 4: COUNTS[4] + 2, 5_000: 1}
    assert counts(job, "new") == {4: 2, 5_000: 1}


@pytest.mark.parametrize("changelog", [True, False])
def test_an_operator_that_joins_a_pipeline_starts_empty(
    job_of: JobOf, tmp_path: Path, changelog: bool
) -> None:
    job_of("count", changelog=changelog).run(ROWS, 1)
    longer = job_of("count", "new", changelog=changelog, num_retained=3)
    one_key = ROWS.slice(0, 1)
    longer.run(one_key, 2)
    # One of the two subtasks of the new operator has no rows yet.
    assert (counts(longer, "count"), counts(longer, "new")) == ({4: 3, 5_000: 1}, {4: 1})
    beside = longer.materialize_beside() if changelog else None
    longer.run(ROWS, 3)
    assert counts(longer, "new") == {4: 3, 5_000: 1}
    assert verify_snapshot(longer.snapshot()).findings == []
    if beside is not None:
        longer.adopt(beside)
    longer.run(ROWS, 4)
    assert counts(longer, "new") == {4: 5, 5_000: 2}
    other = job_of("count", "new", name="other", changelog=changelog)
    other.start(longer.savepoint(str(tmp_path / "savepoint")))
    assert counts(other, "new") == {4: 5, 5_000: 2}


def test_a_uid_that_fits_nothing_is_an_error(job_of: JobOf) -> None:
    misspelt = job_of("cuont")
    with pytest.raises(NonRestoredStateError, match="takes the state of 'seq', 'count' in"):
        misspelt.start(str(FLINKS))
    with pytest.raises(
        SavepointError, match="'uid:cuont' is not in the snapshot; it has: '30526b369bc"
    ):
        job_of("count").start(str(FLINKS), uid="cuont")
    with pytest.raises(ConfigError, match=r"has no operator 'seq' .*: expected one of 'count'\."):
        job_of("count").start(str(FLINKS), uids={"seq": "count"})
    with pytest.raises(ConfigError, match="'count' and 'other' of the job both take the state of"):
        job_of("count", "other").start(str(FLINKS), uids={"other": "count"})
    renamed = job_of("sums", allow_non_restored_state=True)
    renamed.start(str(FLINKS), uid="count")
    assert counts(renamed, "sums") == COUNTS
