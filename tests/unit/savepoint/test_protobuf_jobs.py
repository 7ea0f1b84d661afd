"""Messages of Protocol Buffers in state are read by a descriptor set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
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


def test_without_a_descriptor_set_it_is_as_before(run: Any) -> None:
    ran = run("dump", PATH)
    assert {each["state"] for each in lines(ran.out)} == {"raw", "raws"}
    assert "Kryo serializer of its own" in ran.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--proto", str(JOB / "shop-noimports.desc")], "lacks google.protobuf.Timestamp"),
        (["--proto", str(JOB / "shop.proto")], "is no descriptor set"),
        (["--proto", "nothing.desc"], "does not exist"),
        (["--proto", DESC, "--type", "raw=shop.Nothing"], "no message of the descriptor sets"),
        (["--proto", DESC, "--type", "rawer=shop.Order"], "no operator with keyed state has"),
    ],
)
def test_a_wrong_option_is_one_sentence(options: list[str], message: str, run: Any) -> None:
    ran = run("dump", PATH, *options)
    assert ran.code == 2
    assert message in ran.err
    is_one_sentence(ran.err)


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


def test_no_upgrade_converts_a_message_of_kryo(run: Any) -> None:
    ran = run("upgrade", PATH, "--to", "2.2", "--plan", "--json")
    blocked = {
        line["state"] for line in json.loads(ran.out)["states"] if line["action"] == "blocked"
    }
    assert {"kryo", "lines", "byId"} <= blocked
