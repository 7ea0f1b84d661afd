"""Real Flink restores keyed state that dstl wrote as files of RocksDB."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle
from dstl_core.savepoint.compare.diff import diff_snapshots
from tests.command_line import run
from tests.integration.flink.checker import (
    Entry,
    FlinkChecker,
    FlinkRestoreError,
    Operator,
    State,
    TimerService,
)
from tests.integration.flink.model import Model, texts
from tests.integration.flink.releases import RELEASES, jars_of
from tests.integration.flink.test_edits_without_data import ELEMENTS, FIRST, of
from tests.integration.flink.test_edits_without_data import LATER as CHANGES

__all__ = ["run"]
pytestmark = pytest.mark.flink

STATES = [
    State("n", "value", "long"),
    State("names", "list", "string"),
    State("m", "map", "long", map_key="string"),
    State("empty", "value", "long"),
]
OPERATORS = [
    Operator("keyed", "string", STATES, [TimerService()]),
    Operator("list", operator_states=[ELEMENTS]),
]
# The last change of the others is of a state that this operator lacks.
LATER: list[Entry] = [
    *CHANGES[:-1],
    {"key": "a new one", "state": "empty", "do": "update", "value": 7},
]


def held(*updates: list[Entry]) -> list[str]:
    model = Model("keyed", STATES)
    for update in updates:
        model.apply(of("keyed", update))
    return texts(model.entries(), "kg")


@dataclass(frozen=True)
class Source:
    path: Path
    max_parallelism: int


@pytest.fixture(scope="module", params=[128, 4096])
def source(
    flink: FlinkChecker, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Source:
    """A canonical savepoint of Flink, with records in the order of a hash map."""
    restored = flink.restore(
        None,
        OPERATORS,
        backend="hashmap",
        parallelism=2,
        max_parallelism=request.param,
        updates=[
            *of("keyed", FIRST),
            {"op": "list", "state": "elements", "do": "add", "value": "one"},
        ],
        savepoint_to=tmp_path_factory.mktemp("savepoint"),
    )
    assert restored.savepoint is not None
    return Source(Path(restored.savepoint), request.param)


def native(run: Any, source: Source, out: Path, *options: str) -> Path:
    code, _, error = run("rewrite", str(source.path), str(out), "--format", "native", *options)
    assert code == 0, error
    handles = Snapshot.load(out)["keyed"].keyed_handles
    assert {type(handle) for handle in handles} == {IncrementalRemoteKeyedStateHandle}
    return out


@pytest.mark.parametrize(
    ("parallelism", "claim", "settings"),
    [
        (2, "NO_CLAIM", {}),
        (3, "CLAIM", {}),
        (3, "NO_CLAIM", {"state.backend.rocksdb.use-ingest-db-restore-mode": "true"}),
    ],
)
def test_flink_restores_native_state_and_goes_on(
    flink: FlinkChecker,
    run: Any,
    tmp_path: Path,
    source: Source,
    parallelism: int,
    claim: str,
    settings: dict[str, str],
) -> None:
    out = native(run, source, tmp_path / "native")
    restored = flink.restore(
        out,
        OPERATORS,
        backend="rocksdb",
        parallelism=parallelism,
        updates=of("keyed", LATER),
        checkpoints=2,
        savepoint_to=tmp_path / "savepoints",
        claim_mode=claim,
        settings=settings,
    )
    assert texts([e for e in restored.entries if e["op"] == "keyed"], "kg") == held(FIRST)
    for place in (restored.savepoint, restored.checkpoints[-1]):
        again = flink.restore(place, OPERATORS, backend="rocksdb")
        of_operator = [entry for entry in again.entries if entry["op"] == "keyed"]
        assert texts(of_operator, "kg") == held(FIRST, LATER)


def test_what_flink_saves_after_it_differs_in_nothing(
    flink: FlinkChecker, run: Any, tmp_path: Path, source: Source
) -> None:
    out = native(run, source, tmp_path / "native")
    saved = flink.restore(
        out, OPERATORS, backend="rocksdb", parallelism=2, savepoint_to=tmp_path / "savepoints"
    ).savepoint
    assert saved is not None
    assert list(diff_snapshots(Snapshot.load(source.path), Snapshot.load(saved))) == []


def test_native_state_gets_another_number_of_key_groups(
    flink: FlinkChecker, run: Any, tmp_path: Path, source: Source
) -> None:
    out = native(run, source, tmp_path / "native", "--max-parallelism", "1000")
    restored = flink.restore(out, OPERATORS, backend="rocksdb", parallelism=3, max_parallelism=1000)
    assert texts([e for e in restored.entries if e["op"] == "keyed"], "kg") == held(FIRST)


@pytest.mark.soak
@pytest.mark.parametrize("release", RELEASES)
def test_other_releases_restore_native_state(run: Any, tmp_path: Path, release: str) -> None:
    """Flink 1.x has RocksDB 6.20."""
    (tmp_path / "jvm").mkdir()
    checker = FlinkChecker(tmp_path / "jvm", jars_of(release))
    try:
        saved = checker.restore(
            None,
            OPERATORS,
            parallelism=2,
            updates=of("keyed", FIRST),
            savepoint_to=tmp_path / "savepoint",
        ).savepoint
        assert saved is not None
        out = native(run, Source(Path(saved), 128), tmp_path / "native")
        for parallelism in (2, 3):
            restored = checker.restore(
                out,
                OPERATORS,
                backend="rocksdb",
                parallelism=parallelism,
                updates=of("keyed", LATER),
                checkpoints=2,
            )
            assert texts(of_keyed(restored.entries), "kg") == held(FIRST)
            again = checker.restore(restored.checkpoints[-1], OPERATORS, backend="rocksdb")
            assert texts(of_keyed(again.entries), "kg") == held(FIRST, LATER)
    finally:
        checker.close()


@pytest.mark.soak
def test_forst_restores_native_state_and_no_canonical(
    flink: FlinkChecker, run: Any, tmp_path: Path, source: Source
) -> None:
    out = native(run, source, tmp_path / "native")
    for parallelism in (2, 3):
        restored = flink.restore(out, OPERATORS, backend="forst", parallelism=parallelism)
        assert texts(of_keyed(restored.entries), "kg") == held(FIRST)
    with pytest.raises(FlinkRestoreError, match="Not support restoring yet for ForStStateBackend"):
        flink.restore(source.path, OPERATORS, backend="forst", parallelism=2)


def of_keyed(entries: list[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry["op"] == "keyed"]
