"""PyFlink's ``KeyedProcessFunction`` as a peer of epochs.

PyFlink needs versions of pyarrow and others that dstl cannot have. So ``python_of`` makes a virtual
environment for it, whose Python runs this file, which imports nothing of dstl:

    PYTHON benchmarks/epoch_pyflink.py MODE KEYS_AND_VALUES.csv FOLDER

It prints a line of JSON: rows, their sum, and the seconds from the first row that a function saw to
the last one. The start of the cluster is left out, because a job that goes on starts once. The
state is empty at first and in memory, and there are no checkpoints: an epoch does more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

VERSION = "2.2.1"
HOME = Path(__file__).parents[1] / ".venv-pyflink"
LIMITS = {"thread": 200_000, "process": 10_000}
"""The most rows of a batch, by mode: more would take minutes."""
MOST_KEYS = 1_000_000
"""The most keys of the state, for the same reason."""


def python_of(home: Path = HOME) -> Path | None:
    """The Python that has PyFlink; None if it cannot be installed, and says why."""
    python, done = home / "bin" / "python", home / f"apache-flink-{VERSION}"
    if done.exists():
        return python
    print(f"# installing apache-flink {VERSION} into {home.name}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    command = [str(python), "-m", "pip", "install", "--quiet", f"apache-flink=={VERSION}"]
    installed = subprocess.run(command, capture_output=True, text=True, check=False)
    if installed.returncode:
        print(f"# PyFlink is not measured: {installed.stderr.strip()[-300:]}", file=sys.stderr)
        return None
    done.touch()
    return python


def measure(python: Path, mode: str, batch: Path, folder: Path) -> dict[str, Any]:
    """Runs the job on a batch in CSV files; gives ``rows``, ``total`` and ``seconds``."""
    folder.mkdir(parents=True)
    command = [str(python), __file__, mode, str(batch), str(folder)]
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"  # Flink starts "python"
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PATH": path}
    )
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def main(mode: str, batch: str, folder: Path) -> None:
    """Counts and adds up, in two value states, as the other forms do."""
    from pyflink.common import Configuration, Types
    from pyflink.datastream import (
        KeyedProcessFunction,
        RuntimeContext,
        StreamExecutionEnvironment,
    )
    from pyflink.datastream.state import ValueStateDescriptor
    from pyflink.table import StreamTableEnvironment

    class Sums(KeyedProcessFunction):  # type: ignore[misc]
        def open(self, runtime_context: RuntimeContext) -> None:
            self._n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))
            self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
            self._first, self._last, self._rows, self._sum = 0.0, 0.0, 0, 0

        def process_element(self, value: Any, ctx: Any) -> Any:
            self._first = self._first or time.time()
            self._n.update((self._n.value() or 0) + 1)
            self._total.update((self._total.value() or 0) + value[1])
            self._rows += 1
            self._sum += value[1]
            self._last = time.time()
            return iter(())

        def close(self) -> None:
            seen = {"rows": self._rows, "total": self._sum}
            times = {"first": self._first, "last": self._last}
            (folder / f"{uuid.uuid4().hex}.seen").write_text(json.dumps(seen | times))

    options = Configuration()
    options.set_string("python.execution-mode", mode)
    environment = StreamExecutionEnvironment.get_execution_environment(options)
    environment.set_parallelism(2)
    tables = StreamTableEnvironment.create(environment)
    tables.execute_sql(
        f"CREATE TABLE batch (k BIGINT, v BIGINT) WITH ('connector' = 'filesystem', "
        f"'path' = '{batch}', 'format' = 'csv')"
    )
    rows = tables.to_data_stream(tables.from_path("batch"))
    numbers = Types.TUPLE([Types.LONG(), Types.LONG()])
    typed = rows.map(lambda row: (row[0], row[1]), output_type=numbers)
    keyed = typed.key_by(lambda row: row[0], key_type=Types.LONG())
    keyed.process(Sums(), output_type=Types.LONG()).print()
    environment.execute("sums")
    every = [json.loads(file.read_text()) for file in folder.glob("*.seen")]
    seen = [each for each in every if each["rows"]]
    seconds = max(each["last"] for each in seen) - min(each["first"] for each in seen)
    sums = {name: sum(each[name] for each in seen) for name in ("rows", "total")}
    print(json.dumps({**sums, "seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
