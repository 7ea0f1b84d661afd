"""Names with ``/`` and ``=`` work in every option of every command that takes names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, rewrite_savepoint
from dstl_core.cli.app import app as dstl
from dstl_core.errors import ConfigError
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.read.snapshot_names import SnapshotNames, cut_pairs, is_last, relocations
from scripts.command_line_page import rows_of
from tests.command_line import run
from tests.golden_files import GOLDEN

__all__ = ["run"]

FOLDER = GOLDEN / "names-with-signs"
[PLAIN] = FOLDER.glob("savepoint-*")
NAMES = {
    "slash": "Count/Combine.perKey/GroupByKey",
    "eq": "a=b",
    "both": "dt=1/a=b/c",
    "state": "x/a",
    "colon": "one:two",
}
"""The uid of the operator with the states a, b and c, by savepoint."""


@pytest.fixture(params=NAMES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """A savepoint, and the uid of its operator."""
    name = request.param
    if (FOLDER / name).is_dir():
        return str(FOLDER / name), NAMES[name]
    out = tmp_path / "source"
    return rewrite_savepoint(Snapshot.load(PLAIN), out, rename={"three": NAMES[name]}), NAMES[name]


def uids(path: Path | str) -> dict[str, set[str]]:
    """The states of each operator, without timers."""
    return {
        operator.label: {
            info.name for info in operator.states if not info.name.startswith("_timer")
        }
        for operator in Snapshot.load(path).operators
        if operator.label != "src"
    }


ALL = {"a", "b", "c"}
REWRITES: dict[str, tuple[Callable[[str], list[str]], Callable[[str], dict[str, set[str]]]]] = {
    "--rename": (lambda uid: [f"--rename={uid}=new"], lambda _: {"new": ALL}),
    "--rename to": (lambda uid: [f"--rename={uid}=p=q/r"], lambda _: {"p=q/r": ALL}),
    "--remove": (lambda uid: [f"--remove={uid}"], lambda _: {}),
    "--split": (
        lambda uid: [f"--split={uid}/a=new", f"--split={uid}/b=new"],
        lambda uid: {uid: {"c"}, "new": {"a", "b"}},
    ),
    "--split to": (
        lambda uid: [f"--split={uid}/a=p=q/r"],
        lambda uid: {uid: {"b", "c"}, "p=q/r": {"a"}},
    ),
    "--merge": (lambda uid: [f"--merge={uid}=src"], lambda _: {}),
    "--merge into": (lambda uid: [f"--merge=src={uid}"], lambda uid: {uid: ALL}),
}


@pytest.mark.parametrize("option", REWRITES)
def test_a_rewrite(run: Any, tmp_path: Path, source: tuple[str, str], option: str) -> None:
    path, uid = source
    arguments_of, expected = REWRITES[option]
    code, _, error = run("rewrite", path, str(tmp_path / "out"), *arguments_of(uid))
    assert (code, error) == (0, "")
    assert uids(tmp_path / "out") == expected(uid)


def test_a_union_state_is_found_or_missed_by_its_name(
    run: Any, tmp_path: Path, source: tuple[str, str]
) -> None:
    path, uid = source
    for option in ("--distinct", "--empty-state"):
        error = run("rewrite", path, str(tmp_path / "out"), f"{option}={uid}/a").err
        assert f"{uid!r}" in error
        assert "'a'" in error


def test_a_dump(run: Any, source: tuple[str, str]) -> None:
    path, uid = source
    code, text, _ = run("dump", path, f"--op={uid}", "--state=a")
    lines = [json.loads(line) for line in text.splitlines()]
    assert code == 0
    assert {(each["op"], each["state"]) for each in lines} == {(uid, "a")}
    assert len(lines) == 6, "the job has six keys"


def test_a_check_drops_operators(run: Any, source: tuple[str, str]) -> None:
    path, uid = source
    assert run("check", path, "--expect", str(PLAIN))[0] == 1
    code, text, _ = run("check", path, "--expect", str(PLAIN), f"--drop={uid}")
    assert (code, "dropped as asked" in text) == (0, True)


@pytest.mark.parametrize("state", ["a", "_timer_state/event_user-timers"])
def test_a_check_drops_states(
    run: Any, tmp_path: Path, source: tuple[str, str], state: str
) -> None:
    path, uid = source
    place = SnapshotNames(Snapshot.load(path)).operator_or_state("drop", f"{uid}/{state}")
    assert (place.operator.label, place.state) == (uid, state)
    assert run("rewrite", path, str(tmp_path / "new"), f"--split={uid}/a=else")[0] == 0
    arguments = ["check", path, "--expect", str(tmp_path / "new")]
    assert run(*arguments)[0] == 1
    assert run(*arguments, f"--drop={uid}/a")[0] == 0


def test_a_key_type_is_given_for_the_operator(run: Any, source: tuple[str, str]) -> None:
    path, uid = source
    code, _, error = run("dump", path, f"--key-type={uid}=long")
    assert code == 0 or "'long'" in error or uid in error
    code, _, error = run("dump", path, "--key-type=no=body=long")
    assert "'no=body'" in error


def test_a_type_is_given_for_the_state(run: Any, source: tuple[str, str]) -> None:
    path, _ = source
    code, _, error = run("dump", path, "--type=no=body=LONG")
    assert (code, "'no=body'" in error) == (2, True)


def test_a_new_type_of_keys_is_given_for_the_operator(run: Any, source: tuple[str, str]) -> None:
    path, _ = source
    code, _, error = run("upgrade", path, "--plan", "--new-key=no=body=Long")
    assert (code, "Flink 2.x already" in error or "'no=body'" in error) == (2, True)


def test_a_declaration_takes_a_state_of_another_operator(
    tmp_path: Path, source: tuple[str, str]
) -> None:
    path, uid = source
    rules = {"operators": {"new": {"from": [uid], "states": {"a": {"from": f"{uid}/a"}}}}}
    migration = SavepointMigration(Migration.of({"migration": 1, **rules}), Snapshot.load(path))
    assert [each.label for each in migration.plan.operators if each.label != "src"] == ["new"]


# ------------------------------------------------------------------------------- ambiguity


def test_two_readings_are_an_error_and_a_hash_makes_them_clear(tmp_path: Path) -> None:
    apart = rewrite_savepoint(
        Snapshot.load(PLAIN), tmp_path / "apart", split={("three", "x"): ["a"]}
    )
    both = Snapshot.load(
        rewrite_savepoint(Snapshot.load(apart), tmp_path / "both", rename={"three": "x/a"})
    )
    names = SnapshotNames(both)
    with pytest.raises(ConfigError, match=r"drop is ambiguous: 'x/a' is operator 'x/a', or 'x'"):
        names.operator_or_state("drop", "x/a")
    place = names.operator_or_state("drop", f"hash:{both['x'].operator_id.hex}/a")
    assert (place.operator.label, place.state) == ("x", "a")
    assert names.state("--split", "x/a/b").operator.label == "x/a"
    renamed = rewrite_savepoint(both, tmp_path / "eq", rename={"x/a": "x=y"})
    with pytest.raises(ConfigError, match=r"'x' and 'y=z', or 'x=y' and 'z'"):
        SnapshotNames(Snapshot.load(renamed)).renaming("--rename", ["x=y=z"])


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("a=b", "a", "b"),
        ("/a/dt=1=/b/dt=1", "/a/dt=1", "/b/dt=1"),
        ("s3://a/dt=1/x=s3://b/dt=1/x", "s3://a/dt=1/x", "s3://b/dt=1/x"),
        ("file:/a=file:/b", "file:/a", "file:/b"),
    ],
)
def test_folders_with_a_sign_move(text: str, old: str, new: str) -> None:
    assert relocations("--relocate", [text]) == {old: new}


def test_a_value_is_behind_the_last_sign() -> None:
    assert cut_pairs("--set", ["f:dt=1/x=7"], "SPLIT=POSITION", is_last) == {"f:dt=1/x": "7"}
    with pytest.raises(ConfigError, match=r"--set is given twice for 'a': '1' and '2'"):
        cut_pairs("--set", ["a=1", "a=2"], "SPLIT=POSITION", is_last)


# ------------------------------------------------------------------------ no option is missed

NAMED = {
    "--allow-root DIR", "--also-referenced-from DIR", "--at TIME", "--changelog-base DIR",
    "--check FRACTION", "--class MAIN", "--compare OLD", "--expect NEW", "--flink DIR",
    "--hide-expired TTL", "--jar JAR", "--max-parallelism N", "--older-than AGE", "--out OUT",
    "--output FILE", "--to VERSION", "--to-template SAVEPOINT", "--from SAVEPOINT",
    "--checkpoint-id N", "--new-jar JAR", "--stream-arn ARN",
    "--serializers MODULE:NAME", "--proto FILE", "--jobs N", "--key KEY", "--key-file FILE",
    "--map FILE", "--now T", "--spark MASTER", "--work DIR",
    "--format FORM", "--local-copies DIR", "--savepoint PATH",
}  # fmt: skip
"""Options whose value is no name of an operator, a state or a split."""
TRIED = {
    "--distinct OP/STATE", "--drop CHECKPOINT", "--drop-state OP/STATE", "--drop OP[/STATE]",
    "--drop STATE", "--new-key OP=TYPE", "--drop-expired [[OP/]STATE=]TTL",
    "--empty-state OP/STATE", "--erase-keys [OP=]FILE", "--keys [OP=]FILE",
    "--output-column OP=COLUMN",
    "--key-type OP=TYPE", "--merge OP=INTO", "--op OP", "--relocate OLD=NEW", "--remove OP",
    "--topic OLD=NEW", "--kafka-source OP=UID", "--kinesis-source OP=UID",
    "--rename OLD=NEW", "--rename-state OP/STATE=NEW", "--set SPLIT=POSITION",
    "--split OP/STATE=NEW", "--state STATE",
    "--ttl [[OP/]STATE=]TTL", "--type NAME=TYPE", "--type STATE=TYPE",
    "--unchanged OP[/STATE]", "--where OP/STATE=EXPR",
}  # fmt: skip


def test_every_option_with_a_value_is_known() -> None:
    """A new option goes into one of the two lists, and into the table if it takes names."""
    texts = set()
    for _, option, _ in rows_of(dstl, "dstl"):
        text = option.replace("`", "").split(", ")[-1].replace("\\", "")
        if text.startswith("--") and " " in text:
            texts.add(text)
    assert texts - NAMED - TRIED == set()
    assert texts >= TRIED
