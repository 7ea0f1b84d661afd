"""State of Flink 1.20.5 becomes that of the same job in Flink 2.x."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.codec.kryo.kryo_serializer import KryoClasses
from dstl_core.errors import ConfigError, FormatError, SavepointError
from dstl_core.savepoint.edit import converted_state
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from tests.command_line import run
from tests.golden_files import JDK_JOBS, JDK_TYPES, UPGRADE_JOBS, as_lines, snapshot
from tests.unit.savepoint.test_job_values import JOBS, lines, savepoint

__all__ = ["run"]
LINE = "carts.Line{amount: Long, product: String}"
ITEM = "orders.Item{price: Double, quantity: Integer, sku: String}"


def loaded(job: str) -> Snapshot:
    folder = UPGRADE_JOBS / job
    return Snapshot.load(savepoint(folder), jars=[folder / "job.jar"])


def dumped(upgraded: Snapshot) -> list[dict[str, Any]]:
    return json.loads(json.dumps([line for each in upgraded.operators for line in each.dump()]))


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_the_upgraded_state_is_what_flink_holds(job: Path, tmp_path: Path) -> None:
    path = SavepointUpgrade(loaded(job.name)).write(tmp_path / "out")
    upgraded = Snapshot.load(path, jars=[job / "job.jar"])
    assert upgraded.kryo.dialect is Dialect.KRYO_5
    truth = json.loads((job / "truth.json").read_bytes())["entries"]
    assert lines(dumped(upgraded)) == lines(truth)


@pytest.mark.parametrize(("to", "version"), [("2.0", 5), ("2.1", 6), ("2.2", 6), ("2.3", 6)])
def test_the_metadata_has_the_version_of_the_target(to: str, version: int, tmp_path: Path) -> None:
    """As real Flink 2.0.2, 2.1.3, 2.2.1 and 2.3.0 write it."""
    source = loaded("orders")
    upgraded = Snapshot.load(SavepointUpgrade(source, to).write(tmp_path / "out"))
    assert upgraded.metadata.version == version
    assert upgraded.metadata.properties == source.metadata.properties


def test_metadata_without_properties_gets_those_of_a_savepoint(tmp_path: Path) -> None:
    """Versions of Flink that write version 3 have none."""
    source = loaded("orders")
    source.metadata = replace(source.metadata, version=3, properties=None)
    upgraded = Snapshot.load(SavepointUpgrade(source).write(tmp_path / "out"))
    theirs = Snapshot.load(snapshot("a-hashmap-canonical-flink1.20.5")).metadata.properties
    assert upgraded.metadata.properties == theirs


def test_the_plan_has_the_types_of_the_same_job_in_flink_2() -> None:
    """The types that Flink 2.2.1 puts into the headers of this job."""
    steps = {step.state: step for step in SavepointUpgrade(loaded("carts")).plan()}
    assert {name: step.new for name, step in steps.items() if step.action == "convert"} == {
        "items": f"Nullable<List<Nullable<{LINE}>>>",
        "log": "Kryo<java.util.ArrayList>",
        "nested": "Kryo<java.util.Map>",
        "pair": "Tuple2<String, Nullable<List<Nullable<Long>>>>",
        "raw": "Kryo<java.util.List>",
        "seen": "Nullable<Set<Integer>>",
        "totals": "Nullable<Map<Nullable<String>, Long>>",
    }


def test_fields_of_a_pojo_get_the_types_of_its_class() -> None:
    [step] = [s for s in SavepointUpgrade(loaded("orders")).plan() if s.state == "order"]
    assert step.new == (
        f"orders.Order{{attributes: Nullable<Map<Nullable<String>, String>>, first: {ITEM}, "
        f"id: Long, items: Nullable<List<Nullable<{ITEM}>>>, secret: String, "
        "status: Enum<orders.Status>, tags: Nullable<Set<String>>, total: Double}"
    )


def stored(upgraded: Snapshot, states: set[str]) -> dict[tuple[str, bytes], Any]:
    """The records of some states as bytes."""
    records = {}
    for operator in upgraded.operators:
        for handle in operator.keyed_handles:
            restored = operator.restore([handle], handle.key_group_range)
            for table in restored.tables.values():
                if table.meta.name in states:
                    for key_group in handle.key_group_range:
                        for key, value in table.records(key_group):
                            records[table.meta.name, key] = value
    return records


def test_what_does_not_change_is_copied_byte_for_byte(tmp_path: Path) -> None:
    source = loaded("orders")
    upgrade = SavepointUpgrade(source)
    kept = {step.state for step in upgrade.plan() if step.action == "keep"}
    assert {"byItem", "count", "_timer_state/event_user-timers"} <= kept
    after = Snapshot.load(upgrade.write(tmp_path / "out"))
    assert stored(after, kept) == stored(source, kept)
    assert len(stored(source, kept)) > 30
    assert upgrade.converted == {("bc4197a480c92c793190a9f8c0afc54c", "order"): 8}


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_kernels_write_the_bytes_that_single_objects_become(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each handle of the metadata has the bytes, or the name of a file that has them."""
    upgrades = []
    for limit in (1 << 40, 0):
        monkeypatch.setattr(converted_state, "KERNELS_FROM_BYTES", limit)
        upgrade = SavepointUpgrade(loaded(job.name))
        path = Path(upgrade.write(tmp_path / str(limit)))
        keyed = [
            (handle.offsets.offsets, operator.snapshot.resolver.read(handle.stream))
            for operator in Snapshot.load(path).operators
            for handle in operator.keyed_handles
        ]
        upgrades.append((upgrade.converted, keyed))
    assert upgrades[0] == upgrades[1]


