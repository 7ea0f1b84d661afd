"""``upgrade --drop``: real Flink 2.2.1 restores what is left, and finds nothing of what is gone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dstl_core import Snapshot
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.edit.upgrade import BLOCKED, SavepointUpgrade
from tests.golden_files import GOLDEN, entries_of
from tests.integration.flink.checker import (
    Entry,
    FlinkChecker,
    FlinkRestoreError,
    Operator,
    State,
    TimerService,
)
from tests.integration.flink.test_upgrades import class_of, held
from tests.unit.savepoint.test_job_values import JOBS, lines, savepoint

pytestmark = pytest.mark.flink

SCALA = GOLDEN / "scala-jobs"
SHAPES = [("hashmap", 1), ("hashmap", 3), ("rocksdb", 1), ("rocksdb", 3)]
COUNTED = "74465f2ac40367e2bd0fa8fbbc306682"
INTEGER_KEYS = "7a70d3f3dc54f5f4255bb2cadf67d7a6"


def without_blocked(source: Path, out: Path) -> Snapshot:
    """The upgraded savepoint without what no Flink 2 reads, dropped as the plan names it, and
    without values of Kryo, which stand for classes of Scala.
    """
    loaded = Snapshot.load(source)
    blocked = [
        f"{step.operator}/{step.state}"
        for step in SavepointUpgrade(loaded).plan()
        if step.action == BLOCKED or "Kryo<" in step.old
    ]
    assert blocked
    return Snapshot.load(SavepointUpgrade(loaded, drop=blocked).write(out))


def texts(entries: list[Entry]) -> list[str]:
    """Entries in any order; which key group a key is in follows from the key."""
    kept = [{name: each[name] for name in each if name != "kg"} for each in entries]
    return sorted(json.dumps(each, sort_keys=True) for each in kept)


def counted() -> list[Entry]:
    """What ``Scala.java`` does with the numbers below 24, without its states of Scala."""
    keys = [f"user-{number % 7}" for number in range(24)]
    common = {"op": COUNTED, "ns": None}
    counts: list[Entry] = [
        {**common, "kind": "value", "state": "count", "key": key, "value": keys.count(key)}
        for key in set(keys)
    ]
    timers: list[Entry] = [
        {**common, "kind": "event-timer", "service": "user-timers", "key": key, "ts": 9_000_000 + n}
        for n, key in enumerate(keys)
    ]
    return counts + timers


@pytest.mark.parametrize(("backend", "parallelism"), SHAPES)
@pytest.mark.parametrize("form", ["canonical", "native", "rocksdb"])
def test_the_other_states_of_the_operator_are_as_they_were(
    flink: FlinkChecker, tmp_path: Path, form: str, backend: str, parallelism: int
) -> None:
    [source] = (SCALA / form).glob("savepoint-*")
    left = without_blocked(source, tmp_path / "out")
    operator = Operator(
        hash=COUNTED,
        key="string",
        states=[State("count", "value", "long")],
        timers=[TimerService()],
    )
    restored = flink.restore(
        left.folder.path, [operator], backend=backend, parallelism=parallelism
    ).entries
    assert texts(restored) == texts(counted())


@pytest.mark.parametrize(("backend", "parallelism"), SHAPES)
def test_operators_whose_keys_are_of_scala_are_gone_and_the_others_are_whole(
    flink: FlinkChecker, tmp_path: Path, backend: str, parallelism: int
) -> None:
    """Strict: Flink refuses state that no operator of the job claims."""
    [source] = (SCALA / "keys").glob("savepoint-*")
    left = without_blocked(source, tmp_path / "out")
    operator = Operator(
        hash=INTEGER_KEYS, key="int", states=[State("n", "value", "long")], timers=[TimerService()]
    )
    restored = flink.restore(
        left.folder.path, [operator], backend=backend, parallelism=parallelism
    ).entries
    truth = [
        entry
        for entry in json.loads((SCALA / "keys" / "truth.json").read_bytes())["entries"]
        if entry["op"] == INTEGER_KEYS and entry.get("state") != "last"
    ]
    assert {each["kind"] for each in truth} >= {"value", "proc-timer"}
    assert texts(restored) == texts(truth)


@pytest.mark.parametrize("job", ["orders", "colls", "adt"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_timers_are_whole_where_every_state_is_of_scala(
    flink: FlinkChecker, tmp_path: Path, job: str, backend: str
) -> None:
    """Of ``colls`` an array is left, too, whose header Flink reads."""
    [source] = (SCALA / job).glob("savepoint-*")
    left = without_blocked(source, tmp_path / "out")
    [keyed] = [each for each in left.operators if each.key_type is not None]
    key = {"String": "string", "Integer": "int"}[keyed.key_type.serializer.type_name]
    operator = Operator(hash=keyed.operator_id.hex, key=key, timers=[TimerService()])
    restored = flink.restore(left.folder.path, [operator], backend=backend, parallelism=2).entries
    truth = json.loads((SCALA / job / "truth.json").read_bytes())["entries"]
    timers = [each for each in truth if each["kind"].endswith("timer")]
    assert texts([each for each in restored if each["kind"].endswith("timer")]) == texts(timers)


@pytest.mark.parametrize("form", ["canonical", "native", "rocksdb", "keys", "orders"])
def test_flink_refuses_what_is_blocked(flink: FlinkChecker, tmp_path: Path, form: str) -> None:
    [source] = (SCALA / form).glob("savepoint-*")
    keyed = [each for each in Snapshot.load(source).operators if each.key_type is not None]
    backend = "rocksdb" if form == "rocksdb" else "hashmap"
    for old_operator in keyed:
        operator = Operator(
            hash=old_operator.operator_id.hex, key="string", timers=[TimerService()]
        )
        with pytest.raises(FlinkRestoreError):
            flink.restore(source, [operator], backend=backend, strict=False)


# -------------------------------------------------------------------------------- whole jobs


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkChecker]:
    """Real Flink with the classes of all jobs."""
    jars = [job / "job.jar" for job in JOBS]
    checker = FlinkChecker(tmp_path_factory.mktemp("flink"), job_jars=jars)
    yield checker
    checker.close()


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_job_goes_on_without_a_half_of_its_states(
    jobs: FlinkChecker, tmp_path: Path, job: Path, part: int
) -> None:
    source = Snapshot.load(savepoint(job), jars=[job / "job.jar"])
    every = [
        (step.operator, step.state)
        for step in SavepointUpgrade(source).plan()
        if step.state != "SourceReaderState"
    ]
    gone = set(every[part::2])
    drop = [f"{operator}/{state}" for operator, state in gone]
    upgraded = SavepointUpgrade(source, drop=drop).write(tmp_path / "up")
    taken = jobs.run_job(
        upgraded,
        class_of(job),
        savepoint_to=tmp_path / "taken",
        backend=["hashmap", "rocksdb"][part],
        parallelism=1,
    )
    truth = entries_of(job / "truth.json")
    left = [each for each in truth if not gone & set(names_of(each))]
    assert len(left) < len(truth)
    held_there = held(taken.savepoint, job)
    # The job has made its list, union and broadcast states again, without elements.
    made = {text for text in held_there if '"value": []' in text and '"kind": "op-' in text}
    assert {json.loads(text)["state"] for text in made} <= {state for _, state in gone}
    assert Counter({text: held_there[text] for text in held_there.keys() - made}) == lines(left)


TIMERS = {"event-timer": "_timer_state/event_", "proc-timer": "_timer_state/processing_"}


def names_of(entry: Entry) -> list[tuple[str, str]]:
    """Hash and state of an entry; of metadata of version 4, the truth has uids and hashes."""
    state = entry.get("state") or TIMERS[entry["kind"]] + entry["service"]
    return [(OperatorID.for_uid(entry["op"]).hex, state), (entry["op"], state)]
