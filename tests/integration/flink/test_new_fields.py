"""Real Flink reads the default of a new field of each Java type, as the migration wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstl_core import Snapshot
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers import BUILT_IN
from dstl_core.codec.serializers.base import SnapshotContext
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.restore.into_tables import restore_keyed_state
from tests.integration.flink.type_pairs import Pairs, ask_flink
from tests.migrated_fields import DEFAULTS, KEPT, USER, migration_to, names

pytestmark = pytest.mark.flink

CLASSES = {
    "d/Inner.java": "package d; public class Inner { public int i; }",
    "d/Color.java": "package d; public enum Color { RED }",
}


def user(fields: dict[str, str]) -> dict[str, str]:
    members = " ".join(f"public {java} {name};" for name, java in fields.items())
    return {**CLASSES, "d/User.java": f"package d; public class User {{ {members} }}"}


def test_flink_reads_the_default_of_each_type_of_field(tmp_path: Path) -> None:
    kept = {"kept": "long"}
    pair = {
        "old": ["pojo", USER],
        "new": ["pojo", USER],
        "old_registered": [],
        "new_registered": [],
    }
    question = Pairs(user(kept), user(kept | names()), [pair])
    (tmp_path / "types").mkdir()
    [answer] = ask_flink(question, tmp_path / "types")
    assert answer["flink"] == "after migration"
    new = SnapshotContext(BUILT_IN).read_snapshot(DataInput(bytes.fromhex(answer["new"])))
    assert isinstance(new, PojoSerializer)

    out = migration_to(new, tmp_path).write(tmp_path / "out")
    raw = value_bytes(Snapshot.load(out))
    (tmp_path / "values").mkdir()
    question.values = [{"type": ["pojo", USER], "hex": raw.hex()}]
    [_, fields] = ask_flink(question, tmp_path / "values")
    expected = {"kept": str(KEPT["kept"])}
    assert fields == expected | dict(zip(names(), DEFAULTS.values(), strict=True))


def value_bytes(snapshot: Snapshot) -> bytes:
    handles = snapshot["op"].keyed_handles
    state = restore_keyed_state(handles, KeyGroupRange(0, 127), 128, snapshot.resolver)
    [table] = state.tables.values()
    [raw] = [value for group in table.groups.values() for value in dict(group).values()]
    assert isinstance(raw, bytes)
    return raw