def test_a_damaged_value_is_the_same_sentence_with_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(savepoint(UPGRADE_JOBS / "orders"), tmp_path / "in")
    name = b"java.util.HashMa\xf0"
    for file in folder.iterdir():
        raw = file.read_bytes()
        file.write_bytes(raw.replace(name + b"\x01\x03", name + b"\x01\x7f"))
    said = []
    for limit in (1 << 40, 0):
        monkeypatch.setattr(converted_state, "KERNELS_FROM_BYTES", limit)
        source = Snapshot.load(folder, jars=[UPGRADE_JOBS / "orders" / "job.jar"])
        with pytest.raises(FormatError) as caught:
            SavepointUpgrade(source).write(tmp_path / str(limit))
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert "A Kryo value of java.util.Map does not follow the layout of its classes" in said[0]


def test_a_state_is_left_out_by_its_name_only(tmp_path: Path) -> None:
    upgrade = SavepointUpgrade(loaded("carts"), drop=["raw"])
    [step] = [each for each in upgrade.plan() if each.state == "raw"]
    assert step.action == "drop"
    after = Snapshot.load(upgrade.write(tmp_path / "out"))
    names = {info.name for operator in after.operators for info in operator.states}
    assert {"items", "log", "nested", "pair", "seen", "totals"} <= names
    assert "raw" not in names
    timers = "_timer_state/event_user-timers"
    without = SavepointUpgrade(loaded("orders"), drop=[timers]).write(tmp_path / "timers")
    assert not any(operator.has_state(timers) for operator in Snapshot.load(without).operators)
    assert dumped(Snapshot.load(without))
    with pytest.raises(ConfigError, match="no state has the name 'nothing'; the snapshot has: "):
        SavepointUpgrade(loaded("carts"), drop=["nothing"])


def refused(source: Snapshot, **types: str) -> str:
    [step] = [s for s in SavepointUpgrade(source, types=types).plan() if s.state in types]
    assert step.action == "blocked"
    return step.reason


def test_types_that_no_class_shows_are_named(tmp_path: Path) -> None:
    folder = JDK_JOBS / "undeclared"
    source = Snapshot.load(savepoint(folder), jars=[folder / "job.jar"])
    blocked = {s.state: s.reason for s in SavepointUpgrade(source).plan() if s.action == "blocked"}
    assert set(blocked) == {"lines", "pair", "groups", "log"}
    assert "or name the type: --type " in blocked["groups"]
    assert "/groups=Set<..>'" in blocked["groups"]
    steps = SavepointUpgrade(source, types=JDK_TYPES["undeclared"]).plan()
    line = "undeclared.Line{amount: Long, product: String}"
    assert {step.state: step.new for step in steps if step.action == "convert"} == {
        "lines": f"Nullable<List<Nullable<{line}>>>",
        "pair": "Tuple2<String, Nullable<List<Nullable<Long>>>>",
        "groups": "Map<String, Nullable<Set<Long>>>",
        "log": f"List<Nullable<Map<Nullable<String>, {line}>>>",
    }
    of_flink = SavepointUpgrade(source, types={"lines": "Types.LIST<undeclared.Line>"})
    assert f"List<{line}>" in [step.new for step in of_flink.plan()]


def test_a_field_whose_class_is_missing_is_named() -> None:
    source = Snapshot.load(savepoint(UPGRADE_JOBS / "silent"))
    assert all(step.action != "blocked" for step in SavepointUpgrade(source).plan())
    orders = Snapshot.load(savepoint(UPGRADE_JOBS / "orders"))
    [step] = [each for each in SavepointUpgrade(orders).plan() if each.state == "order"]
    assert "java.util.Map in orders.Order.attributes holds" in step.reason
    assert "--type 'orders.Order.attributes=Map<.., ..>'" in step.reason
    types = {"orders.Order.attributes": "Map<String, String>", "orders.Order.tags": "Set<String>"}
    [step] = [s for s in SavepointUpgrade(orders, types=types).plan() if s.state == "order"]
    assert "java.util.List in orders.Order.items holds" in step.reason


