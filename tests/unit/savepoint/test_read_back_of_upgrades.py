"""Values that stay in Kryo are read back by their keys, by checksums and by some of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.codec.columnar.kryo.section_converter import SectionConverter
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_canonical import read_section, write_section
from dstl_core.errors import SavepointError
from dstl_core.savepoint.edit import converted_state
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.savepoint.verify.range_check import RangeCheck
from dstl_core.savepoint.write import folder
from dstl_core.state.restore import kernel_sizes
from tests.golden_files import UPGRADE_JOBS
from tests.rotten_store import HOW, rotten_store
from tests.unit.savepoint.test_job_values import savepoint

OUT = "rotten://s/out"
JOB = UPGRADE_JOBS / "times"
REFUSED = "nothing was published"


@pytest.fixture(autouse=True)
def _all_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "DATA_INLINE_THRESHOLD", 0)
    monkeypatch.setattr(converted_state, "KERNELS_FROM_BYTES", 0)
    for name in ("FROM_BYTES", "LOADED_FROM_BYTES"):
        monkeypatch.setattr(kernel_sizes, name, 0)


def upgrade(job: Path = JOB, *, keeps_compression: bool = False) -> None:
    source = Snapshot.load(savepoint(job), jars=[job / "job.jar"])
    SavepointUpgrade(source).write(OUT, "overwrite", keep_compression=keeps_compression)


def test_no_value_is_read_record_by_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RangeCheck, "_entries", lambda *_: pytest.fail("a range was"))
    with rotten_store(None) as files:
        upgrade()
        assert f"{OUT}/_metadata" in files.store


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("keeps_compression", [False, True])
def test_what_the_store_damages_is_not_published(how: str, keeps_compression: bool) -> None:
    with rotten_store(None) as files:
        upgrade(keeps_compression=keeps_compression)
        count = len(files.written)
    assert count
    for victim in range(count):
        with rotten_store(victim, how) as files:
            with pytest.raises(SavepointError, match=REFUSED):
                upgrade(keeps_compression=keeps_compression)
            assert files.store == {}


@pytest.mark.parametrize("job", ["times", "sessions", "registered"])
def test_values_that_kernels_write_wrongly_are_not_published(
    job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All values of the other two jobs stay in Kryo."""
    right = SectionConverter.converted

    def wrong(self: SectionConverter, raw: bytes) -> Any:
        done = right(self, raw)
        if done is None or not done[1]:
            return done
        runs: dict[int, list[tuple[bytes, bytes]]] = {}
        for record in read_section(DataInput(done[0]), 1 << 15):
            runs.setdefault(record.state_id, []).append((record.key, record.value[:-1]))
        return write_section(runs.items()), done[1]

    monkeypatch.setattr(SectionConverter, "converted", wrong)
    with rotten_store(None) as files:
        with pytest.raises(SavepointError, match=REFUSED):
            upgrade(UPGRADE_JOBS / job)
        assert files.store == {}
