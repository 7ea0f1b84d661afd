"""A job of Flink 1.20.5 with ten states, one of them of Kryo: an upgrade reads and writes the files
of that state alone, and real Flink 2.2 restores all ten.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.savepoint.write import folder
from tests.counting_file_io import counted_snapshot
from tests.integration.flink.checker import Entry, FlinkChecker, Operator, State, TimerService
from tests.integration.flink.model import Model, texts
from tests.integration.flink.releases import jars_of
from tests.unit.savepoint.test_table_parts import families

pytestmark = pytest.mark.flink
OLD_RELEASE = "1.20.5"
KRYO = State("id", "value", "kryo")
STATES = [
    KRYO,
    State("n", "value", "long"),
    State("name", "value", "string"),
    State("price", "value", "decimal"),
    State("seen", "value", "instant"),
    State("pair", "value", "tuple<string,long>"),
    State("names", "list", "string"),
    State("counts", "map", "long", map_key="string"),
    State("rates", "value", "map<string,double>"),
]
"""The timers are the tenth."""
JOB = [Operator("ten", "string", STATES, [TimerService()])]
KEYS = [f"key-{number}" for number in range(400)]
VALUES: dict[str, Any] = {
    "n": lambda at: at,
    "name": lambda at: f"{uuid.UUID(int=at)} of {at}",
    "price": lambda at: f"{at}.50",
    "seen": lambda at: f"2026-01-01T00:00:{at % 60:02d}Z",
    "pair": lambda at: [f"é {at}", at],
    "rates": lambda at: [["eur", at / 4], ["usd", 1.5]],
    "id": lambda at: str(uuid.UUID(int=at << 64 | at)),
}


def updates() -> Iterator[Entry]:
    for at, key in enumerate(KEYS):
        for name, value in VALUES.items():
            yield {"state": name, "do": "update", "key": key, "value": value(at)}
        yield {"state": "names", "do": "add_all", "key": key, "value": ["a", key]}
        yield {"state": "counts", "do": "put", "key": key, "map_key": "m", "value": at}
        timer = {"service": "user-timers", "kind": "event-timer", "ts": 10_000 + at}
        yield {**timer, "do": "register", "key": key}


EVERY = [{"op": "ten", **update} for update in updates()]
LATER: list[Entry] = [
    {"op": "ten", "key": KEYS[0], "state": "id", "do": "update", "value": VALUES["id"](7)},
    {"op": "ten", "key": "new", "state": "n", "do": "update", "value": 1},
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The native savepoint of the job in Flink 1.20.5."""
    work = tmp_path_factory.mktemp("old")
    checker = FlinkChecker(work, jars_of(OLD_RELEASE))
    try:
        taken = checker.restore(
            None,
            JOB,
            backend="rocksdb",
            parallelism=2,
            max_parallelism=128,
            updates=EVERY,
            savepoint_to=work / "savepoints",
            savepoint_format="native",
            settings={"execution.checkpointing.data-inline-threshold": "0"},
        )
    finally:
        checker.close()
    assert taken.savepoint is not None
    return Path(taken.savepoint.removeprefix("file:"))


def held(*later: Entry) -> list[str]:
    model = Model("ten", STATES)
    model.apply([*EVERY, *later])
    return texts(model.entries())


@pytest.mark.parametrize("files", ["share", "copy"])
def test_the_files_of_one_state_are_read_and_written(
    flink: FlinkChecker,
    source: Path,
    tmp_path: Path,
    files: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(folder, "DATA_INLINE_THRESHOLD", 0)
    loaded, reads = counted_snapshot(source)
    upgrade = SavepointUpgrade(
        loaded, files=files, format="native", types={"ten/id": "java.util.UUID"}
    )
    upgrade.write(tmp_path / "out")
    after = Snapshot.load(tmp_path / "out", allow_roots=[str(source)])
    assert {state for _, state in upgrade.converted} == {KRYO.name}
    assert verify_snapshot(after).findings == []
    files_of_states = families(Snapshot.load(source))
    read = {name: files_of_states[name] for name in reads.reads if name in files_of_states}
    new = {name: own for name, own in families(after).items() if name not in files_of_states}
    if files == "share":
        assert {*read.values()} == {*new.values()} == {KRYO.name}

    restored = flink.restore(
        tmp_path / "out",
        JOB,
        backend="rocksdb",
        parallelism=3,
        updates=LATER,
        checkpoints=2,
        savepoint_to=tmp_path / "savepoints",
    )
    assert texts(restored.entries, "kg") == held()
    for place in (restored.savepoint, restored.checkpoints[-1]):
        again = flink.restore(place, JOB, backend="rocksdb")
        assert texts(again.entries, "kg") == held(*LATER)
