"""``dstl check JAR SAVEPOINT``: verdicts against what real Flink did with changed classes."""

from __future__ import annotations

import json
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dstl_core import Snapshot, check_restore
from dstl_core.errors import ConfigError, StateFileNotFoundError
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.restores.restore_result import RestoreResult
from dstl_core.state.tables.compatibility import Verdict
from tests.command_line import run
from tests.golden_files import CHANGED_CLASSES, UPGRADE_JOBS

__all__ = ["run"]

OUTCOMES: dict[str, dict[str, str]] = json.loads((CHANGED_CLASSES / "outcomes.json").read_bytes())
JOBS = sorted(path.name for path in UPGRADE_JOBS.iterdir() if path.is_dir())
SCHEMA = Path(__file__).parents[3] / "docs" / "formats" / "check.schema.json"
LOSES = ("fieldrenamed", "staterenamed", "optional")
"""Flink restores these without an error, and the job does not find its values."""


@cache
def changed() -> RestoreResult:
    """All changed classes at once: each is an operator of its own."""
    old = Snapshot.load(CHANGED_CLASSES / "old")
    return check_restore(old, CHANGED_CLASSES / "new.jar", to="2.2", unchanged=["source"])


def verdict(check: RestoreResult, operator: str) -> Verdict:
    lines = [each.verdict for each in check.lines if each.operator == operator]
    assert lines
    return max(lines)


def reason(check: RestoreResult, operator: str) -> str:
    lines = [each for each in check.lines if each.operator == operator]
    return max(lines, key=lambda line: line.verdict).reason


def names(operator: OperatorSnapshot) -> set[str]:
    return {each.name for each in operator.operator_states}


# ------------------------------------------------------------------------------ real Flink


@pytest.mark.parametrize("name", OUTCOMES)
def test_no_verdict_contradicts_flink(name: str) -> None:
    by_flink = verdict(changed(), name)
    if any(each != "restored" for each in OUTCOMES[name].values()) or name in LOSES:
        assert by_flink >= Verdict.UNKNOWN
    else:
        assert by_flink is not Verdict.INCOMPATIBLE


def test_the_same_jar_is_compatible_but_for_what_no_header_shows() -> None:
    old = Snapshot.load(CHANGED_CLASSES / "old")
    check = check_restore(old, CHANGED_CLASSES / "old.jar", unchanged=["source"])
    unsure = {name for name in OUTCOMES if verdict(check, name) is not Verdict.COMPATIBLE_AS_IS}
    assert unsure == {"generic", "genericsame", "optional", "becamepojo"} | {
        name for name in OUTCOMES if name.startswith(("kryo", "abstract", "subclass"))
    } - {"kryotopojo"}
    assert check.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("fieldwidened", "field 'a': the type changed from Integer to Long"),
        ("fieldtransient", "field 'b' of fieldtransient.V is static or transient now, on which Fl"),
        ("accessorsgone", "from accessorsgone.V{a: Integer, b: String} to Kryo<accessorsgone.V>"),
        ("classrenamed", "class classrenamed.V is not in the jar, so Flink cannot read the state"),
        ("constantremoved", "constantremoved.Level lost constants: HIGH"),
        ("subclassgone", "values are of a subclass that the savepoint does not describe"),
        ("mapkeyadded", "the user keys of map state cannot migrate: new fields get their default"),
        ("keytype", "key: the type changed from Long to String"),
        ("uidchanged", "no class of the jar gives an operator this uid as a constant"),
        ("staterenamed", "staterenamed.Job$Update has no descriptors of this name as a constant"),
        ("valuetolist", "the kind changed from value to list"),
        ("factory", "factory.V has the annotation TypeInfo; compare with a savepoint"),
        ("generic", "generic.G is generic"),
        ("hinttotypes", "from Nullable<List<Nullable<String>>> to List<String>"),
    ],
)
def test_the_reason_names_the_place(name: str, text: str) -> None:
    assert text in reason(changed(), name)


