"""Jobs of Scala's API go on in Java: Flink 2.2.1 restores their upgraded savepoints.

What a job in Java holds after its next input is what it holds if it got all input itself
(the savepoint ``next``, by Flink 2.2.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dstl_core import Snapshot
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.savepoint.write.folder import KeyedForm
from tests.integration.flink.checker import FlinkChecker
from tests.integration.flink.releases import jars_of
from tests.unit.savepoint.test_leaving_scala import NEW, WITHOUT_KEYS, held, new_jar, new_savepoint
from tests.unit.savepoint.test_scala_jobs import jar, savepoint

pytestmark = pytest.mark.flink
JOBS = {
    "orders": ("shop.Orders", range(20, 40)),
    "colls": ("colls.Colls", range(10, 24)),
    "keys": ("keys.Keys", range(18, 30)),
}
"""The main class of each job in Java, and its next input."""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkChecker]:
    """Real Flink with the classes of the jobs in Java."""
    jars = [Path(new_jar(job)) for job in JOBS]
    checker = FlinkChecker(tmp_path_factory.mktemp("flink"), job_jars=jars)
    yield checker
    checker.close()


@pytest.mark.parametrize(
    ("job", "backend", "parallelism"),
    [
        ("orders", "hashmap", 1),
        ("orders", "rocksdb", 3),
        ("colls", "rocksdb", 2),
        ("keys", "hashmap", 3),
    ],
)
def test_the_job_goes_on_in_java(
    jobs: FlinkChecker, tmp_path: Path, job: str, backend: str, parallelism: int
) -> None:
    goes_on(jobs, tmp_path, job, backend, parallelism, to="2.2")


@pytest.mark.soak
@pytest.mark.parametrize("job", ["orders", "colls"])
def test_the_job_goes_on_in_flink_2_3(tmp_path: Path, job: str) -> None:
    checker = FlinkChecker(tmp_path, jars_of("2.3.0"), [Path(new_jar(job))])
    try:
        goes_on(checker, tmp_path, job, "rocksdb", 2, to="2.3")
    finally:
        checker.close()


def goes_on(
    flink: FlinkChecker, tmp_path: Path, job: str, backend: str, parallelism: int, to: str
) -> None:
    source = Snapshot.load(savepoint(job), jars=[jar(job)])
    template = Snapshot.load(new_savepoint(job))
    form: KeyedForm = "native" if backend == "rocksdb" else "canonical"
    drop = [option.removeprefix("--drop=") for option in WITHOUT_KEYS] if job == "keys" else []
    upgrade = SavepointUpgrade(source, to, drop=drop, template=template, format=form)
    upgraded = upgrade.write(tmp_path / "up")
    main, following = JOBS[job]
    taken = flink.run_job(
        upgraded,
        main,
        savepoint_to=tmp_path / "taken",
        backend=backend,
        parallelism=parallelism,
        following=following,
    )
    assert taken.after is not None
    assert held(taken.savepoint, job) == held(new_savepoint(job), job)
    assert held(taken.after, job) == held(NEW / job / "next", job)
