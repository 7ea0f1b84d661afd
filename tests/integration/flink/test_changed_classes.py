"""Real Flink still does with the changed classes what the golden files say, and so does a check
that asks it (``dstl check --run``).
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, check_restore
from dstl_core.errors import ConfigError, UnreadableValueError
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.savepoint.restores.flink_answers import FlinkInstallation, Question
from dstl_core.state.tables.compatibility import Verdict
from tests.command_line import run
from tests.golden_files import CHANGED_CLASSES, UPGRADE_JOBS
from tests.integration.flink.changed_classes import (
    CASES,
    FEED,
    WHAT,
    jar_of,
    restored,
    verdicts_by_flink,
)
from tests.integration.flink.checker import FlinkChecker, Java, find_jars

__all__ = ["run"]

pytestmark = pytest.mark.flink


@pytest.fixture(scope="module")
def flink() -> FlinkInstallation:
    return FlinkInstallation.find(find_jars()[0].parent)


@pytest.mark.soak
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_flink_restores_or_refuses_each_case(tmp_path: Path, backend: str) -> None:
    outcomes = json.loads((CHANGED_CLASSES / "outcomes.json").read_bytes())
    assert list(outcomes) == list(CASES) == list(WHAT)
    old = Snapshot.load(CHANGED_CLASSES / "old")
    (tmp_path / "flink").mkdir()
    checker = FlinkChecker(tmp_path / "flink", job_jars=[CHANGED_CLASSES / "new.jar"])
    restores = {
        name: restored(checker, name, old, backend, tmp_path / name) == "restored" for name in CASES
    }
    checker.close()
    assert restores == {name: each[backend] == "restored" for name, each in outcomes.items()}


def check_outcomes(verdicts: dict[str, str]) -> set[str]:
    """No verdict contradicts Flink. Returns the cases that are unknown."""
    outcomes = json.loads((CHANGED_CLASSES / "outcomes.json").read_bytes())
    for name, verdict in verdicts.items():
        if any(each != "restored" for each in outcomes[name].values()):
            assert verdict in ("unknown", "incompatible")
        else:
            assert verdict != "incompatible"
    return {name for name, verdict in verdicts.items() if verdict == "unknown"}


MEANING = {"abstractsame", "fieldrenamed", "kryosame", "optional", "staterenamed", "uidchanged"}
"""Flink reads the values of these, or is not asked. What they mean is in no file."""


def test_a_check_asks_flink_for_what_no_jar_shows(flink: FlinkInstallation) -> None:
    verdicts = verdicts_by_flink(flink)
    assert verdicts == json.loads((CHANGED_CLASSES / "run.json").read_bytes())
    assert check_outcomes(verdicts) == MEANING


def test_flink_knows_descriptors_that_are_no_constants(
    flink: FlinkInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jar shows no descriptor, as if a helper of the job made them from its settings."""

    def hidden(*_: object) -> None:
        raise UnreadableValueError("the jar does not show the descriptor")

    monkeypatch.setattr("dstl_core.savepoint.restores.jar_check.JarCheck._descriptor", hidden)
    has_ttl = {"ttladded", "ttlkept", "ttlremoved"}
    assert check_outcomes(verdicts_by_flink(flink)) == MEANING | has_ttl


def test_the_command_says_what_flink_says_of_an_upgraded_job(run: Any, tmp_path: Path) -> None:
    """The values are read by the serializers that the job declares in Flink 2.2.1."""
    job = UPGRADE_JOBS / "carts"
    [path] = job.glob("savepoint-*")
    upgraded = tmp_path / "upgraded"
    SavepointUpgrade(Snapshot.load(path, jars=[job / "job.jar"])).write(upgraded)
    folder = str(find_jars()[0].parent)
    jar = str(job / "job.jar")
    ran = run("check", jar, str(upgraded), "--run", "--flink", folder, "--json")
    assert (ran.code, ran.err) == (1, "")
    reasons = {line["state"]: line["reason"] for line in json.loads(ran.out)["lines"]}
    agreed = "Flink 2.2.1 takes the type as it is and reads 8 values"
    assert reasons["totals"] == reasons["pair"] == agreed
    assert reasons["log"].endswith(f"({agreed}, which does not show this)")


def test_flink_that_does_not_answer_is_one_sentence(flink: FlinkInstallation) -> None:
    question = Question(None, "state", "value", "java.lang.String", b"", [])
    with pytest.raises(ConfigError, match=r"did not answer within 0\.01 s"):
        flink.ask([question], [], timeout_s=0.01)
    answers = flink.ask([question, replace(question, value_class="no.Such")], [])
    assert [(each.word, each.sentence) for each in answers] == [
        ("unreadable", "EOFException"),
        ("unknown", "ClassNotFoundException: no.Such"),
    ]
    with pytest.raises(ConfigError, match=r"exit code 1 \(no message\); --run needs a Java dev"):
        replace(flink, java="false").ask([question], [])


def test_keys_of_a_function_with_base_classes_of_the_job(tmp_path: Path) -> None:
    """The key is the second argument of the base class, and no argument of the class between."""
    sources = CASES["same"][0].sources("same") | {"common/Feed.java": FEED}
    text = sources["same/Job.java"]
    extends = "extends KeyedProcessFunction<Long, Long, Long>"
    assert extends in text
    sources["same/Job.java"] = text.replace(extends, "extends Middle").replace(
        "  public static class Update",
        f"  public abstract static class Base<X, K> {extends.replace('<Long', '<K')} {{}}\n"
        "  public abstract static class Middle extends Base<String, Long> {}\n"
        "  public static class Update",
    )
    for path, source in sources.items():
        (tmp_path / "src" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / path).write_text(source)
    files = [str(each) for each in (tmp_path / "src").rglob("*.java")]
    classpath = os.pathsep.join(map(str, find_jars()))
    command = [str(Java.find().javac), "-nowarn", "-proc:none", "-cp", classpath]
    subprocess.run([*command, "-d", str(tmp_path / "classes"), *files], check=True)
    jar = jar_of(tmp_path / "classes", tmp_path / "job.jar")
    lines = check_restore(Snapshot.load(CHANGED_CLASSES / "old"), jar).lines
    verdicts_of_states = {each.state: each.verdict for each in lines if each.operator == "same"}
    assert set(verdicts_of_states) == {
        "_timer_state/event_user-timers",
        "_timer_state/processing_user-timers",
        "same-state",
    }
    assert set(verdicts_of_states.values()) == {Verdict.COMPATIBLE_AS_IS}
