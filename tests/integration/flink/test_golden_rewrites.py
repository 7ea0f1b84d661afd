"""What real Flink wrote in forms of its own (native, incremental, changelog), `dstl rewrite` makes
a canonical savepoint; real Flink restores that on both backends, and holds what it held before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from tests.command_line import run
from tests.golden_files import Fixture
from tests.integration.flink.checker import FlinkChecker
from tests.integration.flink.model import texts
from tests.integration.flink.test_columnar_savepoints import DECLARABLE, named, operators

__all__ = ["run"]
pytestmark = pytest.mark.flink


def forms(fixture: Fixture) -> set[str]:
    """How the keyed state of its operators lies on disk."""
    stored_operators = Snapshot.load(fixture.snapshot).operators
    return {each.form() for each in stored_operators if each.keyed_handles}


REFUSED = {"x-unaligned-hashmap": "in-flight data"}
FOREIGN = [fixture for fixture in DECLARABLE if not forms(fixture) <= {"canonical"}]
FIXTURES = [fixture for fixture in FOREIGN if fixture.name not in REFUSED]


@pytest.mark.parametrize("fixture", [f for f in FOREIGN if f.name in REFUSED], ids=str)
def test_what_a_canonical_savepoint_does_not_hold_is_refused(
    tmp_path: Path, run: Any, fixture: Fixture
) -> None:
    code, _, error = run("rewrite", str(fixture.snapshot), str(tmp_path / "out"))
    assert (code, REFUSED[fixture.name] in error) == (2, True), error
    assert not (tmp_path / "out").exists()


def test_every_form_is_among_them() -> None:
    assert {form for fixture in FIXTURES for form in forms(fixture)} == {
        "heap",
        "rocksdb files",
        "changelog on nothing",
        "changelog on heap",
        "changelog on rocksdb files",
    }


@pytest.mark.parametrize("fixture", FIXTURES, ids=str)
def test_a_snapshot_of_any_form_becomes_a_canonical_savepoint(
    flink: FlinkChecker, tmp_path: Path, run: Any, fixture: Fixture
) -> None:
    out = tmp_path / "out"
    code, _, error = run("rewrite", str(fixture.snapshot), str(out))
    assert code == 0, error
    rewritten = Snapshot.load(out)
    assert {each.form() for each in rewritten.operators if each.keyed_handles} == {"canonical"}
    declared = operators(fixture)
    parallelism = max(each.parallelism for each in rewritten.operators)
    # Lists are dealt out anew if the number of subtasks changes.
    other = parallelism if any(each.operator_states for each in declared) else parallelism % 3 + 1

    for backend, subtasks in (("hashmap", other), ("rocksdb", parallelism)):
        entries = flink.restore(out, declared, backend=backend, parallelism=subtasks).entries
        assert texts(named(entries)) == texts(named(fixture.truth))


@pytest.mark.soak
@pytest.mark.parametrize("fixture", [f for f in DECLARABLE if f.name not in REFUSED], ids=str)
def test_a_snapshot_of_any_form_becomes_a_native_savepoint(
    flink: FlinkChecker, tmp_path: Path, run: Any, fixture: Fixture
) -> None:
    out = tmp_path / "out"
    code, _, error = run("rewrite", str(fixture.snapshot), str(out), "--format", "native", "--copy")
    assert code == 0, error
    rewritten = Snapshot.load(out)
    assert forms(fixture) == set() or {
        operator.form() for operator in rewritten.operators if operator.keyed_handles
    } == {"rocksdb files"}
    declared = operators(fixture)
    parallelism = max(operator.parallelism for operator in rewritten.operators)
    has_lists = any(operator.operator_states for operator in declared)
    subtasks = parallelism if has_lists else parallelism % 3 + 1
    entries = flink.restore(out, declared, backend="rocksdb", parallelism=subtasks).entries
    assert texts(named(entries)) == texts(named(fixture.truth))


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_timers_that_rocksdb_left_on_the_heap_fire(
    flink: FlinkChecker, tmp_path: Path, run: Any, backend: str
) -> None:
    checkpoint, savepoint = (
        next(each for each in DECLARABLE if each.name == f"a-rocksdb-heaptimers-{form}")
        for form in ("checkpoint", "canonical")
    )
    out, end_of_time = tmp_path / "out", 2**63 - 1
    assert run("rewrite", str(checkpoint.snapshot), str(out))[0] == 0
    expected, fired = (
        flink.restore(folder, operators(fixture), backend=backend, watermark=end_of_time).fired
        for folder, fixture in ((savepoint.snapshot, savepoint), (out, checkpoint))
    )
    assert expected
    assert texts(fired) == texts(expected)


@pytest.mark.parametrize("factory", ["HEAP", "ROCKSDB"])
def test_timers_that_stay_on_the_heap_fire_with_other_key_groups(
    flink: FlinkChecker, tmp_path: Path, run: Any, factory: str
) -> None:
    checkpoint = next(each for each in DECLARABLE if each.name == "a-rocksdb-heaptimers-checkpoint")
    native, canonical = tmp_path / "native", tmp_path / "canonical"
    for out in (native, canonical):
        options = [f"--format={out.name}", "--max-parallelism=17"]
        assert run("rewrite", str(checkpoint.snapshot), str(out), *options)[0] == 0
    expected, fired = (
        flink.restore(
            folder,
            operators(checkpoint),
            backend="rocksdb",
            parallelism=3,
            max_parallelism=17,
            watermark=2**63 - 1,
            settings={"state.backend.rocksdb.timer-service.factory": factory},
        ).fired
        for folder in (canonical, native)
    )
    assert expected
    assert texts(fired) == texts(expected)
