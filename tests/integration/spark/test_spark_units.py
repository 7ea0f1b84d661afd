"""Units of savepoints on Spark: the bytes and the answers of one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dstl_core import Snapshot, verify_snapshot
from dstl_core.errors import ConfigError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.access.units import Unit
from dstl_core.savepoint.check.diff import diff_snapshots
from dstl_core.savepoint.edit import keyed_units
from dstl_core.savepoint.edit.savepoint_edit import edit_savepoint
from dstl_core.savepoint.read import entry_reader
from dstl_core.savepoint.write import work_record
from dstl_core.spark.savepoints.spark_units import SparkUnits
from tests.golden_files import snapshot

pytestmark = pytest.mark.spark
SOURCE = "a-rocksdb-native-incremental"


@pytest.fixture(autouse=True)
def _several_units(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (keyed_units, entry_reader):
        monkeypatch.setattr(module, "BYTES_AT_ONCE", 40_000)
    monkeypatch.setattr(work_record.secrets, "token_hex", lambda size: "a1" * size)


def _tree(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


@pytest.mark.parametrize("max_parallelism", [None, 200])
def test_a_rewriting_has_the_same_bytes(
    spark: SparkSession, max_parallelism: int | None, tmp_path: Path
) -> None:
    edit = edit_savepoint(Snapshot.load(snapshot(SOURCE))).with_files("canonical")
    if max_parallelism is not None:
        edit = edit.with_max_parallelism(max_parallelism)
    edit.write(tmp_path / "expected")
    edit.write(tmp_path / "out", jobs=SparkUnits(spark))
    assert _tree(tmp_path / "out") == _tree(tmp_path / "expected")


def test_answers_are_those_of_one_process(spark: SparkSession) -> None:
    one, two = (Snapshot.load(snapshot(name)) for name in (SOURCE, "a-rocksdb-canonical"))
    runner = SparkUnits(spark)
    assert verify_snapshot(one, jobs=runner).to_json() == verify_snapshot(one).to_json()
    compared = [each.to_json() for each in diff_snapshots(one, two, jobs=runner)]
    assert compared == [each.to_json() for each in diff_snapshots(one, two)]


def test_an_error_of_a_unit_is_raised_here(spark: SparkSession) -> None:
    def refused(unit: Unit) -> None:
        raise ConfigError(f"Unit {unit.handle} is refused.")

    units = [Unit(at, KeyGroupRange(0, 1), 1) for at in range(2)]
    with pytest.raises(ConfigError, match=r"Unit 0 is refused\."):
        list(SparkUnits(spark)(refused, units))
