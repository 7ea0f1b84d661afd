"""``python -m tests.simulation.storm local|s3 [--commits N] [--seconds S] [--seed K]``."""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.simulation.storm import world
from tests.simulation.storm.run import Storm


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.storm")
    parser.add_argument("storage", choices=["local", "s3"])
    parser.add_argument("--commits", type=int, default=1_000_000, help="end after so many")
    parser.add_argument("--seconds", type=float, default=86_400.0, help="end after so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--spark", action="store_true", help="drivers are whole jobs on Spark")
    arguments = parser.parse_args()
    storm = Storm(
        arguments.storage, arguments.seed, arguments.commits, arguments.seconds, arguments.spark
    )
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger(world.__name__).setLevel(logging.INFO)
    # So that no process is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = Path(tempfile.mkdtemp(prefix="storm-"))
    try:
        report = storm.run(folder)
    except BaseException:
        sys.stderr.write(f"What is left lies in {folder}.\n")
        raise
    shutil.rmtree(folder)
    sys.stdout.write(report + "\n")


if __name__ == "__main__":
    main()
