"""Spark's ``transformWithState`` in Python as a peer of epochs: by rows, and in pandas.

A query goes on from batch to batch, as users run it. A batch comes as a folder that is moved to
where the query looks. Its seconds are the query's own ``triggerExecution``: from the new files to
the commit. State is in RocksDB, with changelog checkpointing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from benchmarks.epoch_peer import Peer, sums

if TYPE_CHECKING:
    import pandas as pd

_SUMS = "n long, total long"
_OPTIONS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


class ByRows(StatefulProcessor):
    """Counts and adds up; both numbers are one value state, which is the cheapest form here."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._sums = handle.getValueState("sums", _SUMS)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        values = [row.v for row in rows]
        self._add(len(values), sum(values))
        return iter(())

    def _add(self, count: int, total: int) -> None:
        before = self._sums.get() or (0, 0)
        self._sums.update((before[0] + count, before[1] + total))

    def close(self) -> None:
        pass


class InPandas(ByRows):
    """The same on pandas frames."""

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        for frame in rows:
            self._add(len(frame), int(frame["v"].sum()))
        return iter(())


class TransformWithState(Peer):
    """A streaming query that keeps the sums."""

    def __init__(self, spark: SparkSession, folder: Path, keys: int, *, pandas: bool) -> None:
        self._spark, self._folder = spark, folder
        (folder / "rows").mkdir(parents=True)
        for name, value in _OPTIONS.items():
            spark.conf.set(name, value)
        rows = spark.readStream.schema("k long, v long, b int").parquet(str(folder / "rows"))
        groups = rows.groupBy("k")
        form = groups.transformWithStateInPandas if pandas else groups.transformWithState
        done = form(InPandas() if pandas else ByRows(), "k long", "Update", "None")
        writer = done.writeStream.format("noop").outputMode("update")
        self._query = writer.option("checkpointLocation", str(folder / "state")).start()

    def epoch(self, number: int, rows: DataFrame) -> float:
        coming = self._folder / f"b={number}"
        coming.mkdir()
        for file in rows.inputFiles():
            source = Path(unquote(urlparse(file).path))
            shutil.copyfile(source, coming / source.name)
        coming.rename(self._folder / "rows" / coming.name)  # the query sees all of it or nothing
        seen = {each["batchId"] for each in self._query.recentProgress if each["numInputRows"]}
        self._query.processAllAvailable()
        [batch] = (
            progress
            for progress in self._query.recentProgress
            if progress["numInputRows"] and progress["batchId"] not in seen
        )
        return float(batch["durationMs"]["triggerExecution"]) / 1000

    def check(self) -> tuple[int, int]:
        state = self._spark.read.format("statestore").option("stateVarName", "sums")
        stored = state.load(str(self._folder / "state"))
        return sums(stored.select(F.col("value.n"), F.col("value.total")))

    def close(self) -> None:
        self._query.stop()
