"""One form of the benchmark of a user's day, in a process of its own.

``python -m benchmarks.day_worker FORM FOLDER`` reads the path of a batch from each line of its
standard input, applies it, and prints seconds and peak memory. Before a path after ``cold``, the
form forgets its local copies. The line ``end`` writes the state of all keys to a Parquet file, for
the comparison with the other forms.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

THREADS = 2
COLUMNS = "ts timestamp, amount decimal(18,2), price double, item string, ok boolean"
COLD = "cold "
DAY = (
    *("count(*) AS n", "sum(amount) AS total", "min(ts) AS first", "max(ts) AS last"),
    *("max_by(item, ts) AS latest", "max(price) AS top", "sum(price) AS price"),
    "bool_or(ok) AS ok",
)
"""The day of one batch, in the words of DuckDB and of Spark."""
AGAIN = (
    *("CAST(sum(n) AS bigint) AS n", "CAST(sum(total) AS decimal(38,2)) AS total"),
    *("min(first) AS first", "max(last) AS last", "max_by(latest, last) AS latest"),
    *("max(top) AS top", "sum(price) AS price", "bool_or(ok) AS ok"),
)
"""The same over a state and the day of a batch."""


class Form(ABC):
    """A way to keep the day's aggregates of each key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @abstractmethod
    def epoch(self, number: int, batch: str) -> None:
        """Applies a batch of Parquet."""

    def logged(self) -> int | None:
        """The bytes that the last epoch logged, if the form has a log."""
        return None

    def forget(self) -> int | None:
        """Deletes local copies of the state. Gives the bytes of the log, if the form has one."""
        return None

    @abstractmethod
    def write_state(self, path: str) -> None:
        """Writes the state of all keys as a Parquet file."""


class Dstl(Form):
    """Declared aggregates of dstl."""

    on_spark = False
    memory: str | None = None
    parallelism = THREADS

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._engine = _spark(folder) if self.on_spark else _local_engine(self.memory)
        self._job: Any = None
        self._key_type = ""
        self._logs: set[Path] = set()

    def epoch(self, number: int, batch: str) -> None:
        if self._job is None:
            self._key_type = _key_type(batch)
            self._job = _job(self._engine, self._folder, self._key_type, self.parallelism)
        rows = self._engine.read.parquet(batch) if self.on_spark else batch
        self._job.run(rows, number)

    def logged(self) -> int | None:
        """The bytes of the files of the log that are new since the last call."""
        logs = set((self._folder / "jobs").glob("*/dstl/*"))
        new, self._logs = logs - self._logs, logs
        return _bytes(new)

    def forget(self) -> int | None:
        shutil.rmtree(self._folder / "copies")
        return _bytes(self._logs)  # nothing was materialized: the log has the whole state

    def write_state(self, path: str) -> None:
        from dstl_core import SavepointReader

        spark = self._engine if self.on_spark else _spark(self._folder)
        state = SavepointReader.read(spark, self._job.latest_path()).read_keyed_state("u")
        names = ("n", "total", "first", "last", "latest", "top", "price", "ok")
        key = f"CAST(state_key AS {self._key_type}) AS k"  # a struct's key has Flink's names f0, f1
        state.selectExpr(key, *names).write.parquet(path)


class DstlBounded(Dstl):
    """The same with a bound for its memory, and more subtasks, so that each is small."""

    memory = "2 gb"
    parallelism = 16


class DstlOnSpark(Dstl):
    """The same on Spark."""

    on_spark = True


class DuckDB(Form):
    """DuckDB reads a Parquet table and the batch, groups both, and writes the next table."""

    def __init__(self, folder: Path) -> None:
        import duckdb  # only this form needs it

        super().__init__(folder)
        self._connection = duckdb.connect()
        self._connection.execute(f"SET threads = {THREADS}; SET TimeZone = 'UTC'")
        self._state = folder / "state.parquet"

    def epoch(self, number: int, batch: str) -> None:
        query = f"SELECT k, {', '.join(DAY)} FROM '{batch}' GROUP BY k"
        if number:
            rows = f"SELECT * FROM '{self._state}' UNION ALL BY NAME {query}"
            query = f"SELECT k, {', '.join(AGAIN)} FROM ({rows}) GROUP BY k"
        following = self._folder / "next.parquet"
        self._connection.execute(f"COPY ({query}) TO '{following}'")
        following.replace(self._state)

    def write_state(self, path: str) -> None:
        shutil.copy(self._state, path)


class Polars(Form):
    """Polars does the same."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._state = folder / "state.parquet"

    def epoch(self, number: int, batch: str) -> None:
        import polars as pl  # only this form needs it

        of = pl.col
        rows = pl.scan_parquet(batch)
        day = rows.group_by("k").agg(
            pl.len().cast(pl.Int64).alias("n"),
            of("amount").sum().cast(pl.Decimal(38, 2)).alias("total"),
            of("ts").min().alias("first"),
            of("ts").max().alias("last"),
            of("item").get(of("ts").arg_max()).alias("latest"),
            of("price").max().alias("top"),
            of("price").sum().alias("sum"),
            of("ok").any().alias("ok"),
        )
        day = day.rename({"sum": "price"})
        if number:
            day = (
                pl.concat([pl.scan_parquet(self._state), day])
                .group_by("k")
                .agg(
                    of("n").sum(),
                    of("total").sum().cast(pl.Decimal(38, 2)),
                    of("first").min(),
                    of("last").max(),
                    of("latest").get(of("last").arg_max()),
                    of("top").max(),
                    of("price").sum(),
                    of("ok").any(),
                )
            )
        following = self._folder / "next.parquet"
        day.sink_parquet(following)
        following.replace(self._state)

    def write_state(self, path: str) -> None:
        shutil.copy(self._state, path)


class Rewrite(Form):
    """Spark does the same."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._spark = _spark(folder)
        self._latest = ""

    def epoch(self, number: int, batch: str) -> None:
        day = _grouped(self._spark.read.parquet(batch), DAY)
        if self._latest:
            rows = self._spark.read.parquet(self._latest).unionByName(day)
            day = _grouped(rows, AGAIN)
        path = str(self._folder / str(number))
        day.write.parquet(path)
        if self._latest:
            shutil.rmtree(self._latest)
        self._latest = path

    def write_state(self, path: str) -> None:
        self._spark.read.parquet(self._latest).write.parquet(path)