@pytest.mark.parametrize("name", JOBS)
def test_flink_2_does_not_take_jobs_of_flink_1(name: str) -> None:
    job = UPGRADE_JOBS / name
    [path] = job.glob("savepoint-*")
    outcome = json.loads((job / "outcome.json").read_bytes())
    assert not any(outcome[each].get("equal") for each in ("hashmap", "rocksdb"))
    check = check_restore(Snapshot.load(path), job / "job.jar", to="2.2")
    assert check.verdict is Verdict.INCOMPATIBLE
    assert check.notes[-1].endswith("convert it first (dstl upgrade)")
    # The same Flink as before does.
    check = check_restore(Snapshot.load(path), job / "job.jar", to="1.20")
    assert check.verdict <= Verdict.UNKNOWN


def test_what_is_upgraded_is_compatible(tmp_path: Path) -> None:
    job = UPGRADE_JOBS / "orders"
    [path] = job.glob("savepoint-*")
    upgrade = SavepointUpgrade(Snapshot.load(path, jars=[job / "job.jar"]))
    upgraded = Snapshot.load(upgrade.write(tmp_path / "upgraded"))
    [source] = [each for each in upgraded.operators if "SourceReaderState" in names(each)]
    check = check_restore(upgraded, job / "job.jar", unchanged=[source.label])
    assert check.verdict is Verdict.COMPATIBLE_AS_IS


# ------------------------------------------------------------------------------- arguments


def test_a_declaration_that_did_not_change_has_the_classes_of_the_jar() -> None:
    old = Snapshot.load(CHANGED_CLASSES / "old")
    jars = [CHANGED_CLASSES / "new.jar"]
    names = ["staterenamed/total", "factory", "partwidened", "fieldadded/fieldadded-state"]
    check = check_restore(old, jars[0], jars=jars[1:], unchanged=names)
    assert verdict(check, "staterenamed") is Verdict.COMPATIBLE_AS_IS
    assert verdict(check, "factory") is Verdict.UNKNOWN
    assert verdict(check, "partwidened") is Verdict.INCOMPATIBLE
    assert verdict(check, "fieldadded") is Verdict.AFTER_MIGRATION


@pytest.mark.slow
def test_a_loss_is_accepted_by_name() -> None:
    old = Snapshot.load(CHANGED_CLASSES / "old")
    jars = [CHANGED_CLASSES / "new.jar"]
    check = check_restore(old, jars[0], jars=jars[1:], drop=["uidchanged", "staterenamed/total"])
    assert verdict(check, "uidchanged") is Verdict.COMPATIBLE_AS_IS
    assert verdict(check, "staterenamed") is Verdict.COMPATIBLE_AS_IS


def test_wrong_arguments_are_one_sentence() -> None:
    old, jar = Snapshot.load(CHANGED_CLASSES / "old"), CHANGED_CLASSES / "new.jar"
    with pytest.raises(ConfigError, match="State 'none' of 'same' is not in the snapshot"):
        check_restore(old, jar, unchanged=["same/none"])
    with pytest.raises(StateFileNotFoundError, match="jar does not exist"):
        check_restore(old, CHANGED_CLASSES / "none.jar")


@pytest.mark.slow
def test_the_command_takes_a_jar_or_a_savepoint(run: Any) -> None:
    old, jar = str(CHANGED_CLASSES / "old"), str(CHANGED_CLASSES / "new.jar")
    ran = run("check", jar, old, "--to", "2.2", "--json")
    assert (ran.code, ran.err) == (1, "")
    report = json.loads(ran.out)
    Draft202012Validator(json.loads(SCHEMA.read_bytes())).validate(report)
    assert (report["expect"], report["to"]) == (jar, "2.2")
    for wrong in ([old], [jar, old, "--expect", old]):
        ran = run("check", *wrong)
        assert (ran.code, "expected its jar and then the savepoint" in ran.err) == (2, True)
    for wrong in ([jar, old, "--columns-kept"], [old, "--expect", old, "--unchanged", "source"]):
        ran = run("check", *wrong)
        assert (ran.code, "The options do not fit" in ran.err) == (2, True)


# -------------------------------------------------------------- a savepoint of the new job


