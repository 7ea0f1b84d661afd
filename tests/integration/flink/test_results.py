"""Every kind of result that keeps files of RocksDB, in real Flink: restored with NO_CLAIM and with
CLAIM, at two parallelisms, checkpointed, subsumed, and saved. Nothing of the source changes.

Results of ``upgraded`` are of Flink 1.20: one of their states has values of Kryo.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.savepoint import Migration, SavepointMigration
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from tests.command_line import run
from tests.integration.flink.checker import (
    Entry,
    FlinkChecker,
    Java,
    Operator,
    State,
    TimerService,
    Windows,
    compile_checker,
)
from tests.integration.flink.model import Model, texts
from tests.integration.flink.releases import RELEASES, jars_of
from tests.integration.flink.test_edits_without_data import digests, of

__all__ = ["run"]
pytestmark = pytest.mark.flink

NEVER_MS = 1 << 40
STATES = [
    State("n", "value", "long"),
    State("names", "list", "string"),
    State("m", "map", "long", map_key="string"),
    State("fresh", "value", "long", ttl_ms=NEVER_MS),
    State("fresh-map", "map", "long", map_key="string", ttl_ms=NEVER_MS),
]
EXTRA = State("x", "value", "long")
ACCOUNT = State("account", "value", "account")
"""A POJO with a list and a map, which are values of Kryo in Flink 1."""
ELEMENTS = [
    State("elements", "op-list", "string"),
    State("rules", "op-broadcast", "long", map_key="string"),
]
KEYS = [f"key-{number}" for number in range(200)]
GONE = KEYS[::7]
SMALL = 90
WINDOW_MS = 1000
TIMERS = 50
WINDOWS = 20
INGEST = {"state.backend.rocksdb.use-ingest-db-restore-mode": "true"}
FIRST: list[Entry] = [
    *({"key": key, "state": "n", "do": "update", "value": n} for n, key in enumerate(KEYS)),
    *({"key": key, "state": "names", "do": "add_all", "value": ["a", "é", key]} for key in KEYS),
    *({"key": key, "state": "fresh", "do": "update", "value": 5} for key in KEYS[:80]),
    *(
        {"key": key, "state": state, "do": "put", "map_key": f"m{number}", "value": number}
        for key in KEYS[:60]
        for number in range(3)
        for state in ("m", "fresh-map")
    ),
    *(
        {"key": key, "service": "user-timers", "kind": "event-timer", "do": "register", "ts": n + 1}
        for n, key in enumerate(KEYS[:TIMERS])
    ),
]
LATER: list[Entry] = [
    *({"key": key, "state": "n", "do": "update", "value": 100 + n} for n, key in enumerate(KEYS)),
    *({"key": key, "state": "m", "do": "put", "map_key": "new", "value": 1} for key in KEYS[:9]),
]
OTHERS: list[Entry] = [
    *of("other", [{"key": key, "state": "x", "do": "update", "value": 7} for key in KEYS[:30]]),
    *({"op": "windows", "key": key, "value": 3, "ts": 10} for key in KEYS[:WINDOWS]),
    {"op": "list", "state": "elements", "do": "add", "value": "one"},
    {"op": "list", "state": "rules", "do": "put", "map_key": "r", "value": 1},
]


ACCOUNTS: list[Entry] = [
    {
        "key": key,
        "state": "account",
        "do": "update",
        "value": {
            "amount": n,
            "level": n if n % 2 else None,
            "owner": key,
            "rates": [["EUR", n / 2], ["USD", 1.0]],
            "tags": ["a", None, key][: n % 4],
        },
    }
    for n, key in enumerate(KEYS[:70])
]
LATER_ACCOUNTS: list[Entry] = [{**each, "key": f"new {n}"} for n, each in enumerate(ACCOUNTS[:5])]


def job(*keyed: Operator) -> list[Operator]:
    return [
        *keyed,
        Operator("list", operator_states=ELEMENTS),
        Operator("windows", windows=Windows("tumbling", "aggregate", size=WINDOW_MS)),
    ]


def keyed(uid: str, states: Sequence[State]) -> Operator:
    return Operator(uid, "string", states, [TimerService()])


OTHER = Operator("other", "string", [EXTRA])
JOB = job(keyed("old", STATES), OTHER)
FLOAT = replace(STATES[0], type="double")


def names_of(entry: Entry) -> tuple[str, str]:
    return entry["op"], entry.get("state", "timers")


@dataclass(frozen=True)
class Result:
    """A kind of result.

    Args:
        options: Of ``dstl rewrite``; none of a migration or an upgrade.
        operators: The job that restores it.
        names: Operator and state to those of the result; None: it is gone.
        value: The value of ``n`` after it.
        is_left: Whether an entry is left.
    """

    options: Sequence[str]
    operators: Sequence[Operator]
    names: Mapping[tuple[str, str], tuple[str, str] | None] = field(default_factory=dict)
    value: Callable[[Any], Any] = int
    is_left: Callable[[Entry], bool] = lambda entry: True

    def of(self, entry: Entry) -> Entry | None:
        """What becomes of an entry or an update."""
        place = self.names.get(names_of(entry), names_of(entry))
        if place is None or not self.is_left(entry):
            return None
        new = {**entry, "op": place[0]}
        if "state" in entry:
            new["state"] = place[1]
        if entry.get("state") == "n" and "value" in entry:
            new["value"] = self.value(entry["value"])
        return new


def every(old: str, new: str) -> dict[tuple[str, str], tuple[str, str] | None]:
    return {(old, name): (new, name) for name in [*(s.name for s in STATES), "timers"]}


def is_kept(entry: Entry) -> bool:
    is_old = entry["op"] == "old"
    is_small = is_old and entry.get("state") == "n" and entry["value"] < SMALL
    return not (is_old and entry["key"] in GONE) and not is_small


RESULTS = {
    "renamed": Result(["--rename=old=new"], job(keyed("new", STATES), OTHER), every("old", "new")),
    "states": Result(
        ["--rename-state=old/n=count", "--drop-state=old/names"],
        job(keyed("old", [replace(STATES[0], name="count"), *STATES[2:]]), OTHER),
        {("old", "n"): ("old", "count"), ("old", "names"): None},
    ),
    "purged": Result(
        ["--erase-keys=old=KEYS", f"--where=old/n=value >= {SMALL}"], JOB, is_left=is_kept
    ),
    "split": Result(
        ["--split=old/n=apart", "--split=old/fresh=apart"],
        job(
            keyed("old", [STATES[1], STATES[2], STATES[4]]),
            Operator("apart", "string", [STATES[0], STATES[3]]),
            OTHER,
        ),
        {("old", "n"): ("apart", "n"), ("old", "fresh"): ("apart", "fresh")},
    ),
    "merged": Result(
        ["--merge=other=old"],
        job(keyed("old", [*STATES, EXTRA])),
        {("other", "x"): ("old", "x")},
    ),
    "migrated": Result([], job(keyed("old", [FLOAT, *STATES[1:]]), OTHER), value=float),
    "upgraded": Result([], job(keyed("old", [*STATES, ACCOUNT]), OTHER)),
}
SETTINGS: dict[str, dict[str, str]] = {
    "plain": {},
    "file merging": {"execution.checkpointing.file-merging.enabled": "true"},
    "heap timers": {"state.backend.rocksdb.timer-service.factory": "HEAP"},
    "changelog": {"state.changelog.enabled": "true"},
}
RESULTS_OF = {
    "plain": list(RESULTS),
    "file merging": list(RESULTS),
    "heap timers": list(RESULTS),
    # A log has the names of states between its records.
    "changelog": [name for name in RESULTS if name != "states"],
}
CASES = [
    pytest.param(kind, name, marks=() if kind == "plain" else pytest.mark.soak)
    for kind in SETTINGS
    for name in RESULTS_OF[kind]
]


def first_of(name: str) -> list[Entry]:
    """What the job of before gets, without the updates of other operators."""
    return [*FIRST, *(ACCOUNTS if name == "upgraded" else [])]


def later_of(name: str) -> list[Entry]:
    """What the job of after gets, with the names of before."""
    return [*LATER, *(LATER_ACCOUNTS if name == "upgraded" else [])]


def expected(result: Result, updates: Sequence[Entry], later: Sequence[Entry] = ()) -> list[str]:
    """What is held after some updates of the job of before, the changes of the result, and later
    updates.
    """
    if later:
        updates = [each for each in updates if result.is_left({"value": 0, **each})]
        result, updates = replace(result, is_left=lambda entry: True), [*updates, *later]
    entries: list[Entry] = []
    for uid, states in (("old", [*STATES, ACCOUNT]), ("other", [EXTRA])):
        model = Model(uid, states)
        model.apply(update for update in updates if update["op"] == uid)
        entries += model.entries()
    changed = (result.of(entry) for entry in entries)
    return texts(entry for entry in changed if entry is not None)


def plain(value: Any) -> Any:
    """A value without the time of its last access."""
    if isinstance(value, dict):
        return value.get("v", value)
    return [[key, plain(own)] for key, own in value] if is_map(value) else value


def is_map(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], list)


def shown(entries: Sequence[Entry]) -> list[str]:
    """Keyed entries as the model has them."""
    keyed_ones = (
        entry
        for entry in entries
        if not entry["kind"].startswith("op-") and entry["op"] != "windows"
    )
    kept = [
        {**entry, "value": plain(entry["value"])} if "value" in entry else entry
        for entry in keyed_ones
    ]
    return texts(kept, "kg")


def logs_of(checkpoint: Path) -> Path:
    """The folder with the logs of all jobs of a checker."""
    return checkpoint.parents[2] / "changelog"


def without_notes(checkpoints: Sequence[Path]) -> dict[str, str]:
    """The digests of the files of jobs, with their logs."""
    jobs = [each.parent for each in checkpoints]
    folders = [*jobs, *(logs_of(each) / each.parent.name for each in checkpoints)]
    every = (
        (f"{folder}/{name}", own) for folder in folders for name, own in digests(folder).items()
    )
    return {name: own for name, own in every if "_dstl_shared_" not in name}


class Sources:
    """What a release of Flink wrote, once for each of its settings.

    Args:
        flink: The release that restores results, and writes what is no result of an upgrade.
        folder: For what it writes.
        release: Its number.
    """

    def __init__(self, flink: FlinkChecker, folder: Path, release: str = "2.2.1") -> None:
        self.flink = flink
        self.line = release.rpartition(".")[0]
        self._folder = folder
        self._paths: dict[tuple[str, bool], list[Path]] = {}
        self._template: str | None = None
        self._flink_1: FlinkChecker | None = None

    def checkpoints(self, kind: str, name: str) -> list[Path]:
        """The checkpoint, behind those of other jobs whose files it has."""
        is_old = name == "upgraded"
        if (kind, is_old) not in self._paths:
            self._paths[kind, is_old] = [*map(Path, self._written(kind, name))]
        return self._paths[kind, is_old]

    def _written(self, kind: str, name: str) -> list[str]:
        is_old = name == "upgraded"
        flink = self.flink_1 if is_old else self.flink
        operators = RESULTS["upgraded"].operators if is_old else JOB
        updates = of("old", first_of(name))
        settings = {**SETTINGS[kind], "state.changelog.enabled": "false"}
        # The files of a job without a log become the base of one with it.
        cut = len(updates) // 2 if kind == "changelog" else len(updates)
        written = flink.restore(
            None,
            operators,
            backend="rocksdb",
            parallelism=2,
            max_parallelism=128,
            updates=[*updates[:cut], *OTHERS],
            checkpoints=2,
            settings=settings,
        ).checkpoints[-1]
        if kind != "changelog":
            return [written]
        claimed = flink.restore(
            written,
            operators,
            backend="rocksdb",
            parallelism=2,
            updates=updates[cut:],
            checkpoints=2,
            claim_mode="CLAIM",
            settings=SETTINGS[kind],
        ).checkpoints[-1]
        return [written, claimed]

    @property
    def flink_1(self) -> FlinkChecker:
        if self._flink_1 is None:
            work = self._folder / "flink-1"
            work.mkdir()
            self._flink_1 = FlinkChecker(work, jars_of(RELEASES[0]))
        return self._flink_1

    def jar(self) -> Path:
        """The classes of the job of Flink 1.20."""
        path = self._folder / "job.jar"
        if not path.exists():
            classes = compile_checker(Java.find(), jars_of(RELEASES[0]))
            with zipfile.ZipFile(path, "w") as jar:
                jar.write(classes / "dstl/check/Account.class", "dstl/check/Account.class")
        return path

    def close(self) -> None:
        if self._flink_1 is not None:
            self._flink_1.close()

    def template(self) -> str:
        if self._template is None:
            saved = self.flink.restore(
                None,
                RESULTS["migrated"].operators,
                max_parallelism=128,
                savepoint_to=self._folder / "template",
            ).savepoint
            assert saved is not None
            self._template = saved
        return self._template


@pytest.fixture(scope="module")
def sources(flink: FlinkChecker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sources]:
    sources = Sources(flink, tmp_path_factory.mktemp("sources"))
    yield sources
    sources.close()


def write(run: Any, sources: Sources, kind: str, name: str, out: Path, files: Any) -> None:
    path = sources.checkpoints(kind, name)[-1]
    result, logs, jobs = RESULTS[name], str(logs_of(path)), str(path.parents[1])
    if name == "upgraded":
        source = Snapshot.load(path, jars=[sources.jar()], changelog_base=logs, allow_roots=[jobs])
        upgrade = SavepointUpgrade(source, sources.line, files=files, format="native")
        upgrade.write(out)
        assert {state for _, state in upgrade.converted} == {"account"}
        return
    if name == "migrated":
        declared = {"old": {"states": {"n": {"from": "n", "value": "cast(value, DOUBLE)"}}}}
        SavepointMigration(
            Migration.of({"migration": 1, "operators": declared}),
            Snapshot.load(path, changelog_base=logs, allow_roots=[jobs]),
            Snapshot.load(sources.template()),
            format="native",
            files=files,
        ).write(out)
        return
    keys = out.with_suffix(".keys")
    keys.write_text("\n".join(GONE) + "\n")
    options = [option.replace("KEYS", str(keys)) for option in result.options]
    options += [f"--{files}", f"--changelog-base={logs}", f"--allow-root={jobs}"]
    if kind == "heap timers":
        options.append("--format=native")
    code, _, error = run("rewrite", str(path), str(out), *options)
    assert (code, error) == (0, "")


def check(run: Any, sources: Sources, folder: Path, kind: str, name: str) -> None:
    flink, result, checkpoints = sources.flink, RESULTS[name], sources.checkpoints(kind, name)
    before = without_notes(checkpoints)
    shared, copied = folder / "shared", folder / "copied"
    write(run, sources, kind, name, shared, "share")
    write(run, sources, kind, name, copied, "copy")
    # A source without a uid has another hash in another job, and with merged files it has an entry.
    strict = kind != "file merging"
    unfiltered = replace(result, is_left=lambda entry: True)
    later = of("old", later_of(name))
    updates = [new for each in later if (new := unfiltered.of(each)) is not None]
    first = [*of("old", first_of(name)), *OTHERS]
    # A job with a log takes no checkpoint after NO_CLAIM.
    without_log = {**SETTINGS[kind], "state.changelog.enabled": "false"}
    if kind == "heap timers":  # the other job has them in RocksDB
        without_log |= {"state.backend.rocksdb.timer-service.factory": "ROCKSDB"}

    restored = flink.restore(
        shared,
        result.operators,
        backend="rocksdb",
        parallelism=3,
        updates=updates,
        checkpoints=2,
        savepoint_to=folder / "savepoints",
        claim_mode="NO_CLAIM",
        settings={**without_log, **INGEST},
        strict=strict,
    )
    assert shown(restored.entries) == expected(result, first)
    assert restored.savepoint is not None
    # The metadata of Flink 1 have no uids.
    by_uid = Snapshot.load(restored.savepoint)
    uids = [str(operator.uid) for operator in result.operators if operator.key]
    saved = [{**line, "op": uid} for uid in uids for line in by_uid[uid].dump()]
    assert shown(saved) == expected(result, first, later)
    lists = sorted(str(e["value"]) for e in restored.entries if e["kind"].startswith("op-"))
    assert lists == ["['one']", "[['r', 1]]"]

    timers = sum('"service"' in entry for entry in expected(result, first))
    claimed = flink.restore(
        copied,
        result.operators,
        backend="rocksdb",
        parallelism=2,
        updates=updates,
        checkpoints=3,
        claim_mode="CLAIM",
        watermark=10 * WINDOW_MS,
        fires=timers + WINDOWS,
        settings=SETTINGS[kind],
        strict=strict,
    )
    assert shown(claimed.entries) == expected(result, first)
    windows = [fired for fired in claimed.fired if fired["op"] == "windows"]
    assert (len(claimed.fired), len(windows)) == (timers + WINDOWS, WINDOWS)
    assert {str(fired["value"]) for fired in windows} == {"[[3, 1]]"}
    # Flink owned the copy, and a newer checkpoint has subsumed it. With a log, it is the base of
    # the newer ones.
    assert (copied / "_metadata").exists() == (kind == "changelog")
    assert without_notes(checkpoints) == before
    last = flink.restore(
        restored.checkpoints[-1], result.operators, backend="rocksdb", strict=strict
    )
    assert shown(last.entries) == expected(result, first, later)


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_result_is_restored_and_nobody_is_harmed(
    sources: Sources, run: Any, tmp_path: Path, kind: str, name: str
) -> None:
    check(run, sources, tmp_path, kind, name)


@pytest.fixture(scope="module", params=[each for each in RELEASES if each != "2.1.3"])
def sources_of_release(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sources]:
    work = tmp_path_factory.mktemp("release")
    flink = FlinkChecker(work, jars_of(request.param))
    sources = Sources(flink, work, request.param)
    yield sources
    sources.close()
    flink.close()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in SETTINGS for name in RESULTS_OF[kind]]
)
def test_other_releases_restore_their_own_results(
    sources_of_release: Sources, run: Any, tmp_path: Path, kind: str, name: str
) -> None:
    if name == "upgraded" and sources_of_release.line.startswith("1."):
        return  # no upgrade leads there
    check(run, sources_of_release, tmp_path, kind, name)


BRIEF = State("brief", "value", "long", ttl_ms=1)
"""Its values have expired when anybody looks."""
EXPIRING = [Operator("old", "string", [STATES[0], BRIEF])]
COMPACTIONS = {
    # The last level is the first one that files of level 0 are merged into.
    "state.backend.rocksdb.compaction.level.use-dynamic-size": "true",
    "state.backend.rocksdb.writebuffer.size": "64kb",
}
KEPT_AND_WRITTEN = [["--checkpoint-id=41", "--copy"], ["--format=native"]]


@pytest.mark.soak
@pytest.mark.parametrize("options", KEPT_AND_WRITTEN)
def test_flink_drops_expired_values_of_files_that_dstl_wrote(
    flink: FlinkChecker, run: Any, tmp_path: Path, options: list[str]
) -> None:
    """Compactions of RocksDB leave out what has expired: by the header, which dstl wrote."""
    check_expired_values(flink, run, tmp_path, options)


@pytest.mark.soak
@pytest.mark.parametrize("options", KEPT_AND_WRITTEN)
def test_other_releases_drop_expired_values(
    release: FlinkChecker, run: Any, tmp_path: Path, options: list[str]
) -> None:
    check_expired_values(release, run, tmp_path, options)


def check_expired_values(flink: FlinkChecker, run: Any, tmp_path: Path, options: list[str]) -> None:
    both: list[Entry] = [
        {"op": "old", "key": key, "state": state, "do": "update", "value": n}
        for n, key in enumerate(KEYS)
        for state in ("n", "brief")
    ]
    is_native = options[0] == "--format=native"
    written = flink.restore(
        None,
        EXPIRING,
        backend="rocksdb",
        parallelism=2,
        updates=both,
        checkpoints=0 if is_native else 2,
        savepoint_to=tmp_path if is_native else None,
    )
    source = written.savepoint if is_native else written.checkpoints[-1]
    code, _, error = run("rewrite", str(source), str(tmp_path / "out"), *options)
    assert (code, error) == (0, "")
    more: list[Entry] = [
        {"op": "old", "key": f"later {n}", "state": "brief", "do": "update", "value": n}
        for n in range(15_000)
    ]

    restored = flink.restore(
        tmp_path / "out",
        EXPIRING,
        backend="rocksdb",
        parallelism=2,
        updates=more,
        checkpoints=3,
        savepoint_to=tmp_path / "savepoints",
        settings=COMPACTIONS,
    )

    kept = [entry for entry in restored.entries if entry["state"] == "brief"]
    assert {entry["key"] for entry in kept} == set(KEYS)
    assert restored.savepoint is not None
    saved = list(Snapshot.load(restored.savepoint)["old"].dump())
    values = {entry["key"]: entry["value"] for entry in saved if entry["state"] == "n"}
    assert values == {key: n for n, key in enumerate(KEYS)}
    left = {entry["key"] for entry in saved if entry["state"] == "brief"}
    assert not left & set(KEYS)