class Delta(Form):
    """Spark groups the batch, and the ``deltalake`` package merges it into a table."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._spark = _spark(folder)
        self._path = str(folder / "table")

    def epoch(self, number: int, batch: str) -> None:
        from deltalake import DeltaTable, write_deltalake  # only this form needs the package

        day = _grouped(self._spark.read.parquet(batch), DAY).toArrow()
        if number == 0:
            write_deltalake(self._path, day)
            return
        merge = DeltaTable(self._path).merge(day, "t.k = s.k", source_alias="s", target_alias="t")
        changed = {
            "n": "t.n + s.n",
            "total": "t.total + s.total",
            "first": "least(t.first, s.first)",
            "last": "greatest(t.last, s.last)",
            "latest": "CASE WHEN s.last > t.last THEN s.latest ELSE t.latest END",
            "top": "greatest(t.top, s.top)",
            "price": "t.price + s.price",
            "ok": "t.ok OR s.ok",
        }
        merge.when_matched_update(changed).when_not_matched_insert_all().execute()

    def write_state(self, path: str) -> None:
        from deltalake import DeltaTable

        pq.write_table(DeltaTable(self._path).to_pyarrow_table(), path)


def _bytes(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)


FORMS: dict[str, type[Form]] = {
    "local": Dstl,
    "bounded": DstlBounded,
    "spark": DstlOnSpark,
    "delta": Delta,
    "rewrite": Rewrite,
    "duckdb": DuckDB,
    "polars": Polars,
}


def _local_engine(memory: str | None) -> Any:
    from dstl_core import LocalEngine

    return LocalEngine(threads=THREADS, memory=memory)


def _spark(folder: Path) -> Any:
    from benchmarks.sessions import local_session

    return local_session(
        THREADS, work=folder, options={"spark.sql.session.timeZone": "UTC"}, memory="4g"
    )


def _job(engine: Any, folder: Path, key_type: str, parallelism: int) -> Any:
    from dstl_core import StatefulJob
    from dstl_core.job.spec.operators import LocalCopies

    copies = LocalCopies(str(folder / "copies"), max_entries=100_000_000)
    jobs, operator = str(folder / "jobs"), operator_of_a_day("u", key_type)
    return StatefulJob(engine, "day", jobs, operator, parallelism=parallelism, local_copies=copies)


def operator_of_a_day(uid: str, key_type: str) -> Any:
    """The operator of dstl with the aggregates of a user's day."""
    from dstl_core import AggregateOperator, aggregates

    day = {
        "n": aggregates.count(),
        "total": aggregates.sum("amount"),
        "first": aggregates.min("ts"),
        "last": aggregates.max("ts"),
        "latest": aggregates.max_by("item", "ts"),
        "top": aggregates.max("price"),
        "price": aggregates.sum("price"),
        "ok": aggregates.bool_or("ok"),
    }
    return AggregateOperator(uid, "k", day, schema=f"k {key_type}, {COLUMNS}")


def _key_type(batch: str) -> str:
    field = pq.read_schema(batch).field("k").type
    return {"string": "string", "int64": "bigint"}.get(
        str(field), "struct<land: string, id: bigint>"
    )


def _grouped(rows: Any, expressions: tuple[str, ...]) -> Any:
    from pyspark.sql import functions as F

    return rows.groupBy("k").agg(*map(F.expr, expressions))


def _peak_mib() -> int:
    """The peak memory of this process and those that it started, together."""
    total, waiting = 0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            tasks = list(Path(f"/proc/{pid}/task").iterdir())
            for task in tasks:
                waiting += map(int, (task / "children").read_text().split())
        except OSError:
            continue  # it has ended
        peak = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        total += int(peak[0].split()[1]) // 1024 if peak else 0
    return total


def main(form: str, folder: str) -> None:
    """Serves epochs until the line ``end``."""
    worker = FORMS[form](Path(folder))
    for number, line in enumerate(sys.stdin):
        path = line.strip()
        if path == "end":
            break
        is_cold, path = path.startswith(COLD), path.removeprefix(COLD)
        read = worker.forget() if is_cold else None
        start = time.perf_counter()
        worker.epoch(number, path)
        seconds = time.perf_counter() - start
        logged = worker.logged()
        figures = {
            "seconds": round(seconds, 3),
            "logged": logged,
            "read": read,
            "peak_mib": _peak_mib(),
        }
        print(json.dumps(figures), flush=True)
    worker.write_state(str(Path(folder) / "result.parquet"))
    print(json.dumps({"peak_mib": _peak_mib()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
