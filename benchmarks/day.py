"""A user's day: eight aggregates of text, decimals and times by key, next to what people use else.

A case is a number of rows over a number of keys of one type, and the share of the rows that one key
has. The forms: a job of dstl in one process and on Spark; DuckDB, Polars and Spark that rewrite a
Parquet table; and a Delta merge (Spark groups the batch, the ``deltalake`` package merges). The
first batch has each key once; two epochs after it warm up. All forms take turns on the same
batches, each in a process of its own. Before a last, small batch, dstl loses its local copies of
the state, so that it restores the state from its log. In the end, the states of all forms are
compared value by value with what DuckDB computes from all batches at once.

A run replaces the stored figures of its own cases, and keeps those of the others: each has the
commit and the load that it was measured with.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import results
from benchmarks.day_worker import COLD, COLUMNS, DAY

CASES = (
    *("2000000:1000000:text", "20000:1000000:text", "2000000:1000000:long"),
    *("2000000:1000000:uuid", "2000000:1000000:struct", "2000000:1000000:text:0.9"),
    *("20000:10000000:text", "20000000:10000000:text"),
)
NAMES = {
    "local": "dstl, one process",
    "bounded": "dstl, one process, memory of 2 gb",
    "spark": "dstl on Spark",
    "delta": "Spark groups, deltalake merges",
    "rewrite": "Spark rewrites Parquet",
    "duckdb": "DuckDB rewrites Parquet",
    "polars": "Polars rewrites Parquet",
}
FORMS = {
    "20000:10000000:text": ("local", "bounded", "spark", "duckdb"),
    "20000000:10000000:text": ("local", "bounded", "duckdb"),
}
"""The forms of a case whose state is too large for all forms to stay in 24 GiB of memory."""
GOALS = (
    ("2000000:1000000:text", "local", "duckdb", 2.0),
    ("2000000:1000000:text", "local", "delta", 0.4),
    ("20000000:10000000:text", "local", "duckdb", 2.5),
    ("2000000:1000000:text", "spark", "delta", 0.8),
    ("2000000:1000000:text", "spark", "rewrite", 0.6),
)
COLD_ROWS = 20_000
"""Rows of the last batch."""
SPAN = 1_000_000
"""Rows that are made at a time."""
_ABOUT = (
    "Seconds of a warm epoch, median (min-max): one call, from a batch in Parquet to the "
    f"commit. Columns `{COLUMNS}`; eight aggregates: count, sum of decimals, min and max of "
    "times, max_by of a text, max and sum of doubles, bool_or. Keys: *text* has 33 characters, "
    "*uuid* 36, *struct* a text and a long. *Share*: the share of the rows that one key has. "
    "*First*: each key once, with the start of the form; kernels are kept. *Peak*: memory of "
    "all its processes. *Logged*: bytes of the files of the log of the last epoch, next to its "
    f"changed rows in Parquet with Snappy. *Restored*: seconds of an epoch of {COLD_ROWS:,} rows "
    "that reads the state from its whole log, because there is no local copy and nothing was "
    "materialized. All forms have two threads and take turns. Their states are compared value "
    "by value with what DuckDB computes from all batches."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", nargs="*", default=list(CASES), help="rows:keys:type[:share]")
    parser.add_argument("--forms", nargs="*", choices=NAMES, help="(default: all that fit)")
    parser.add_argument("--epochs", type=int, default=5, help="epochs that are measured")
    results.add_folder(parser)


def run(arguments: argparse.Namespace) -> None:
    stored = results.read("day") or {"cases": []}
    cases = {case["case"]: case for case in stored["cases"]}
    with results.work_folder(arguments.folder) as work:
        _keep_kernels(work)
        for text in arguments.cases:
            print(f"# {text} (rows:keys:type[:share of one key])", file=sys.stderr)
            before = results.machine()
            folder = work / text.replace(":", "-")
            folder.mkdir()
            batches = _batches(folder, text, arguments.epochs + 3)
            forms = arguments.forms or FORMS.get(text, tuple(NAMES))
            measured = _measure(folder, forms, batches)
            shutil.rmtree(folder)
            machine = {**before, "load_average_after": results.machine()["load_average"]}
            cases[text] = {"case": text, "machine": machine, **measured}
            figures = {"cases": list(cases.values())}
            results.write("day", figures, _table(figures))


def _keep_kernels(work: Path) -> None:
    """Compiles the kernels of such a day, as ``dstl warm`` does in an image."""
    folder = work / "kernels"
    folder.mkdir()
    process = _Process("local", folder / "local")
    try:
        *batches, last = _batches(folder, "1000:1000:text", 2)
        for line in (*batches, COLD + last):
            process.epoch(line)
    finally:
        process.close()


def _batches(folder: Path, text: str, epochs: int) -> list[str]:
    """Each key once, then the epochs, then a small one, as Parquet files."""
    rows, keys, kind, *share = text.split(":")
    paths = []
    for number in range(epochs + 1):
        path = folder / f"batch-{number}.parquet"
        random = np.random.default_rng(number)
        count = int(rows) if number else int(keys)
        if number == epochs:
            count = min(count, COLD_ROWS)
        with pq.ParquetWriter(path, _rows(random, np.arange(1), kind).schema) as writer:
            for start in range(0, count, SPAN):
                size = min(SPAN, count - start)
                ids = np.arange(start, start + size)
                if number:
                    ids = random.integers(0, int(keys), size)
                    if share:
                        ids[random.random(size) < float(share[0])] = 0
                writer.write_table(_rows(random, ids, kind))
        paths.append(str(path))
    return paths


def _rows(random: np.random.Generator, ids: np.ndarray, kind: str) -> pa.Table:
    count = len(ids)
    items = pa.array(random.integers(0, 1000, count)).cast(pa.string())
    return pa.table(
        {
            "k": _keys(ids, kind),
            "ts": pa.array(random.integers(0, 10**15, count), pa.timestamp("us", "UTC")),
            "amount": _decimals(random.integers(0, 10**6, count)),
            "price": random.random(count),
            "item": pc.binary_join_element_wise("item", items, "-"),
            "ok": random.random(count) < 0.5,
        }
    )


def _decimals(cents: np.ndarray) -> pa.Array:
    halves = np.zeros((len(cents), 2), np.int64)
    halves[:, 0] = cents
    return pa.Array.from_buffers(
        pa.decimal128(18, 2), len(cents), [None, pa.py_buffer(halves.tobytes())]
    )


def _keys(ids: np.ndarray, kind: str) -> pa.Array:
    numbers = pa.array(ids)
    if kind == "long":
        return numbers
    if kind == "struct":
        lands = pa.array(["de", "fr", "it", "pl"]).take(pa.array(ids % 4))
        return pa.StructArray.from_arrays([lands, numbers], ["land", "id"])
    digits = pc.utf8_lpad(numbers.cast(pa.string()), 29, "0")
    if kind == "text":
        return pc.binary_join_element_wise("key", digits, "-")
    # In the form of a UUID; all bits depend on the number.
    high, low = (ids.astype(np.uint64) * np.uint64(odd) for odd in (_MIXER, _MIXER - 2))
    names = [f"{one:016x}{two:016x}" for one, two in zip(high, low, strict=True)]
    parts = [pc.utf8_slice_codeunits(names, *cut) for cut in _UUID_CUTS]
    return pc.binary_join_element_wise(*parts, "-")


_MIXER = 0x9E3779B97F4A7C15
_UUID_CUTS = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))


class _Process:
    """A form in its process."""

    def __init__(self, form: str, folder: Path) -> None:
        folder.mkdir()
        self._folder, self._form = folder, form
        self._errors = (folder / "stderr").open("w")
        command = [sys.executable, "-m", "benchmarks.day_worker", form, str(folder)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        self._process = subprocess.Popen(command, text=True, **pipes)
        self.figures: list[dict[str, Any]] = []

    def ask(self, line: str) -> dict[str, Any]:
        """Sends a line. Gives the figures that the process answers."""
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            errors = (self._folder / "stderr").read_text()[-2000:]
            raise SystemExit(f"{self._form} failed at {line}:\n{errors}")
        return json.loads(answer)

    def epoch(self, batch: str) -> None:
        self.figures.append(self.ask(batch))

    def end(self) -> str:
        """Gives the Parquet files of the state."""
        self.ask("end")
        self._process.wait()
        self._errors.close()
        result = self._folder / "result.parquet"
        return str(result / "*.parquet") if result.is_dir() else str(result)

    def close(self) -> None:
        """Ends the process, whatever it does."""
        self._process.kill()
        self._process.wait()


def _measure(folder: Path, forms: Sequence[str], batches: list[str]) -> dict[str, Any]:
    processes = {form: _Process(form, folder / form) for form in forms}
    try:
        for number, batch in enumerate(batches):
            line = COLD + batch if number == len(batches) - 1 else batch
            for process in processes.values():
                process.epoch(line)
            seconds = {form: own.figures[-1]["seconds"] for form, own in processes.items()}
            print(f"  {number}: {seconds}", file=sys.stderr)
        states = {form: process.end() for form, process in processes.items()}
    finally:
        for process in processes.values():
            process.close()
    changed = _compare(states, batches, folder)
    return {
        "changed_mib": changed,
        "forms": {form: _summary(own.figures) for form, own in processes.items()},
    }


def _summary(figures: list[dict[str, Any]]) -> dict[str, Any]:
    *epochs, last = figures
    warm = [epoch["seconds"] for epoch in epochs[3:]]
    return {
        "first": figures[0]["seconds"],
        "median": round(statistics.median(warm), 3),
        "min": min(warm),
        "max": max(warm),
        "peak_mib": last["peak_mib"],
        "logged_mib": _mib(epochs[-1]["logged"]),
        "restored": None if last["read"] is None else last["seconds"],
        "read_mib": _mib(last["read"]),
    }


def _mib(size: int | None) -> float | None:
    return None if size is None else round(size / 2**20, 1)


def _compare(states: Mapping[str, str], batches: list[str], folder: Path) -> float:
    """Compares states with that of all batches. Gives the MiB of the rows that the last large batch
    changed as Parquet with Snappy.
    """
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads = 2; SET TimeZone = 'UTC'; SET temp_directory = '{folder}'")
    day = ", ".join(DAY)
    connection.execute(
        f"CREATE TABLE expected AS SELECT k, {day} FROM read_parquet({batches}) GROUP BY k"
    )
    names = "k, n, total, first, last, latest, top, ok"
    for form, state in states.items():
        connection.execute(
            f"CREATE OR REPLACE VIEW state AS SELECT * REPLACE (total::decimal(38,2) AS total, "
            f"first::timestamptz AS first, last::timestamptz AS last) FROM '{state}'"
        )
        keys, same, far = connection.execute(
            f"SELECT (SELECT count(*) FROM state), "
            f"(SELECT count(*) FROM (SELECT {names} FROM state INTERSECT "
            f"SELECT {names} FROM expected)), "
            f"(SELECT max(abs(state.price - e.price) / e.price) "
            f"FROM state JOIN expected AS e USING (k))"
        ).fetchone()
        [wanted] = connection.execute("SELECT count(*) FROM expected").fetchone()
        if (keys, same) != (wanted, wanted) or far > 1e-9:
            raise AssertionError(
                f"{form} holds another state: {keys} keys, {same} of {wanted} the same, sums of "
                f"doubles apart by {far}"
            )
    changed = folder / "changed.parquet"
    connection.execute(
        f"COPY (SELECT * FROM expected WHERE k IN (SELECT k FROM '{batches[-2]}')) TO '{changed}' "
        f"(FORMAT parquet, COMPRESSION snappy)"
    )
    return round(changed.stat().st_size / 2**20, 1)


def machines(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each case: when and on what it was measured."""
    return [
        f"* `{case['case']}`: {case['machine']['date']}. {results.describe(case['machine'])}\n"
        for case in cases
    ]


