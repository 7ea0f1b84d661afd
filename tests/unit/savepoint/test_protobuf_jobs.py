"""Messages of Protocol Buffers in state are read by a descriptor set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from dstl_core import Snapshot
from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.job_types import with_job_types
from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.codec.kryo.kryo_serializer import KryoClasses
from dstl_core.codec.protobuf.descriptors import read_descriptor_sets
from dstl_core.codec.serializers import BUILT_IN, SnapshotContext, deserialize_exactly
from dstl_core.errors import ConfigError
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from tests.command_line import is_one_sentence, run
from tests.golden_files import GOLDEN

__all__ = ["run"]

JOB = GOLDEN / "proto-jobs"
[PATH] = map(str, JOB.glob("savepoint-*"))
DESC = str(JOB / "shop.desc")
TYPES = {
    "raw": "shop.Order",
    "raws": "shop.Line",
    "prefixed": "shop.Order",
    "delimited": "shop.Order",
}
OPTIONS = [part for name, text in TYPES.items() for part in ("--type", f"{name}={text}")]


def truth() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((JOB / "truth.json").read_bytes())["entries"]
    return entries


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def in_order(entries: Any) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in entries)


def test_a_dump_has_the_messages_that_the_job_kept(run: Any) -> None:
    """A length in front is not in the file of the type, so the way that fits is named."""
    ran = run("dump", PATH, "--proto", DESC, *OPTIONS)
    dumped = lines(ran.out)
    guesses = {each["state"]: each.pop("guess") for each in dumped if "guess" in each}
    assert (ran.code, ran.err, len(dumped)) == (0, "", 35)
    assert in_order(dumped) == in_order(truth())
    assert guesses == {
        "prefixed": "shop.Order, i32 length",
        "delimited": "shop.Order, varint length",
    }


def test_messages_in_kryo_need_no_type(run: Any) -> None:
    """The file names their Java classes, and the descriptor set says which these are."""
    ran = run("dump", PATH, "--proto", DESC)
    kept = {"kryo", "lines", "byId"}
    assert in_order(each for each in lines(ran.out) if each["state"] in kept) == in_order(
        line for line in truth() if line["state"] in kept
    )
    assert [name for name in ("prefixed", "delimited") if name in ran.err] == [
        "prefixed",
        "delimited",
    ]
    assert all(isinstance(each["value"], str) for each in lines(ran.out) if each["state"] == "raw")


def test_a_default_serializer_of_messages_is_theirs() -> None:
    """A job has it for Message, by its class or as an object; the file names both."""
    messages = read_descriptor_sets({"shop.desc": Path(DESC).read_bytes()})
    layouts = ClassLayouts(JobClasses([]), messages=messages)
    registry = with_job_types(BUILT_IN, KryoClasses(Dialect.KRYO_2, layouts))
    rows = [line.split("\t") for line in (JOB / "serializers.tsv").read_text().splitlines()]
    for _, raw, snapshot in rows:
        kind = SnapshotContext(registry).read_snapshot(DataInput(bytes.fromhex(snapshot)))
        value = deserialize_exactly(kind, bytes.fromhex(raw))
        assert kind.to_text(value) == {"sku": "abc", "quantity": 7}
    assert [case for case, *_ in rows] == ["default", "message", "object", "declared"]


def test_without_a_descriptor_set_it_is_as_before(run: Any) -> None:
    ran = run("dump", PATH)
    assert {each["state"] for each in lines(ran.out)} == {"raw", "raws"}
    assert "Kryo serializer of its own" in ran.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--proto", str(JOB / "shop-noimports.desc")], "lacks google.protobuf.Timestamp"),
        (["--proto", str(JOB / "shop.proto")], "is no descriptor set"),
        (["--proto", "nothing.desc"], "--descriptor_set_out=FILE.desc. [file:"),
        (["--proto", DESC, "--type", "raw=shop.Nothing"], "no message of the descriptor sets"),
        (["--proto", DESC, "--type", "rawer=shop.Order"], "no operator with keyed state has"),
    ],
)
def test_a_wrong_option_is_one_sentence(options: list[str], message: str, run: Any) -> None:
    ran = run("dump", PATH, *options)
    assert ran.code == 2
    assert message in ran.err
    assert is_one_sentence(ran.err)


def test_values_that_are_another_message_cost_their_state_alone(run: Any) -> None:
    ran = run("dump", PATH, "--proto", DESC, "--type", "raw=shop.Line", "--type", "raws=shop.Line")
    states = {each["state"] for each in lines(ran.out)}
    assert "raws" in states
    assert all("@unknown" in each["value"] for each in lines(ran.out) if each["state"] == "raw")
    ran = run("dump", PATH, "--proto", DESC, "--type", "raw=google.protobuf.Timestamp")
    assert {"kryo", "lines", "byId", "raws"} <= {each["state"] for each in lines(ran.out)}


def test_diff_shows_messages(run: Any, tmp_path: Path) -> None:
    raw = (Path(PATH) / "_metadata").read_bytes()
    changed = raw.replace(b"\x0a\x03r11\x10\x0b", b"\x0a\x03r11\x10\x0c")
    assert changed != raw
    (tmp_path / "_metadata").write_bytes(changed)
    ran = run("diff", PATH, str(tmp_path), "--json", "--proto", DESC, *OPTIONS)
    [line] = [each for each in lines(ran.out) if each.get("state") == "raws"]
    assert line["before"][-1] == {"sku": "r11", "quantity": 11}
    assert line["after"][-1] == {"sku": "r11", "quantity": 12}


def test_descriptor_sets_are_an_argument_of_load() -> None:
    loaded = Snapshot.load(PATH, protos=[DESC], state_types={"raw": "shop.Order"})
    operator = next(each for each in loaded.operators if each.states)
    assert in_order(operator.dump("raw")) == in_order(
        line for line in truth() if line["state"] == "raw"
    )


def test_an_upgrade_needs_a_word_about_messages_of_kryo(run: Any) -> None:
    """Kryo of Flink 2.x has no chill, so their bytes stay, and only if a person says so."""
    for options, advice in (
        ([], "a descriptor set explains"),
        (["--proto", DESC], "--type 'STATE=byte[]'"),
    ):
        ran = run("upgrade", PATH, "--to", "2.2", "--plan", "--json", *options)
        steps = {line["state"]: line for line in json.loads(ran.out)["states"]}
        blocked = {name for name, step in steps.items() if step["action"] == "blocked"}
        assert (ran.code, blocked) == (1, {"kryo", "lines", "byId"})
        assert all(advice in steps[name]["reason"] for name in blocked)
    named = ("--type", "kryo=String", "--type", "lines=byte[]", "--type", "byId=byte[]")
    ran = run("upgrade", PATH, "--to", "2.2", "--plan", "--json", "--proto", DESC, *named)
    steps = {line["state"]: line["action"] for line in json.loads(ran.out)["states"]}
    assert [steps[name] for name in ("kryo", "lines", "byId")] == ["blocked", "convert", "blocked"]


TO_BYTES = ["kryo=byte[]", "lines=byte[]", "byId=Map<Long, byte[]>"]
OF_KRYO = {"kryo": "shop.Order", "lines": "shop.Line", "byId": "shop.Order"}


def test_messages_of_kryo_become_their_bytes(run: Any, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    named = [part for text in TO_BYTES for part in ("--type", text)]
    ran = run("upgrade", PATH, out, "--to", "2.2", "--proto", DESC, *named)
    assert (ran.code, ran.err) == (0, "")
    types = [part for pair in (TYPES | OF_KRYO).items() for part in ("--type", "=".join(pair))]
    ran = run("dump", out, "--proto", DESC, *types)
    dumped = [line for line in lines(ran.out) if line.pop("guess", None) is not False]
    assert (ran.code, ran.err) == (0, "")
    assert in_order(dumped) == in_order(truth())
    # The job kept the same message in both states, one by Kryo and one by itself.
    held = {each["state"]: {} for each in dumped}
    for line in lines(run("dump", out).out):
        held[line["state"]][line["key"]] = line["value"]
    assert held["kryo"] == held["raw"] != {}


# --------------------------------------------------------------------------------- columns

UNSET = {"id": 0, "customer": "", "status": "OPEN", "total": None, "raw": "", "check": 0}
UNSET |= {"lines": [], "tags": [], "card": None, "cash": None, "at": None, "codes": []}
LINE = pa.struct([("sku", pa.string()), ("quantity", pa.int32()), ("price", pa.float64())])
ORDER = pa.struct(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("lines", pa.list_(LINE)),
        ("tags", pa.map_(pa.string(), pa.int32())),
        ("status", pa.string()),
        ("total", pa.float64()),
        ("raw", pa.binary()),
        ("card", pa.string()),
        ("cash", pa.int64()),
        ("at", pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])),
        ("codes", pa.list_(pa.int32())),
        ("check", pa.uint64()),
        ("parent", pa.string()),
    ]
)


def as_order(text: dict[str, Any]) -> dict[str, Any]:
    """What the truth has of an order, with all of its fields, as Arrow gives it."""
    row = {**UNSET, **text}
    row["raw"] = bytes.fromhex(row["raw"])
    row["lines"] = [as_line(each) for each in row["lines"]]
    row["tags"] = [tuple(pair) for pair in row["tags"]]
    if row["at"] is not None:
        row["at"] = {"seconds": 0, "nanos": 0, **row["at"]}
    parent = text.get("parent")
    return row | {"parent": None if parent is None else json.dumps(parent, ensure_ascii=False)}


def as_line(text: dict[str, Any]) -> dict[str, Any]:
    return {"sku": "", "quantity": 0, "price": 0.0, **text}


def table_of(state: str | None, **options: Any) -> pa.Table:
    loaded = Snapshot.load(PATH, **options)
    [operator] = [each for each in loaded.operators if each.keyed_handles]
    reader = operator.keyed() if state is None else operator.flat(state)
    return pa.Table.from_batches(reader.read(), reader.schema)


def of_state(state: str) -> dict[str, Any]:
    return {line["key"]: line["value"] for line in truth() if line.get("state") == state}


@pytest.mark.parametrize("state", ["kryo", "raw", "prefixed", "delimited"])
def test_a_message_is_a_struct(state: str) -> None:
    table = table_of(state, protos=[DESC], state_types=TYPES)
    assert table.schema.field("state_value").type == ORDER
    rows = {row["state_key"]: row["state_value"] for row in table.to_pylist()}
    assert rows == {key: as_order(value) for key, value in of_state(state).items()}


def test_elements_and_entries_are_structs() -> None:
    options = {"protos": [DESC], "state_types": TYPES}
    for state in ("lines", "raws"):  # those of Kryo, and bytes
        table = table_of(state, **options)
        assert table.schema.field("list_value").type == LINE
        lists: dict[str, Any] = {}
        for row in table.to_pylist():
            lists.setdefault(row["state_key"], []).append(row["list_value"])
        assert lists == {key: [as_line(each) for each in of_state(state)[key]] for key in lists}
        assert len(lists) == 5
    pairs = {
        (row["state_key"], row["map_key"]): row["map_value"]
        for row in table_of("byId", **options).to_pylist()
    }
    assert pairs == {
        (key, name): as_order(value)
        for key, entry in of_state("byId").items()
        for name, value in entry
    }


def test_a_row_per_key_has_a_struct_for_each_state() -> None:
    table = table_of(None, protos=[DESC], state_types=TYPES)
    rows = {row["state_key"]: row for row in table.to_pylist()}
    assert table.schema.field("lines").type == pa.list_(LINE)
    for key, row in rows.items():
        assert row["kryo"] == as_order(of_state("kryo")[key])
        assert row["delimited"] == as_order(of_state("delimited")[key])
        assert row["lines"] == [as_line(each) for each in of_state("lines")[key]]
        assert row["raws"] == [as_line(each) for each in of_state("raws")[key]]
        assert dict(row["byId"]) == {name: as_order(each) for name, each in of_state("byId")[key]}
    assert len(rows) == 5


def test_without_a_descriptor_set_columns_are_bytes() -> None:
    assert pa.types.is_binary(table_of("raw").schema.field("state_value").type)
    assert pa.types.is_binary(table_of("kryo").schema.field("state_value").type)


# --------------------------------------------------------------------------- other versions


def other_version(tmp_path: Path) -> str:
    """shop.proto with ``count`` for ``quantity``, as ``sint64``, and a field more."""
    files = descriptor_pb2.FileDescriptorSet.FromString(Path(DESC).read_bytes())
    [line] = [
        message for file in files.file for message in file.message_type if message.name == "Line"
    ]
    [quantity] = [field for field in line.field if field.name == "quantity"]
    quantity.name, quantity.type = "count", descriptor_pb2.FieldDescriptorProto.TYPE_SINT64
    line.field.add(name="note", number=9, type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING)
    path = tmp_path / "new.desc"
    path.write_bytes(files.SerializeToString())
    return str(path)


def test_messages_become_those_of_another_version(tmp_path: Path) -> None:
    new = other_version(tmp_path)
    [operator] = [each.label for each in Snapshot.load(PATH).operators if each.keyed_handles]
    states = {
        "raws": {"value": "recode(value, shop.Line, shop.Line)"},
        "raw": {"value": "recode(value, shop.Order, shop.Order)"},
        "kryo": {"value": "recode(value, shop.Order, shop.Order)"},
        "lines": {"value": "recode(value, shop.Line, shop.Line)"},
        "byId": {"value": "recode(value, shop.Order, shop.Order)"},
    }
    declared = {
        "migration": 1,
        "protos": {"old": DESC, "new": new},
        "operators": {f"hash:{operator}": {"states": states}},
    }
    migration = SavepointMigration(Migration.of(declared), Snapshot.load(PATH))
    assert migration.plan.problems == []
    out = migration.write(tmp_path / "out")
    read = Snapshot.load(out, protos=[new], state_types={"raw": "shop.Order", "raws": "shop.Line"})
    [migrated] = [each for each in read.operators if each.keyed_handles]
    for state in states:
        assert in_order(migrated.dump(state)) == [
            text.replace('"quantity"', '"count"')
            for text in in_order(line for line in truth() if line["state"] == state)
        ]


OTHER_CLASS = "the state has messages of class pb.gen.Order, which is shop.Order, got 'shop.Line'"


@pytest.mark.parametrize(
    ("rule", "message", "state"),
    [
        ("recode(value, shop.Line, shop.Nothing)", "no message of protos.new", "raw"),
        ("recode(value, shop.Nothing, shop.Line)", "no message of protos.old", "raw"),
        ("recode(value, shop.Nothing, x)", "no message of protos.old", "raw"),
        ("recode(value, Nothing, x)", "is no type of PyFlink", "raw"),
        ("recode(value, shop.Order, shop.Line)", "(id) does not become sku", "raw"),
        ("recode(value, shop.Line, shop.Line)", OTHER_CLASS, "kryo"),
        ("recode(value, shop.Line, shop.Line)", OTHER_CLASS, "byId"),
    ],
)
def test_a_wrong_version_is_a_problem_of_the_plan(rule: str, message: str, state: str) -> None:
    [operator] = [each.label for each in Snapshot.load(PATH).operators if each.keyed_handles]
    declared = {
        "migration": 1,
        "protos": {"old": DESC, "new": DESC},
        "operators": {f"hash:{operator}": {"states": {state: {"value": rule}}}},
    }
    [problem] = SavepointMigration(Migration.of(declared), Snapshot.load(PATH)).plan.problems
    assert message in problem


def test_a_message_needs_descriptor_sets() -> None:
    [operator] = [each.label for each in Snapshot.load(PATH).operators if each.keyed_handles]
    rule = {"value": "recode(value, shop.Order, shop.Order)"}
    declared = {
        "migration": 1,
        "operators": {f"hash:{operator}": {"states": {"raw": rule}}},
    }
    [problem] = SavepointMigration(Migration.of(declared), Snapshot.load(PATH)).plan.problems
    assert "such as 'shop.Order' needs protos, the descriptor sets of both jobs" in problem


def test_a_set_of_one_version_alone_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected the descriptor sets of old and new"):
        Migration.of({"migration": 1, "protos": {"old": DESC}})
