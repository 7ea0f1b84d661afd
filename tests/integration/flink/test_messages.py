"""Messages that Kryo of Flink 1.20.5 kept with chill: real Flink 2.2.1 restores their bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from dstl_core import Snapshot
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from tests.integration.flink.checker import FlinkChecker, Operator, State
from tests.unit.savepoint.test_protobuf_jobs import DESC, PATH, TO_BYTES, truth

pytestmark = pytest.mark.flink
OWN_SERIALIZERS = ["prefixed", "delimited"]
"""Their classes are those of the job, which the checker does not have."""


def message_class(name: str) -> Any:
    """A class of protobuf for Python, by the descriptor set."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(Path(DESC).read_bytes()).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


@pytest.mark.parametrize(("backend", "parallelism"), [("hashmap", 1), ("rocksdb", 3)])
def test_flink_2_holds_the_bytes_of_the_messages(
    flink: FlinkChecker, tmp_path: Path, backend: str, parallelism: int
) -> None:
    source = Snapshot.load(PATH, protos=[DESC])
    types = dict(text.split("=", 1) for text in TO_BYTES)
    upgrade = SavepointUpgrade(source, "2.2", drop=OWN_SERIALIZERS, types=types)
    upgraded = upgrade.write(tmp_path / "up")
    [old] = [each for each in source.operators if each.keyed_handles]
    job = Operator(
        hash=old.label,
        key="string",
        states=[
            State("kryo", "value", "bytes"),
            State("raw", "value", "bytes"),
            State("lines", "list", "bytes"),
            State("raws", "list", "bytes"),
            State("byId", "map", "bytes", map_key="long"),
        ],
    )
    restored = flink.restore(upgraded, [job], backend=backend, parallelism=parallelism)
    held = {(entry["state"], entry["key"]): entry["value"] for entry in restored.entries}
    expected = {(entry["state"], entry["key"]): entry["value"] for entry in truth()}
    order, line = message_class("shop.Order"), message_class("shop.Line")
    assert len(held) == 25
    for (state, key), value in held.items():
        if state in ("kryo", "raw"):
            assert value == held["raw", key]  # the job gave the same message to both
            assert order.FromString(bytes.fromhex(value)).id == expected[state, key].get("id", 0)
        elif state == "byId":
            ids = {number: order.FromString(bytes.fromhex(raw)).id for number, raw in value}
            assert ids == {number: each.get("id", 0) for number, each in expected[state, key]}
        else:
            read = [line.FromString(bytes.fromhex(each)) for each in value]
            texts = expected[state, key]
            shown = [(text.get("sku", ""), text.get("quantity", 0)) for text in texts]
            assert [(each.sku, each.quantity) for each in read] == shown