def _table(figures: dict[str, Any]) -> str:
    lines = [
        f"# A user's day\n\n{_ABOUT}\n\n"
        f"| rows | keys | type | share | form | warm epoch, s | first, s | peak, MiB "
        f"| logged, MiB | restored, s |\n|---|---|---|---|---|---|---|---|---|---|\n"
    ]
    medians = {}
    for case in figures["cases"]:
        rows, keys, kind, *share = case["case"].split(":")
        head = f"| {int(rows):,} | {int(keys):,} | {kind} | {share[0] if share else '-'}"
        for form, own in case["forms"].items():
            medians[case["case"], form] = own["median"]
            logged = own["logged_mib"]
            size = "-" if logged is None else f"{logged} (Parquet: {case['changed_mib']})"
            restored = own["restored"]
            again = "-" if restored is None else f"{restored:.2f} ({own['read_mib']} MiB)"
            lines.append(
                f"{head} | {NAMES[form]} | {own['median']:.2f} ({own['min']:.2f}-{own['max']:.2f}) "
                f"| {own['first']:.2f} | {own['peak_mib']:,} | {size} | {again} |\n"
            )
    lines += ["\n", *machines(figures["cases"])]
    lines.append("\n| goal | ratio | at most | met |\n|---|---|---|---|\n")
    for case, form, other, at_most in GOALS:
        one, two = medians.get((case, form)), medians.get((case, other))
        if one is not None and two is not None:
            met = "yes" if one / two <= at_most else "**no**"
            what = f"{case}: {NAMES[form]} to {NAMES[other]}"
            lines.append(f"| {what} | {one / two:.2f} | {at_most} | {met} |\n")
    return "".join(lines)
