"""Every option that takes a name, with names that a parser or a shell could misread.

The names replace others of the same length in the bytes that Flink wrote, or are uids that
``dstl rewrite`` gives. A command in a message is run as a shell takes it apart.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, rewrite_savepoint
from dstl_core.errors import ConfigError
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.read.snapshot_names import SnapshotNames
from tests.command_line import Ran, is_one_sentence, run
from tests.golden_files import CONNECTORS, GOLDEN, UPGRADE_JOBS, snapshot

__all__ = ["run"]

pytestmark = pytest.mark.slow

CARTS = UPGRADE_JOBS / "carts"
JAR = str(CARTS / "job.jar")
[OF_CARTS] = CARTS.glob("savepoint-*")
KEYED = "hash:62454832ddb78d1c1e9b6adbdeb8cf54"
UIDS = [
    *("a/b", "a=b", "a,b#c", "a:b", ' it\'s "a" ', "größe/日本", "$(id)`a`;b|c&d", "*?[a]\\"),
    *("-a", "--op", "uid:a", "hash:a", "name:a", "a/totals", "totals"),
]
STATES = ["x/a=b,", "a: #'\"", "$(id)`", "é/ü=", "*?\\;&|", "-x --y", "a/b/c:", "//////", "======"]
"""Names of six bytes."""


def renamed(source: Path, folder: Path, old: str, new: str) -> Path:
    """A copy of a snapshot in which other bytes of the same length have the place of a name."""
    was, now = old.encode(), new.encode()
    assert len(was) == len(now)
    shutil.copytree(source, folder)
    for file in folder.iterdir():
        raw = file.read_bytes()
        file.write_bytes(raw.replace(was, now))
    return folder


def by_shell(text: str) -> list[str]:
    """The words that a shell makes of a text."""
    script = f"printf '%s\\0' {text}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


def advised(text: str, option: str) -> list[str]:
    """The words of an option that a message gives with its value, once."""
    assert text.count(f"{option} ") == 1
    rest = text[text.index(f"{option} ") :]
    # The sign that follows in the sentence is no word for a shell.
    value = re.match(rf"{option} (('[^']*'|\"'\"|[^\s'\");])+)", rest)
    assert value is not None, text
    return by_shell(value[0])


@pytest.fixture(params=UIDS)
def uid(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=STATES)
def state(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def with_uid(source: Path, folder: Path, operator: str, uid: str) -> str:
    return rewrite_savepoint(Snapshot.load(source), folder, rename={operator: uid})


def by_hash(path: str, uid: str) -> str:
    return f"hash:{Snapshot.load(path)[f'uid:{uid}'].operator_id.hex}"


def actions(ran: Ran) -> dict[tuple[str, str], str]:
    states = json.loads(ran.out)["states"]
    return {(each["operator"], each["state"]): each["action"] for each in states}


# ------------------------------------------------------------------------------------ upgrade


def dropped(ran: Ran) -> list[tuple[str, str]]:
    assert ran.code in (0, 1), ran.err
    return [key for key, action in actions(ran).items() if action == "drop"]


def test_upgrade_drops_a_state_of_an_operator(run: Any, tmp_path: Path, uid: str) -> None:
    path = with_uid(OF_CARTS, tmp_path / "in", KEYED, uid)
    for name in (f"{uid}/totals", f"uid:{uid}/totals", f"{by_hash(path, uid)}/totals"):
        states = dropped(run("upgrade", path, "--plan", "--json", f"--drop={name}", "--jar", JAR))
        assert states == [(uid, "totals")]


def test_upgrade_drops_a_state_of_any_name(run: Any, tmp_path: Path, state: str) -> None:
    path = str(renamed(OF_CARTS, tmp_path / "in", "totals", state))
    label = KEYED.removeprefix("hash:")
    for name in (state, f"{label}/{state}", f"{KEYED}/{state}"):
        ran = run("upgrade", path, "--plan", "--json", f"--drop={name}", "--jar", JAR)
        assert dropped(ran) == [(label, state)]


def test_upgrade_says_which_states_there_are(run: Any, tmp_path: Path, state: str) -> None:
    path = str(renamed(OF_CARTS, tmp_path / "in", "totals", state))
    for option in ("--drop=a/nothing", "--type=a/nothing=List<String>"):
        ran = run("upgrade", path, "--plan", option, "--jar", JAR)
        assert (ran.code, is_one_sentence(ran.err)) == (2, True)
        assert "no state has the name 'a/nothing'" in ran.err
        assert "/items'" in ran.err


def test_the_type_that_a_plan_asks_for_is_given_as_it_says(
    run: Any, tmp_path: Path, state: str
) -> None:
    """The jar has the descriptor of the state by its old name, so that the type is not known."""
    path = str(renamed(OF_CARTS, tmp_path / "in", "totals", state))
    arguments = ("upgrade", path, "--plan", "--json", "--jar", JAR)
    key = (KEYED.removeprefix("hash:"), state)
    ran = run(*arguments)
    assert (ran.code, actions(ran)[key]) == (1, "blocked")
    [reason] = [each["reason"] for each in json.loads(ran.out)["states"] if each["state"] == state]
    option, value = advised(reason, "--type")
    ran = run(*arguments, option, value.replace("Map<.., ..>", "Map<String, Long>"))
    assert (ran.code, actions(ran)[key]) == (0, "convert"), ran
    ran = run(*arguments, f"--type={state}=Map<String, Long>")
    assert (ran.code, actions(ran)[key]) == (0, "convert")


def test_a_type_goes_to_the_state_of_one_operator(run: Any, tmp_path: Path, uid: str) -> None:
    path = with_uid(
        renamed(OF_CARTS, tmp_path / "old", "totals", "totalz"), tmp_path / "in", KEYED, uid
    )
    types = [f"--type={uid}/totalz=Map<String, Long>", "--type=totalz=Map<Long, Long>"]
    arguments = ("upgrade", path, "--plan", "--json", "--jar", JAR)
    for options in (types, types[::-1]):
        ran = run(*arguments, *options)
        [new] = [each["new"] for each in json.loads(ran.out)["states"] if each["state"] == "totalz"]
        assert new == "Nullable<Map<Nullable<String>, Long>>"
    again = f"--type={by_hash(path, uid)}/totalz=Map<String, Long>"
    ran = run(*arguments, types[0], again)
    assert (ran.code, "is given twice" in ran.err) == (2, True), ran
    assert is_one_sentence(ran.err)


def test_a_name_with_two_readings_is_refused(run: Any, tmp_path: Path) -> None:
    """The state ``pair`` of the operator ``x``, and a state with the name ``x/pair``."""
    apart = renamed(OF_CARTS, tmp_path / "old", "nested", "x/pair")
    path = with_uid(apart, tmp_path / "in", KEYED, "x")
    ran = run("upgrade", path, "--plan", "--json", "--drop=x/pair", "--jar", JAR)
    assert (ran.code, is_one_sentence(ran.err)) == (2, True)
    assert "is ambiguous: 'x/pair' is state 'x/pair', or 'x', state 'pair'" in ran.err
    loaded = Snapshot.load(path)
    text = SnapshotNames(loaded).text_of(loaded["x"], "pair")
    assert text == f"{by_hash(path, 'x')}/pair"
    for name, state in ((text, "pair"), ("x/x/pair", "x/pair")):
        ran = run("upgrade", path, "--plan", "--json", f"--drop={name}", "--jar", JAR)
        assert dropped(ran) == [("x", state)]


# ------------------------------------------------------------------------ offsets, committables

COUNTS = snapshot("a-hashmap-canonical")
UNION = GOLDEN / "union-growth" / "restored"
KAFKA = CONNECTORS / "c-kafka" / "savepoint"
FILE_SINK = CONNECTORS / "c-filesink" / "savepoint"


def moved(ran: Ran) -> list[tuple[str, str, str]]:
    assert ran.code == 0, ran.err
    return [(each["op"], each["split"], each["new"]) for each in json.loads(ran.out)["moved"]]


def test_offsets_set_a_split_of_any_name(run: Any, tmp_path: Path, state: str) -> None:
    path = str(renamed(KAFKA, tmp_path / "in", "orders", state))
    for name in (f"{state}/0", f"source:{state}/0", f"uid:source:{state}/0"):
        out = str(tmp_path / "out")
        ran = run("offsets", path, f"--set={name}=5", f"--out={out}", "--overwrite", "--json")
        assert moved(ran) == [("source", f"{state}/0", "5")]


def test_offsets_set_a_split_of_an_operator(run: Any, tmp_path: Path, uid: str) -> None:
    path = with_uid(KAFKA, tmp_path / "in", "source", uid)
    for name in (f"{uid}:orders/0", f"uid:{uid}:orders/0", f"{by_hash(path, uid)}:orders/0"):
        out = str(tmp_path / "out")
        ran = run("offsets", path, f"--set={name}=5", f"--out={out}", "--overwrite", "--json")
        assert moved(ran) == [(uid, "orders/0", "5")]
    out = str(tmp_path / "none")
    ran = run("offsets", path, f"--set={uid}:orders/77=5", f"--out={out}")
    assert (ran.code, is_one_sentence(ran.err)) == (2, True)
    assert f"{f'{uid}:orders/1'!r}" in ran.err.encode().decode("utf-8")
    ran = run("offsets", path, f"--set={uid}:orders/0=5", "--set=orders/0=6", f"--out={out}")
    assert (ran.code, is_one_sentence(ran.err)) == (2, True)
    assert "given twice for split 'orders/0': '5' and '6'" in ran.err


def test_committables_of_an_operator_are_dropped(run: Any, tmp_path: Path, uid: str) -> None:
    path = with_uid(FILE_SINK, tmp_path / "in", "Sink Committer: sink", uid)
    kept = len(run("committables", path, "--json").lines)
    for name in (uid, f"uid:{uid}", by_hash(path, uid)):
        out = str(tmp_path / "out")
        arguments = (f"--op={name}", f"--out={out}", "--overwrite", "--json")
        ran = run("committables", path, "--drop=all", *arguments)
        assert (ran.code, json.loads(ran.out)["kept"]) == (0, 0), ran.err
        assert json.loads(ran.out)["dropped"] == kept
    ran = run("committables", path, "--drop=all", f"--op={uid}x", f"--out={tmp_path / 'none'}")
    assert (ran.code, is_one_sentence(ran.err)) == (2, True)
    assert repr(uid) in ran.err


def test_committables_are_dropped_by_the_name_of_their_sink(
    run: Any, tmp_path: Path, uid: str
) -> None:
    """The table of commits shows it."""
    renames = {"Sink Committer: sink": f"Sink Committer: {uid}", "sink": uid}
    path = rewrite_savepoint(Snapshot.load(FILE_SINK), tmp_path / "in", rename=renames)
    assert {each["sink"] for each in run("committables", path, "--json").lines} == {uid}
    arguments = (f"--op={uid}", f"--out={tmp_path / 'out'}", "--json")
    ran = run("committables", path, "--drop=all", *arguments)
    assert (ran.code, json.loads(ran.out)["kept"]) == (0, 0), ran.err
    ran = run("committables", path, "--drop=all", "--op=source", f"--out={tmp_path / 'none'}")
    assert (ran.code, is_one_sentence(ran.err)) == (2, True)
    assert "Operator 'source' has no committables" in ran.err


# ------------------------------------------------------------------------------------ report


TTL = snapshot("e-ttl-hashmap")


def times_to_live(ran: Ran, uid: str) -> dict[str, int | None]:
    """The time to live that a report counts with, by state with one."""
    assert ran.code == 0, ran.err
    [operator] = [each for each in json.loads(ran.out)["operators"] if each["uid"] == uid]
    states = operator["contents"]["states"]
    return {each["name"]: each["ttl"]["ttl_ms"] for each in states if each["ttl"] is not None}


HOUR = 3_600_000


@pytest.mark.parametrize("name", ["a/b=c", "a: #'", "$(i)`", "\u00e9/\u00fc", "-x --", "====="])
def test_report_counts_what_has_expired_of_a_state(run: Any, tmp_path: Path, name: str) -> None:
    path = str(renamed(TTL, tmp_path / "in", "names", name))
    for form in (name, f"e-ttl/{name}", f"uid:e-ttl/{name}", f"{by_hash(path, 'e-ttl')}/{name}"):
        counted = times_to_live(run("report", path, "--json", f"--ttl={form}=1h"), "e-ttl")
        assert len(counted) > 1
        assert {each: ttl for each, ttl in counted.items() if ttl is not None} == {name: HOUR}
    ran = run("report", path, "--json", "--ttl=a/b=1h")
    assert (ran.code, is_one_sentence(ran.err)) == (2, True)
    assert "no state has the name 'a/b'" in ran.err


def test_report_counts_what_has_expired_of_a_state_of_one_operator(
    run: Any, tmp_path: Path, uid: str
) -> None:
    both = rewrite_savepoint(Snapshot.load(TTL), tmp_path / "both", split={("e-ttl", "b"): ["cnt"]})
    path = with_uid(Path(both), tmp_path / "in", "e-ttl", uid)
    options = [f"--ttl={uid}/names=1h", "--ttl=names=2h", "--ttl=3h", f"--ttl=uid:{uid}/m=4h"]
    for order in (options, options[::-1]):
        ran = run("report", path, "--json", *order)
        counted = times_to_live(ran, uid)
        assert (counted.pop("names"), counted.pop("m")) == (HOUR, 4 * HOUR)
        assert set(counted.values()) == {3 * HOUR}
        assert set(times_to_live(ran, "b").values()) == {3 * HOUR}
    ran = run("report", path, "--json", options[0], f"--ttl={by_hash(path, uid)}/names=5h")
    assert (ran.code, is_one_sentence(ran.err), "is given twice" in ran.err) == (2, True, True)


def test_a_time_to_live_with_two_readings_is_refused(run: Any, tmp_path: Path) -> None:
    """The state ``cnt`` of the operator ``a``, and a state with the name ``a/cnt``."""
    apart = renamed(TTL, tmp_path / "old", "names", "a/cnt")
    path = with_uid(apart, tmp_path / "in", "e-ttl", "a")
    ran = run("report", path, "--json", "--ttl=a/cnt=1h")
    assert (ran.code, is_one_sentence(ran.err)) == (2, True)
    assert "A time to live (--ttl) is ambiguous: 'a/cnt' is state 'a/cnt', or 'a'" in ran.err
    for form, state in ((f"{by_hash(path, 'a')}/cnt", "cnt"), ("a/a/cnt", "a/cnt")):
        counted = times_to_live(run("report", path, "--json", f"--ttl={form}=1h"), "a")
        assert {each for each, ttl in counted.items() if ttl is not None} == {state}


# ---------------------------------------------------------------------------------- migrate


def taken_from(path: str, rules: dict[str, Any], label: str) -> dict[str, tuple[str, str]]:
    """The operator and the state of the old job that each state of an operator is from."""
    declared = {"migration": 1, "operators": rules}
    plan = SavepointMigration(Migration.of(declared), Snapshot.load(path)).plan
    [operator] = [each for each in plan.operators if each.label == label]
    return {
        state_from.new.name: (state_from.operator.label, state_from.old.name)
        for state_from in operator.states
        if state_from.operator is not None and state_from.old is not None
    }


def test_a_declaration_takes_a_state_of_any_name(tmp_path: Path, state: str) -> None:
    path = str(renamed(OF_CARTS, tmp_path / "in", "totals", state))
    label = KEYED.removeprefix("hash:")
    for name in (state, f"{label}/{state}", f"{KEYED}/{state}"):
        taken = taken_from(path, {KEYED: {"states": {"sums": {"from": name}}}}, label)
        assert taken["sums"] == (label, state)
        assert state not in taken
        moved = {"new": {"from": [KEYED], "states": {"sums": {"from": name}}}}
        assert taken_from(path, moved, "new")["sums"] == (label, state)


def test_a_declaration_takes_a_state_of_any_operator(tmp_path: Path, uid: str) -> None:
    path = with_uid(OF_CARTS, tmp_path / "in", KEYED, uid)
    for name in (f"{uid}/totals", f"uid:{uid}/totals", f"{by_hash(path, uid)}/totals"):
        rules = {"new": {"from": [by_hash(path, uid)], "states": {"sums": {"from": name}}}}
        assert taken_from(path, rules, "new")["sums"] == (uid, "totals")


def test_a_declaration_with_two_readings_is_refused(tmp_path: Path) -> None:
    """The state ``pair`` of the operator ``x``, and a state with the name ``x/pair``."""
    apart = renamed(OF_CARTS, tmp_path / "old", "nested", "x/pair")
    path = with_uid(apart, tmp_path / "in", KEYED, "x")
    with pytest.raises(ConfigError, match=r"'x/pair' is state 'x/pair', or 'x', state 'pair'"):
        taken_from(path, {"x": {"states": {"new": {"from": "x/pair"}}}}, "x")
    for name, state in ((f"{by_hash(path, 'x')}/pair", "pair"), ("x/x/pair", "x/pair")):
        taken = taken_from(path, {"x": {"states": {"new": {"from": name}}}}, "x")
        assert taken["new"] == ("x", state)
    with pytest.raises(ConfigError, match=r"State 'y/pair' is not in the old operator of 'x'"):
        taken_from(path, {"x": {"states": {"new": {"from": "y/pair"}}}}, "x")


# -------------------------------------------------------------------------------------- check


def test_check_says_how_to_name_what_did_not_change(run: Any, tmp_path: Path, uid: str) -> None:
    path = with_uid(OF_CARTS, tmp_path / "in", KEYED, uid)

    def verdicts(*options: str) -> dict[str | None, str]:
        ran = run("check", JAR, path, "--to=1.20", "--json", *options)
        assert ran.code in (0, 1), ran.err
        lines = json.loads(ran.out)["lines"]
        return {each["state"]: each["reason"] for each in lines if each["op"] == uid}

    before = verdicts()
    assert before.keys() == {None}
    option, value = advised(before[None], "--unchanged")
    after = verdicts(option, value)
    assert after.keys() > {"totals", "items"}
    assert not any("no class of the jar gives" in reason for reason in after.values())
    for name in (f"{uid}", f"uid:{uid}", by_hash(path, uid)):
        assert verdicts(f"--drop={name}") == {
            None: "dropped as asked: start the job with --allowNonRestoredState"
        }


def test_a_lost_operator_is_renamed_as_check_says(run: Any, tmp_path: Path, uid: str) -> None:
    old = with_uid(COUNTS, tmp_path / "old", "a-keyed", uid)
    new = with_uid(COUNTS, tmp_path / "new", "a-keyed", f"new {uid}")
    ran = run("check", old, "--expect", new, "--json")
    [reason] = [each["reason"] for each in json.loads(ran.out)["lines"] if each["op"] == uid]
    assert run("rewrite", old, str(tmp_path / "out"), *advised(reason, "--rename"))[0] == 0
    assert run("check", str(tmp_path / "out"), "--expect", new)[0] == 0


def test_the_commands_of_a_report_run(run: Any, tmp_path: Path, uid: str) -> None:
    path = with_uid(UNION, tmp_path / "in $(x) '", "writer", uid)
    figures = json.loads(run("report", path, "--json").out)
    [command] = [each["command"] for each in figures["attention"] if each["operator"] == uid]
    out = str(tmp_path / "out")
    words = by_shell(command)
    assert words[0] == "dstl"
    ran = run(*(out if word == "OUT" else word for word in words[1:]))
    assert ran.code == 0, (command, ran.err)
    assert Snapshot.load(out)[f"uid:{uid}"].union("commit_user_state")