def test_named_types_that_do_not_fit_are_one_sentence(tmp_path: Path) -> None:
    carts = loaded("carts")
    assert "has java.util.List, got java.util.Map" in refused(carts, items="Map<String, Long>")
    assert "has java.util.ArrayList, got java.util.Map" in refused(carts, log="Map<String, Long>")
    missing = {"items": "List<carts.Nope>"}
    assert "Class carts.Nope of the job is not in its jar" in refused(carts, **missing)
    with pytest.raises(SavepointError, match=r"carts\.Nope of the job is not in its jar"):
        SavepointUpgrade(carts, types=missing).write(tmp_path / "missing")
    wrong = SavepointUpgrade(carts, types={"seen": "Set<Long>"})
    with pytest.raises(FormatError, match=r"class java\.lang\.Integer does not fit the type java"):
        wrong.write(tmp_path / "wrong")
    for text, said in (
        ("List<int>", "int is no type argument"),
        ("Map<String>", "expected 2, got 1"),
        ("List<", r"\(types\) is malformed: expected a Java type"),
        ("List<String>>", r"\(types\) is malformed: expected a Java type"),
        ("", r"\(types\) is malformed: expected a Java type"),
        ("List<" * 40 + "String" + ">" * 40, r"\(types\) is malformed: expected a Java type"),
    ):
        with pytest.raises(ConfigError, match=said):
            SavepointUpgrade(carts, types={"items": text})
    with pytest.raises(
        ConfigError, match=r"no state has the name 'nothing'; .* or CLASS.FIELD for a fi"
    ):
        SavepointUpgrade(carts, types={"nothing": "List<String>"})


def test_a_type_of_a_state_that_says_its_own_is_refused() -> None:
    """It was ignored, and the person who named it did not see that the state has another type."""
    for job, name, text, seen in (
        ("orders", "count", "String", "Long"),
        ("orders", "order", "orders.Order", "orders.Order{"),
        ("carts", "log", "String", "Kryo<java.util.ArrayList>"),
        ("sessions", "session", "sessions.Other", "Kryo<sessions.Session>"),
    ):
        said = f"got {name}={text}, but .*/{name} is value of {seen}.*; leave it out"
        with pytest.raises(ConfigError, match=said):
            SavepointUpgrade(loaded(job), types={name: text})
    SavepointUpgrade(loaded("sessions"), types={"session": "sessions.Session"})


def test_the_command_takes_types(run: Any) -> None:
    folder = JDK_JOBS / "undeclared"
    arguments = ["upgrade", str(savepoint(folder)), "--plan", "--jar", str(folder / "job.jar")]
    assert run(*arguments).code == 1
    for name, text in JDK_TYPES["undeclared"].items():
        arguments += ["--type", f"{name}={text}"]
    assert run(*arguments).code == 0
    assert "expected NAME=TYPE" in run(*arguments, "--type", "lines").err


def test_without_the_jar_states_are_blocked_and_nothing_is_written(tmp_path: Path) -> None:
    upgrade = SavepointUpgrade(Snapshot.load(savepoint(UPGRADE_JOBS / "sessions")))
    blocked = {step.state: step.reason for step in upgrade.plan() if step.action == "blocked"}
    assert set(blocked) == {"session", "events", "byName"}
    assert "Class sessions.Session of the job is needed" in blocked["session"]
    with pytest.raises(SavepointError, match="states blocked in all: 3"):
        upgrade.write(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_state_in_files_of_rocksdb_is_brought_into_canonical_form(tmp_path: Path) -> None:
    source = Snapshot.load(snapshot("a-rocksdb-native-incremental"))
    # As if it were of Flink 1.x: the forms of the files are the same.
    source.kryo = KryoClasses(Dialect.KRYO_2, source.kryo.layouts)
    upgrade = SavepointUpgrade(source, drop=["a-keyed/names"])
    after = Snapshot.load(upgrade.write(tmp_path / "out"))
    assert after["a-keyed"].form() == "canonical"
    expected = [line for line in dumped(source) if line.get("state") != "names"]
    assert as_lines(dumped(after)) == as_lines(expected)
    assert len(expected) < len(dumped(source))


def test_a_savepoint_of_flink_2_needs_no_upgrade() -> None:
    with pytest.raises(ConfigError, match=r"of Flink 2\.x already"):
        SavepointUpgrade(Snapshot.load(snapshot("x-kryo-hashmap")))
    with pytest.raises(ConfigError, match=r"expected 2.0, 2.1, 2.2, 2.3, got '1.20'"):
        SavepointUpgrade(loaded("orders"), to="1.20")


def test_the_command_plans_and_converts(run: Any, tmp_path: Path) -> None:
    job = shutil.copytree(UPGRADE_JOBS / "silent", tmp_path / "silent")
    path, jar, out = str(savepoint(job)), str(job / "job.jar"), str(tmp_path / "out")
    plan = run("upgrade", path, "--plan", "--jar", jar, "--json")
    states = {each["state"]: each["action"] for each in json.loads(plan.out)["states"]}
    assert (plan.code, states["basket"], states["names"]) == (0, "convert", "convert")
    assert not Path(out).exists()
    without = str(savepoint(UPGRADE_JOBS / "sessions"))
    assert run("upgrade", without, "--plan").code == 1
    ran = run("upgrade", path, out, "--jar", jar)
    assert (ran.code, "16 entries converted" in ran.out) == (0, True)
    assert run("upgrade", path, out, "--jar", jar).code == 2
    assert run("upgrade", path, out, "--jar", jar, "--overwrite").code == 0
    assert "OUT is missing" in run("upgrade", path).err
