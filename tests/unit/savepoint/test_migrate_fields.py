"""A new field of a POJO has the value that Java gives it, and the plan says which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.savepoint.migrate.proposal.proposal import propose
from tests.migrated_fields import KEPT, OLD, USER, migration_to, savepoint


@pytest.mark.parametrize(
    ("kind", "default", "text"),
    [
        (Types.INT, 0, "0"),
        (Types.LONG, 0, "0"),
        (Types.SHORT, 0, "0"),
        (Types.BYTE, 0, "0"),
        (Types.CHAR, "\0", "'\\0'"),
        (Types.FLOAT, 0.0, "0.0"),
        (Types.DOUBLE, 0.0, "0.0"),
        (Types.BOOLEAN, False, "false"),
        (Types.STRING, None, "null"),
        (Types.BIG_DEC, None, "null"),
        (Types.NULLABLE(Types.LIST(Types.NULLABLE(Types.STRING))), None, "null"),
    ],
    ids=str,
)
def test_a_new_field_has_the_default_that_the_plan_names(
    kind: AnySerializer, default: Any, text: str, tmp_path: Path
) -> None:
    new = Types.POJO(USER, kept=Types.LONG, added=kind)
    out = migration_to(new, tmp_path).write(tmp_path / "out")
    [entry] = Snapshot.load(out)["op"].dump()
    assert entry["value"] == {**KEPT, "added": default}
    old, template = savepoint(tmp_path / "a", OLD, None), savepoint(tmp_path / "b", new, None)
    assert f"field 'added' is new: it is {text}" in propose(old, template).text
