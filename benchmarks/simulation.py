"""Whole jobs under one seed: how many a minute, and what they did.

Expected before measuring: a seed is some 50 restores, snapshots and commits of tiny state in pure
Python, 0.3-0.6 ms each: 20-30 ms, so 2,000-3,000 seeds a minute.
"""

from __future__ import annotations

import argparse
import logging
import time
from typing import Any

from benchmarks import results
from dstl_core.testing import CheckpointSimulation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=5_000)
    parser.add_argument("--first", type=int, default=0)


def run(arguments: argparse.Namespace) -> None:
    before = results.machine()
    logging.disable(logging.CRITICAL)
    CheckpointSimulation(arguments.first).run()
    commits = restored = 0
    started = time.perf_counter()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        world = CheckpointSimulation(seed)
        world.run()
        commits += world.commits
        restored += world.restored
    minutes = (time.perf_counter() - started) / 60
    figures = {
        "machine": {**before, "load_average_after": results.machine()["load_average"]},
        "first_seed": arguments.first,
        "seeds": arguments.seeds,
        "seeds_per_minute": round(arguments.seeds / minutes),
        "commits": commits,
        "commits_restored_and_compared": restored,
    }
    logging.disable(logging.NOTSET)
    results.write("simulation", figures, _table(figures))


def _table(figures: dict[str, Any]) -> str:
    lines = ["# Simulation", "", results.describe(figures["machine"]), "", "| | |", "|---|---|"]
    lines += [
        f"| {name.replace('_', ' ')} | {value:,} |"
        for name, value in figures.items()
        if isinstance(value, int)
    ]
    return "\n".join(lines) + "\n"
