"""Other releases of Flink restore what was written from columns, their windows and timers fire, and
what they write is read again. A long run: it fetches each release once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dstl_core import Snapshot
from tests.columnar_copies import copy_through_columns
from tests.integration.flink.checker import FlinkChecker
from tests.integration.flink.model import texts
from tests.integration.flink.test_columnar_savepoints import FIXTURES, named, operators
from tests.integration.flink.test_columnar_windows import (
    END_OF_TIME,
    FIXTURE,
    OPERATORS,
    check_contents,
    missing_elements,
)
from tests.integration.flink.test_migrations import expected, job, migrate

pytestmark = pytest.mark.soak

OLDEST = 3
"""The version of metadata that all of them read."""
NAMES = {
    "a-hashmap-canonical",
    "a-hashmap-canonical-compressed",
    "a-hashmap-native",
    "a-hashmap-changelog-multi",
    "a-rocksdb-changelog-materialized",
    "a-rocksdb-native-incremental",
    "c-opstate-hashmap",
    "e-ttl-hashmap",
    "o-hard-keys",
    "x-keys-hashmap",
}
CHOSEN = [fixture for fixture in FIXTURES if fixture.name in NAMES]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_state_goes_there_and_back(release: FlinkChecker, tmp_path: Path, backend: str) -> None:
    assert len(CHOSEN) >= 6
    for number, fixture in enumerate(CHOSEN):
        ours = copy_through_columns(
            Snapshot.load(fixture.snapshot),
            tmp_path / f"ours-{number}",
            compressed=number % 2 == 1,
            version=OLDEST,
        )
        parallelism = max(each.parallelism for each in Snapshot.load(ours).operators)
        for form in ("canonical", "native"):
            restored = release.restore(
                ours,
                operators(fixture),
                backend=backend,
                parallelism=parallelism,
                savepoint_to=tmp_path / f"theirs-{number}-{form}",
                savepoint_format=form,
            )
            assert texts(named(restored.entries)) == texts(named(fixture.truth))
            assert restored.savepoint is not None
            again = Snapshot.load(restored.savepoint)
            copied = Snapshot.load(copy_through_columns(again, tmp_path / f"again-{number}-{form}"))
            lines = [line for each in copied.operators for line in each.dump()]
            assert texts(named(lines)) == texts(named(fixture.truth))


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_windows_and_timers_fire(release: FlinkChecker, tmp_path: Path, backend: str) -> None:
    source = Snapshot.load(FIXTURE.snapshot)
    ours = copy_through_columns(source, tmp_path / "windows", version=OLDEST)
    fired = release.restore(
        ours,
        OPERATORS,
        backend=backend,
        parallelism=3,
        watermark=END_OF_TIME,
        updates=missing_elements(),
    ).fired
    check_contents(fired)

    [timers] = [each for each in CHOSEN if each.name == "a-hashmap-canonical"]
    ours = copy_through_columns(Snapshot.load(timers.snapshot), tmp_path / "timers", version=OLDEST)
    due = [entry for entry in timers.truth if entry["kind"] == "event-timer"]
    fired = release.restore(
        ours, operators(timers), backend=backend, parallelism=2, watermark=END_OF_TIME
    ).fired
    assert due
    assert texts(fired) == texts(due)


def test_state_of_a_release_migrates_for_it(release: FlinkChecker, tmp_path: Path) -> None:
    """Keys of texts become numbers, with three states and timers."""
    migrated = migrate(release, tmp_path)
    for backend, parallelism in (("hashmap", 1), ("rocksdb", 3)):
        restored = release.restore(
            migrated, [job("long")], backend=backend, parallelism=parallelism
        )
        assert texts(restored.entries, "kg") == texts(expected())
