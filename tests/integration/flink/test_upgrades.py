"""Jobs of Flink 1.20.5: real Flink restores their upgraded savepoints, and the jobs go on.

Each job runs its own classes. Flink reads the state with the serializers that the job has in this
release, and writes it again in a savepoint of its own. Then the job gets its next input. What it
holds after it is what it holds in Flink 1.20.5 after the same input (``next.json``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dstl_core import Snapshot
from dstl_core.savepoint.edit import converted_state
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.savepoint.write.folder import KeyedForm
from tests.golden_files import JDK_TYPES, entries_of
from tests.integration.flink.checker import FlinkChecker, FlinkRestoreError
from tests.integration.flink.releases import RELEASES, jars_of
from tests.unit.savepoint.test_jdk_jobs import JOBS as OF_THE_JDK
from tests.unit.savepoint.test_job_values import JOBS, lines, savepoint

pytestmark = pytest.mark.flink
CASES = [(job, "hashmap", 1) for job in JOBS]
# More subtasks share out the elements of operator state, so what one holds says nothing.
CASES += [(job, "rocksdb", 3) for job in JOBS if job.name != "opstate"]
CASES += [(job, "hashmap", 1) for job in OF_THE_JDK]
CASES += [(job, "rocksdb", 3) for job in OF_THE_JDK if job.name not in ("heap", "many")]

NEXT = range(24, 40)
"""The numbers that each job gets next: its first input was those below 24."""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkChecker]:
    """Real Flink with the classes of all jobs."""
    jars = [job / "job.jar" for job in [*JOBS, *OF_THE_JDK]]
    checker = FlinkChecker(tmp_path_factory.mktemp("flink"), job_jars=jars)
    yield checker
    checker.close()


def class_of(job: Path) -> str:
    return str(json.loads((job / "outcome.json").read_bytes())["job"])


def entries(job: Path, name: str) -> Counter[str]:
    return lines(entries_of(job / name))


def held(savepoint: str | None, job: Path) -> Counter[str]:
    operators = Snapshot.load(str(savepoint), jars=[job / "job.jar"]).operators
    return lines(json.loads(json.dumps([line for each in operators for line in each.dump()])))


def check_goes_on(
    jobs: FlinkChecker, scratch: Path, job: Path, backend: str, parallelism: int, to: str = "2.2"
) -> None:
    """The job restores its upgraded savepoint, holds what it held, and goes on."""
    source = Snapshot.load(savepoint(job), jars=[job / "job.jar"])
    form: KeyedForm = "native" if backend == "rocksdb" else "canonical"
    upgrade = SavepointUpgrade(source, to, types=JDK_TYPES.get(job.name), format=form)
    upgraded = upgrade.write(scratch / "up")
    taken = jobs.run_job(
        upgraded,
        class_of(job),
        savepoint_to=scratch / "taken",
        backend=backend,
        parallelism=parallelism,
        following=NEXT,
    )
    assert held(taken.savepoint, job) == entries(job, "truth.json")
    assert entries(job, "next.json") != entries(job, "truth.json")
    assert held(taken.after, job) == entries(job, "next.json")


@pytest.mark.parametrize(
    ("job", "backend", "parallelism"), CASES, ids=[f"{job.name}-{b}-{p}" for job, b, p in CASES]
)
def test_the_job_goes_on_with_its_upgraded_state(
    jobs: FlinkChecker,
    tmp_path: Path,
    job: Path,
    backend: str,
    parallelism: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if backend == "rocksdb":  # those savepoints are converted by kernels
        monkeypatch.setattr(converted_state, "KERNELS_FROM_BYTES", 0)
    check_goes_on(jobs, tmp_path, job, backend, parallelism)


@pytest.mark.soak
@pytest.mark.parametrize("release", [each for each in RELEASES if not each.startswith("1.")])
def test_the_jobs_go_on_in_each_line_of_flink_2(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, release: str
) -> None:
    """A long run: it fetches each release once."""
    work = tmp_path_factory.mktemp("flink")
    jobs = FlinkChecker(work, jars_of(release), [job / "job.jar" for job in JOBS])
    try:
        for number, job in enumerate(JOBS):
            backend = "hashmap" if number % 2 else "rocksdb"
            parallelism = 1 if job.name == "opstate" else 3
            line = release.rpartition(".")[0]
            check_goes_on(jobs, tmp_path / job.name, job, backend, parallelism, line)
    finally:
        jobs.close()


def test_metadata_of_older_flink_restores(jobs: FlinkChecker, tmp_path: Path) -> None:
    """Version 3 has no properties; the upgraded savepoint needs them."""
    orders = next(job for job in JOBS if job.name == "orders")
    source = Snapshot.load(savepoint(orders), jars=[orders / "job.jar"])
    source.metadata = replace(source.metadata, version=3, properties=None)
    upgraded = SavepointUpgrade(source).write(tmp_path / "up")
    taken = jobs.run_job(upgraded, class_of(orders), savepoint_to=tmp_path / "taken")
    assert held(taken.savepoint, orders) == entries(orders, "truth.json")


def test_flink_refuses_a_type_that_was_named_wrongly(jobs: FlinkChecker, tmp_path: Path) -> None:
    """With other types than the job declares, Flink refuses the state."""
    [job] = [job for job in OF_THE_JDK if job.name == "undeclared"]
    types = {**JDK_TYPES[job.name], "lines": "Types.LIST<undeclared.Line>"}
    source = Snapshot.load(savepoint(job), jars=[job / "job.jar"])
    upgraded = SavepointUpgrade(source, types=types).write(tmp_path / "up")
    with pytest.raises(FlinkRestoreError, match="must not be incompatible"):
        jobs.run_job(upgraded, class_of(job), savepoint_to=tmp_path / "taken")


def test_flink_refuses_what_is_not_upgraded(jobs: FlinkChecker, tmp_path: Path) -> None:
    carts = next(job for job in JOBS if job.name == "carts")
    with pytest.raises(FlinkRestoreError, match="must not be incompatible"):
        jobs.run_job(savepoint(carts), class_of(carts), savepoint_to=tmp_path / "taken")
