"""Correlations and covariances are those of NumPy, however rows are cut into epochs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dstl_core import AggregateOperator, LocalEngine, StatefulJob, aggregates
from dstl_core.job.spec.operators import LocalCopies

SEED, KEYS, ROWS = 36, 40, 3_000
WANTED = {"r": aggregates.corr("x", "y"), "c": aggregates.covar_samp("x", "y")}
SCHEMA = pa.schema({"k": pa.int64(), "x": pa.float64(), "y": pa.int32()})


def rows() -> pa.Table:
    """Values that depend on each other more with each key, with nulls; key 0 has one row."""
    source = np.random.default_rng(SEED)
    keys = np.concatenate([[0], source.integers(1, KEYS, ROWS)])
    y = source.integers(-1_000, 1_000, len(keys))
    x = 1e6 + y * keys / KEYS + source.normal(0, 100, len(keys))
    # All values of a key are equal.
    x[keys == 1] = 0.1
    missing = source.random((2, len(keys))) < 0.1
    missing[:, 0] = False
    columns = pa.array(keys), pa.array(x, mask=missing[0]), pa.array(y, pa.int32(), mask=missing[1])
    return pa.Table.from_arrays(list(columns), schema=SCHEMA)


@pytest.mark.parametrize("epochs", [1, 7])
def test_they_are_what_numpy_gives(tmp_path: Path, epochs: int) -> None:
    table = rows()
    operator = AggregateOperator("u", "k", WANTED, schema=SCHEMA, output=True)
    copies = LocalCopies(str(tmp_path / "local"))
    job = StatefulJob(LocalEngine(), "job", str(tmp_path), operator, local_copies=copies)
    for epoch in range(epochs):
        job.run(table.take(np.arange(epoch, len(table), epochs)), epoch)
    by_key = {row["k"]: row for row in job.current_output()["u"].to_arrow().to_pylist()}
    assert len(by_key) == KEYS
    for key in range(KEYS):
        pairs = np.array(
            [
                (row["x"], row["y"])
                for row in table.to_pylist()
                if row["k"] == key and None not in row.values()
            ]
        )
        if key == 0:
            assert (len(pairs), by_key[0]["r"], by_key[0]["c"]) == (1, None, None)
            continue
        assert by_key[key]["c"] == pytest.approx(np.cov(pairs.T)[0, 1], rel=1e-9, abs=1e-6)
        wanted = None if key == 1 else pytest.approx(np.corrcoef(pairs.T)[0, 1], rel=1e-9)
        assert by_key[key]["r"] == wanted, "one value has no variance"
