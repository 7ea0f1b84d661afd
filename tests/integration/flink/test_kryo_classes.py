"""Values of random classes: Kryo of Flink 1.20 writes them, real Flink 2.2 reads them upgraded.

A value that the upgrade refuses is one that real Flink 2.2 does not hold: written and read by it
alone, it is another value or an error. Nor does it hold some arrays of numbers of fixed width, by
where they stand: ``NoFetchingInput`` then asks its stream for fewer than no bytes.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from dstl_core.errors import UnreadableValueError
from tests.integration.flink.checker import find_jars
from tests.integration.flink.kryo_classes import compile_classes, exchange, random_classes
from tests.integration.flink.releases import jars_of
from tests.kryo_upgrades import ValueUpgrade
from tests.unit.codec.columnar.test_kryo_converter import Converter

pytestmark = pytest.mark.flink
OLD_RELEASE = "1.20.5"
VALUES = 3
"""Of a class."""


def upgrade_random_classes(folder: Path, seed: int, count: int) -> Counter[str]:
    """Asserts that every value is the same after the upgrade; returns how many came to what."""
    classes = random_classes(seed, count)
    jar = compile_classes(classes, folder)
    asked = [f"{name}\t{at}" for name in classes.names for at in range(VALUES)]
    outcomes: Counter[str] = Counter()
    upgrade, lines, refused, shown = ValueUpgrade(jar), [], {}, {}
    for name, at, outcome, *parts in exchange("write", jars_of(OLD_RELEASE), jar, asked):
        outcomes[outcome] += 1
        if outcome == "skipped":
            continue
        snapshot, stored, shown[name, at] = (bytes.fromhex(part) for part in parts)
        try:
            new = upgrade.upgraded(snapshot, stored)
        except UnreadableValueError as error:
            refused[name, at] = str(error)
            continue
        old, change = upgrade.change(snapshot)
        if change.convert is not None:
            assert Converter(old, change.new).converted([stored]) in ([None], [new[1]]), (name, at)
        lines.append("\t".join((name, at, new[0].hex(), new[1].hex(), parts[2])))
    wrong = {}
    for name, at, outcome, *parts in exchange("read", find_jars(), jar, lines):
        outcomes[outcome] += 1
        if outcome != "equal":
            wrong[name, at] = bytes.fromhex(parts[0]).decode(), shown[name, at].decode()
    doubtful = [*wrong, *refused]
    for name, at, outcome, *_ in exchange("hold", find_jars(), jar, map("\t".join, doubtful)):
        if (name, at) in refused:
            outcomes["refused"] += 1
            if outcome == "equal":
                wrong[name, at] = refused[name, at], "Flink holds it"
        elif outcome != "equal":
            outcomes["not held by Flink itself"] += 1
            del wrong[name, at]
    for (name, at), why in wrong.items():
        pytest.fail(
            f"seed {seed}, {len(wrong)} values, e.g. {name} {at}: {why}\n"
            f"{classes.sources[name[2:]]}"
        )
    return outcomes


def test_kryo_5_reads_the_values_of_random_classes_after_the_upgrade(tmp_path: Path) -> None:
    outcomes = upgrade_random_classes(tmp_path, seed=35, count=60)
    assert outcomes["equal"] > 0.8 * VALUES * 60, outcomes


@pytest.mark.soak
def test_kryo_5_reads_the_values_of_many_classes_after_the_upgrade(
    tmp_path: Path, soak_seed: int, soak_seconds: float
) -> None:
    ends = time.monotonic() + soak_seconds
    run = 0
    while run == 0 or time.monotonic() < ends:
        outcomes = upgrade_random_classes(tmp_path / str(run), 1000 * soak_seed + run, 300)
        assert outcomes["equal"] > 0.8 * VALUES * 300, (run, outcomes)
        run += 1
