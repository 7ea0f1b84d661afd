"""Spark's ``transformWithState`` on the rows of the benchmark of jobs.

Its Python function asks the JVM for one key at a time, 5,000 keys a second here, which makes a
state of ten million keys half an hour. So the state is laid down first, through the same server of
states and by the same requests, sent without waiting for each answer. The epochs that are measured
run the processor as a user writes it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

PARTITIONS = 2
"""``spark.sql.shuffle.partitions`` of the session: those of the state."""
FIRST_VALUE = 1 << 20
"""Values start here, so that all of them have pickles of one size."""
_PER_ROW = 50_000
_SCHEMA = "k string, v long, ids array<long>, n int"


class PeerSums(StatefulProcessor):
    """Adds up a number per key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        total = self._total.get()[0] if self._total.exists() else 0
        self._total.update((total + sum(row.v for row in rows),))
        return iter(())

    def close(self) -> None:
        pass


class PeerSeed(PeerSums):
    """Sets the state of all keys that the rows of a partition name."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self._client = handle._statefulProcessorApiClient

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        for row in rows:
            ids = np.asarray(row.ids, np.int64)
            requests = _requests(self._client, self._total, ids)
            answers = threading.Thread(target=_await, args=(self._client.sockfile, 2 * len(ids)))
            answers.start()
            self._client.sockfile.write(requests.tobytes())
            self._client.sockfile.flush()
            answers.join()
        return iter(())


def _requests(client: Any, total: Any, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """The bytes that set the key, then its value: one row of them for each id, made of an example
    in which the digits of the key and the number are replaced.
    """
    example, sent = 987_654_321_012, []
    client._send_proto_message, send = sent.append, client._send_proto_message
    client._receive_proto_message, receive = lambda: (0, "", b""), client._receive_proto_message
    client.set_implicit_key((_key(example),))
    total.update((FIRST_VALUE,))
    client._send_proto_message, client._receive_proto_message = send, receive
    head = (0).to_bytes(4, "big")
    one = b"".join(head + len(each).to_bytes(4, "big") + each for each in sent)
    digits, number = one.index(b"%012d" % example), one.rindex(FIRST_VALUE.to_bytes(4, "little"))
    rows = np.tile(np.frombuffer(one, np.uint8), (len(ids), 1))
    rows[:, digits : digits + 12] = ids[:, None] // 10 ** np.arange(11, -1, -1) % 10 + ord("0")
    values = (ids + FIRST_VALUE).astype("<i4")
    rows[:, number : number + 4] = values.view(np.uint8).reshape(-1, 4)
    return rows


def _await(answers: Any, count: int) -> None:
    """An answer without an error is an empty message: four bytes that say its length, 0."""
    left = 4 * count
    while left:
        got = answers.read1(left)
        if not got or any(got):
            raise RuntimeError(f"the state server answers {got[:200]!r}")
        left -= len(got)


def _key(number: int) -> str:
    return f"key-{number:012d}"


def seed(spark: SparkSession, folder: Path, size: int) -> None:
    """Makes a checkpoint whose state has all keys; does nothing if it is there."""
    if (folder / "seeded").exists():
        return
    key = F.format_string("key-%012d", F.col("id"))
    # As Spark spreads keys over partitions: each list goes where its keys belong.
    own = spark.range(size).withColumn("p", F.pmod(F.hash(key), F.lit(PARTITIONS)))
    lists = own.groupBy("p", F.expr(f"id div {PARTITIONS * _PER_ROW}")).agg(
        F.collect_list("id").alias("ids")
    )
    first = {row.p: row.id for row in own.groupBy("p").agg(F.min("id").alias("id")).collect()}
    names = F.create_map(*(F.lit(each) for p, at in first.items() for each in (p, _key(at))))
    rows = lists.select(names[F.col("p")].alias("k"), F.lit(0).cast("long").alias("v"), "ids")
    rows.coalesce(1).write.mode("overwrite").parquet(str(folder / "rows" / "n=0"))
    _run(spark, folder, PeerSeed())
    state = spark.read.format("statestore").option("stateVarName", "total")
    stored = state.load(str(folder / "checkpoints")).agg(
        F.count("*").alias("keys"), F.sum("value.total").alias("sum")
    )
    [sums] = stored.collect()
    wanted = size, size * (size - 1) // 2 + size * FIRST_VALUE
    if (sums["keys"], sums["sum"]) != wanted:
        raise RuntimeError(f"expected {wanted}, got {sums}")
    (folder / "seeded").touch()


def measure(
    spark: SparkSession, folder: Path, size: int, batches: Iterator[DataFrame]
) -> tuple[list[float], int]:
    """Seconds of the micro-batches after the seed, the first two of a query left out, and the
    bytes of the changelogs of the last one.
    """
    for number, rows in enumerate(batches, 1):
        rows.coalesce(1).write.mode("overwrite").parquet(str(folder / "rows" / f"n={number}"))
    done = [each for each in _run(spark, folder, PeerSums()) if each["numInputRows"]]
    kept = done[-1]["stateOperators"][0]["numRowsTotal"]
    if kept != size:
        raise RuntimeError(f"expected {size} keys of state, got {kept}")
    logs = (folder / "checkpoints" / "state").rglob(f"{done[-1]['batchId'] + 1}.changelog")
    seconds = [each["durationMs"]["triggerExecution"] / 1000 for each in done[2:]]
    return seconds, sum(each.stat().st_size for each in logs)


def _run(spark: SparkSession, folder: Path, processor: StatefulProcessor) -> list[Any]:
    stream = (
        spark.readStream.schema(_SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "rows"))
        .groupBy("k")
        .transformWithState(processor, "k string", "Update", "None")
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoints"))
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    return list(stream.recentProgress)
