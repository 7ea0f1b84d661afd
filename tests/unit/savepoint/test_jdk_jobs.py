"""Jobs of Flink 1.20.5 whose state shows what the JDK has, generics, and native savepoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dstl_core import Snapshot
from dstl_core.savepoint.edit import converted_state
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from tests.golden_files import JDK_JOBS, JDK_TYPES, entries_of
from tests.unit.savepoint.test_job_values import lines, savepoint

JOBS = sorted(path for path in JDK_JOBS.iterdir() if path.is_dir())


def check(snapshot: Snapshot, job: Path) -> None:
    held = [line for operator in snapshot.operators for line in operator.dump()]
    assert lines(json.loads(json.dumps(held))) == lines(entries_of(job / "truth.json"))


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_values_are_what_flink_holds_before_and_after_the_upgrade(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Snapshot.load(savepoint(job), jars=[job / "job.jar"])
    check(source, job)
    written = []
    for limit in (1 << 40, 0):
        monkeypatch.setattr(converted_state, "KERNELS_FROM_BYTES", limit)
        upgrade = SavepointUpgrade(source, types=JDK_TYPES.get(job.name))
        path = upgrade.write(tmp_path / str(limit))
        written.append(Snapshot.load(path, jars=[job / "job.jar"]))
        check(written[-1], job)
    one, other = ([each.form() for each in found.operators] for found in written)
    assert one == other
