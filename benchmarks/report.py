"""``dstl report`` of a savepoint by size: time and peak memory of the command as users run it.

The state is keyed by strings: a value with a time to live for each key, a map with an item for each
key and a hundredth of all items at one key, and a timer for every tenth key.

Expected before measuring: a record of the report costs more than one that is only decoded, since
keys are compared and sizes are ranked; some 0.25 us each. Memory does not grow with the state.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import results
from dstl_core.codec.serializers import (
    MapSerializer,
    TimerSerializer,
    Types,
    VoidNamespaceSerializer,
)
from dstl_core.codec.serializers.runtime import TtlSerializer
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder
from dstl_core.state.columns.keyed_sections import KeyedSections

BATCH = 1 << 16
MAX_PARALLELISM = 128
AT_MS = 1_800_000_000_000
DAY_MS = 86_400_000
VOID = VoidNamespaceSerializer()
TIMERS = "_timer_state/processing_user-timers"
STATES = [
    StateMetaInfoSnapshot.key_value("total", KeyedStateType.VALUE, TtlSerializer(Types.LONG), VOID),
    StateMetaInfoSnapshot.key_value(
        "seen", KeyedStateType.MAP, MapSerializer(Types.STRING, Types.LONG), VOID
    ),
    StateMetaInfoSnapshot.priority_queue(TIMERS, TimerSerializer(Types.STRING, VOID)),
]
COMMANDS = {
    "every record": ["--json"],
    "the page": ["-o", os.devnull],
    "compared with itself": ["--json", "--compare"],
    "--headers-only": ["--json", "--headers-only"],
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--folder", help="where files go (default: a temporary folder)")


def run(arguments: argparse.Namespace) -> None:
    before = results.machine()
    work = Path(tempfile.mkdtemp(prefix="dstl-bench-", dir=arguments.folder))
    try:
        sizes = [_measure(work, keys, arguments.rounds) for keys in arguments.keys]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    figures = {
        "machine": {**before, "load_average_after": results.machine()["load_average"]},
        "rounds": arguments.rounds,
        "sizes": sizes,
    }
    results.write("report", figures, _table(figures))


def _measure(work: Path, keys: int, rounds: int) -> dict[str, Any]:
    print(f"# {keys} keys", file=sys.stderr)
    folder = work / f"savepoint-{keys}"
    # A process of its own: the peak of a child counts from its parent's memory.
    writer = multiprocessing.get_context("spawn").Process(target=write, args=(folder, keys))
    writer.start()
    writer.join()
    if writer.exitcode != 0:
        raise RuntimeError(f"The savepoint of {keys} keys was not written.")
    return {
        "keys": keys,
        "records": keys + keys + keys // 100 + keys // 10,
        "bytes": sum(each.stat().st_size for each in folder.iterdir()),
        "commands": {
            name: [_command(work, folder, options) for _ in range(rounds)]
            for name, options in COMMANDS.items()
        },
    }


def _command(work: Path, folder: Path, options: list[str]) -> dict[str, float]:
    """Seconds by the clock and of the CPU, and peak memory, of one run of the command."""
    arguments = ["report", str(folder), *options]
    if options[-1] == "--compare":
        arguments.append(str(folder))
    command = [sys.executable, "-m", "dstl_core.cli", *arguments]
    started = time.perf_counter()
    with open(work / "out", "wb") as out:
        child = os.posix_spawn(
            sys.executable,
            command,
            {**os.environ, "PYTHONPATH": os.getcwd()},
            file_actions=[(os.POSIX_SPAWN_DUP2, out.fileno(), 1)],
        )
        _, status, used = os.wait4(child, 0)
    if status != 0:
        raise RuntimeError(f"{' '.join(command)} failed.")
    return {
        "wall": time.perf_counter() - started,
        "cpu": used.ru_utime + used.ru_stime,
        "peak_mib": used.ru_maxrss / 1024,
    }


# ------------------------------------------------------------------------------ the savepoint


def write(folder: Path, keys: int) -> None:
    """A canonical savepoint of one subtask."""
    target = SavepointFolder(folder)
    encoder = KeyedStateEncoder(Types.STRING, STATES, MAX_PARALLELISM)
    with KeyedSections(encoder.header, encoder.key_groups, MAX_PARALLELISM) as sections:
        for start in range(0, keys, BATCH):
            for state, rows in _batches(start, min(BATCH, keys - start)):
                sections.add(encoder.encode(state, rows))
        hot = keys // 100
        columns = {
            "state_key": pa.array(["user-00000007"] * hot),
            "map_key": _names("item", np.arange(hot)),
            "map_value": pa.array(np.arange(hot)),
        }
        sections.add(encoder.encode("seen", pa.table(columns)))
        handle = target.add_keyed_stream(sections.stream())
    subtasks = (OperatorSubtaskState(0, managed_keyed_state=handle),)
    operator = OperatorState(OperatorID.for_uid("op"), 1, MAX_PARALLELISM, subtasks, uid="op")
    target.publish(CheckpointMetadata(3, 1, (operator,)), {})


def _batches(start: int, count: int) -> Iterator[tuple[str, pa.Table]]:
    numbers = np.arange(start, start + count)
    keys = _names("user", numbers)
    moments = pa.array(AT_MS - numbers % 9 * DAY_MS)
    values = pa.StructArray.from_arrays([moments, pa.array(numbers)], names=["ts", "v"])
    yield "total", pa.table({"state_key": keys, "state_value": values})
    firsts = pa.array(["first"] * count)
    yield "seen", pa.table({"state_key": keys, "map_key": firsts, "map_value": pa.array(numbers)})
    late = numbers % 10 == 0
    yield TIMERS, pa.table({"state_key": keys.filter(pa.array(late)), "timestamp": numbers[late]})


def _names(prefix: str, numbers: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 8, "0")
    return pc.binary_join_element_wise(f"{prefix}-", digits, "")


# ---------------------------------------------------------------------------------- the table


def _table(figures: dict[str, Any]) -> str:
    lines = [
        "# Reports of a savepoint",
        "",
        f"`dstl report` as a process, with its start; medians of {figures['rounds']} rounds. A "
        f"savepoint has a value with a time to live for each key, a map with an item for each key "
        f"and more at one key, and a timer for every tenth key.",
        "",
        results.describe(figures["machine"]),
        "",
        "| keys | records | bytes | command | seconds | CPU seconds | peak memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for size in figures["sizes"]:
        for name, rounds in size["commands"].items():
            wall, cpu, peak = (
                statistics.median(each[figure] for each in rounds)
                for figure in ("wall", "cpu", "peak_mib")
            )
            lines.append(
                f"| {size['keys']:,} | {size['records']:,} | {size['bytes'] / 1e6:,.0f} MB | "
                f"{name} | {wall:.2f} | {cpu:.2f} | {peak:,.0f} MiB |"
            )
    return "\n".join(lines) + "\n"
