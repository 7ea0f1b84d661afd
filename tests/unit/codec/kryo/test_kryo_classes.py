"""Values of random classes by real Flink; it read their upgraded bytes as the same values."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.golden_files import GOLDEN
from tests.kryo_upgrades import ValueUpgrade

FOLDER = GOLDEN / "kryo-classes"
Case = tuple[str, bytes, bytes, bytes, bytes]


def cases() -> Iterator[Case]:
    """Class, snapshot and value of Flink 1.20, and those for Flink 2.2."""
    snapshots: dict[str, tuple[bytes, bytes]] = {}
    for line in map(json.loads, (FOLDER / "values.jsonl").read_text().splitlines()):
        name = line["class"]
        if "snapshot" in line:
            snapshots[name] = (
                bytes.fromhex(line["snapshot"]),
                bytes.fromhex(line["upgraded_snapshot"]),
            )
        value, upgraded = (bytes.fromhex(line[part]) for part in ("value", "upgraded"))
        yield name, snapshots[name][0], value, snapshots[name][1], upgraded


def test_upgraded_values_are_those_that_flink_read() -> None:
    upgrade = ValueUpgrade(FOLDER / "job.jar")
    all_cases = list(cases())
    assert len(all_cases) > 170
    for name, snapshot, value, *upgraded in all_cases:
        assert list(upgrade.upgraded(snapshot, value)) == upgraded, name
