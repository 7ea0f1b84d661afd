"""The local engine of the benchmark ``bootstrap``: a line of input is one bootstrap.

python -m benchmarks.bootstrap_worker PARQUET OUTPUT FORM [MEMORY]
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from dstl_core import LocalEngine, OperatorIdentifier, OperatorTransformation, SavepointWriter


def main() -> None:
    rows, output, form, *memory = sys.argv[1:]
    engine = LocalEngine(memory=memory[0] if memory else None)
    print("ready", flush=True)
    for _ in sys.stdin:
        start, before = time.perf_counter(), time.process_time()
        write(rows, output, form, engine)
        figures = {
            "seconds": round(time.perf_counter() - start, 3),
            "cpu_seconds": round(time.process_time() - before, 2),
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        }
        shutil.rmtree(Path(output))
        print(json.dumps(figures), flush=True)


def write(rows: str, output: str, form: Any, engine: LocalEngine) -> None:
    """A bootstrap as a user writes it; it reads back what it wrote."""
    keyed = OperatorTransformation.bootstrap_with(rows).key_by("k").transform_columns()
    writer = SavepointWriter.new_savepoint(engine).with_format(form)
    writer.with_operator(OperatorIdentifier.for_uid("bench"), keyed).write(output)


if __name__ == "__main__":
    main()
