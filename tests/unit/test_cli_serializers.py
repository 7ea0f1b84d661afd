"""``--serializers`` lets every command read state of a serializer of one's own."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dstl_core.cli.examples import EXAMPLES
from tests.command_line import Ran, is_one_sentence, run
from tests.golden_files import CONNECTORS, GOLDEN, snapshot
from tests.own_long import OWN, REGISTRY_NAME, with_own_class

__all__ = ["run"]

CANONICAL = snapshot("a-hashmap-canonical")
NATIVE = snapshot("a-hashmap-native")
OF_FLINK_1 = snapshot("a-hashmap-canonical-flink1.20.5")
OF_KAFKA = CONNECTORS / "c-kafka" / "savepoint"
OLD_SOURCES = GOLDEN / "legacy-connectors" / "flink-1.20.5" / "savepoint"
LOGGED = GOLDEN / "a-hashmap-changelog-multi"
[CHECKPOINT] = [each.relative_to(LOGGED) for each in LOGGED.glob("checkpoints/*/chk-2")]
DECLARED = {
    "migration": 1,
    "from": "in",
    "to_template": "in",
    "operators": {"a-keyed": {"states": {"cnt": {}}}},
}


class Call(NamedTuple):
    """A call of the command line in a folder with the snapshot ``in``.

    Args:
        source: What ``in`` is a copy of.
        arguments: What is called.
        is_blind: Whether the command cannot do as much without the registry.
    """

    source: Path
    arguments: str
    is_blind: bool = True


CALLS = {
    "inspect": Call(CANONICAL, "inspect in"),
    "dump": Call(CANONICAL, "dump in"),
    "dump native": Call(NATIVE, "dump in"),
    "verify": Call(CANONICAL, "verify in --json", is_blind=False),
    "diff": Call(CANONICAL, "diff in other --json"),
    "check": Call(CANONICAL, "check in --expect in --json"),
    "report": Call(CANONICAL, "report in --headers-only --json"),
    "rewrite": Call(NATIVE, "rewrite in out --json"),
    "upgrade": Call(OF_FLINK_1, "upgrade in out --json"),
    "changelog": Call(LOGGED, f"changelog in/{CHECKPOINT} --changelog-base in/dstl"),
    "offsets": Call(OLD_SOURCES, "offsets in --json"),
    "committables": Call(OF_KAFKA, "committables in --json", is_blind=False),
    "ls": Call(CANONICAL, "ls in --states --json", is_blind=False),
    "migrate plan": Call(CANONICAL, "migrate plan declared.yaml --json"),
    "migrate plan, proposal": Call(CANONICAL, "migrate plan proposed.yaml", is_blind=False),
    "migrate apply": Call(NATIVE, "migrate apply declared.yaml out --json"),
}
ELSEWHERE = {"gc", "warm", "browse", "erase"}
"""They read no type of a snapshot, or need a terminal (``test_browse``) or a pipeline
(``test_erasure``).
"""


SAME = re.compile(r'"\w*sha256": "[0-9a-f]{64}"')
"""What may differ between two snapshots: their digests."""


@pytest.fixture
def answer(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls a command in a folder that has the same path each time."""

    def call(own_call: Call, copy: Callable[[Path, Path], Any], *options: str) -> Ran:
        folder = tmp_path / "here"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        monkeypatch.chdir(folder)
        copy(own_call.source, folder / "in")
        copy(snapshot("f-two-ops-hashmap"), folder / "other")
        (folder / "declared.yaml").write_text(json.dumps(DECLARED))
        (folder / "proposed.yaml").write_text(json.dumps({**DECLARED, "operators": {}}))
        ran = run(*own_call.arguments.split(), *options)
        return Ran(ran.code, SAME.sub("", ran.out), ran.err)

    return call


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_a_command_reads_an_own_type_like_the_one_in_whose_place_it_is(
    answer: Any, name: str
) -> None:
    call = CALLS[name]
    expected = answer(call, shutil.copytree)
    assert expected.code in (0, 1) and expected.out
    assert answer(call, with_own_class, "--serializers", REGISTRY_NAME) == expected
    assert not call.is_blind or answer(call, with_own_class) != expected


def test_every_command_that_reads_state_is_called() -> None:
    called = {each.arguments.split()[0] for each in CALLS.values()}
    called |= {
        f"migrate {call.arguments.split()[1]}"
        for name, call in CALLS.items()
        if name.startswith("migrate")
    }
    assert called - {"migrate"} == set(EXAMPLES) - ELSEWHERE


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    "form", [("--serializers", REGISTRY_NAME), (f"--serializers={REGISTRY_NAME}",)]
)
def test_the_option_stands_anywhere(
    run: Any, tmp_path: Path, place: int, form: tuple[str, ...]
) -> None:
    words = ["inspect", str(with_own_class(CANONICAL, tmp_path / "in"))]
    ran = run(*words[:place], *form, *words[place:])
    assert (ran.code, ran.err, OWN in ran.out) == (0, "", False)


def test_a_module_of_the_present_folder_is_imported(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "types_of_my_job.py").write_text("from tests.own_long import REGISTRY as TYPES\n")
    path = str(with_own_class(CANONICAL, tmp_path / "in"))
    ran = run("dump", path, "--serializers", "types_of_my_job:TYPES")
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("tests.own_long", "Cannot import 'tests.own_long' (AttributeError: "),
        ("tests.own_long:NOTHING", "has no attribute 'NOTHING'"),
        ("no_such_module:TYPES", "No module named 'no_such_module'"),
        ("broken_types:TYPES", "(ZeroDivisionError: "),
        ("tests.own_long:NO_REGISTRY", "expected a SerializerRegistry, e.g. BUILT_IN.copy(), got"),
        ("", "write it as 'package.module:name'"),
    ],
)
def test_a_wrong_name_is_one_sentence(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "broken_types.py").write_text("TYPES = 1 // 0\n")
    ran = run("inspect", str(CANONICAL), "--serializers", named)
    assert (ran.code, is_one_sentence(ran.err), problem in ran.err) == (2, True, True), ran


def test_memory_that_runs_out_is_one_sentence(run: Any, tmp_path: Path) -> None:
    path = str(with_own_class(CANONICAL, tmp_path / "in"))
    ran = run("inspect", path, "--serializers", "tests.own_long:HUGE")
    assert (ran.code, is_one_sentence(ran.err)) == (2, True), ran
    assert "not enough memory" in ran.err


def test_the_option_needs_a_value(run: Any) -> None:
    ran = run("inspect", str(CANONICAL), "--serializers")
    assert (ran.code, "requires an argument" in ran.err) == (2, True)


def test_the_next_call_does_not_know_the_types_of_the_last(run: Any, tmp_path: Path) -> None:
    path = str(with_own_class(CANONICAL, tmp_path / "in"))
    assert OWN not in run("inspect", path, "--serializers", REGISTRY_NAME).out
    assert OWN in run("inspect", path).out