def test_a_savepoint_of_the_new_job_gives_no_better_verdict_than_flink() -> None:
    old, new = (Snapshot.load(CHANGED_CLASSES / each) for each in ("old", "new"))
    check = check_restore(old, new, to="2.2")
    assert not {name for name in OUTCOMES if verdict(check, name) <= Verdict.AFTER_MIGRATION} & {
        name
        for name, outcome in OUTCOMES.items()
        if name in LOSES or any(each != "restored" for each in outcome.values())
    }


def test_with_the_jar_it_knows_whether_a_field_is_gone() -> None:
    old, new = (Snapshot.load(CHANGED_CLASSES / each) for each in ("old", "new"))
    check = check_restore(old, new)
    assert verdict(check, "fieldremoved") is Verdict.UNKNOWN
    assert reason(check, "fieldtransient").endswith("give the jar of the new job (--jar)")
    check = check_restore(old, new, jars=[CHANGED_CLASSES / "new.jar"])
    assert verdict(check, "fieldremoved") is Verdict.AFTER_MIGRATION
    assert verdict(check, "fieldtransient") is Verdict.INCOMPATIBLE


@pytest.mark.slow
def test_subclasses_are_found_in_a_snapshot_with_its_jar() -> None:
    old = Snapshot.load(CHANGED_CLASSES / "old", jars=[CHANGED_CLASSES / "old.jar"])
    new = Snapshot.load(CHANGED_CLASSES / "new")
    by_savepoint = check_restore(old, new)
    by_jar = check_restore(old, CHANGED_CLASSES / "new.jar")
    for check in (by_savepoint, by_jar):
        for name in ("subclassgone", "subclassadded", "abstractsame"):
            assert reason(check, name).startswith("values are of a subclass")
        assert verdict(check, "partlistadded") is Verdict.AFTER_MIGRATION


def test_of_several_jobs_in_a_jar_one_is_named(tmp_path: Path) -> None:
    both = tmp_path / "both.jar"
    with zipfile.ZipFile(both, "w") as out:
        for name in ("orders", "carts"):
            with zipfile.ZipFile(UPGRADE_JOBS / name / "job.jar") as job:
                for entry in job.namelist():
                    if entry.endswith(".class"):
                        out.writestr(entry, job.read(entry))
    [path] = (UPGRADE_JOBS / "orders").glob("savepoint-*")
    old = Snapshot.load(path)
    check = check_restore(old, both)
    assert reason(check, "job") == (
        "the jar has several jobs; name the main class (--class): orders.Orders, carts.Carts"
    )
    [label] = [each.label for each in old.operators if each.states]
    check = check_restore(old, both, main="orders.Orders", to="1.20")
    assert not [each for each in check.lines if each.operator == "job"]
    assert "Kryo stores no field names" in reason(check, label)
    # The other job has no operator with this uid.
    check = check_restore(old, both, main="carts.Carts", to="1.20")
    assert "no class of the jar gives an operator this uid" in reason(check, label)
    with pytest.raises(ConfigError, match=r"class orders\.None is not in the jar"):
        check_restore(old, both, main="orders.None")


def test_what_a_run_needs_is_one_sentence(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar, old = str(CHANGED_CLASSES / "new.jar"), str(CHANGED_CLASSES / "old")
    ran = run("check", jar, old, "--run", "--flink", str(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert f"Flink is missing, and --run starts it (expected flink-dist-*.jar in {tmp_path})" in (
        ran.err
    )
    (tmp_path / "flink-dist-1.17.2.jar").touch()
    ran = run("check", jar, old, "--run", "--flink", str(tmp_path))
    assert "got '1.17.2'" in ran.err
    (tmp_path / "flink-dist-1.17.2.jar").rename(tmp_path / "flink-dist-2.0.1.jar")
    ran = run("check", jar, old, "--run", "--flink", str(tmp_path), "--to", "2.2")
    assert "expected 2.2 (--to), got 2.0.1 in the installation" in ran.err
    ran = run("check", jar, old, "--flink", str(tmp_path))
    assert "--flink goes with --run" in ran.err
    ran = run("check", old, "--expect", old, "--run")
    assert "--run go with JAR PATH" in ran.err
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = run("check", jar, old, "--run")
    assert ran.code == 2
    assert "Java is missing" in ran.err
