"""Commands on key groups and maps that are larger than the memory they may take.

One operator has one key group. In the first case it has many keys, with a text and a counter each;
in the second one it has one key, whose map has as many entries. dstl writes both as a canonical
savepoint, in pieces, and makes files of RocksDB of it, which the other commands read.

Expected before measuring: memory is that of a small state, 300 to 600 MiB, in every command.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import results
from benchmarks.commands import GIB, run_dstl
from benchmarks.edits import size_of
from dstl_core.codec.keyed_canonical import END_OF_SECTION
from dstl_core.codec.serializers import Types
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder
from dstl_core.state.columns.keyed_sections import KeyedStream

UID = "large"
ROWS_AT_ONCE = 100_000
TEXT_BYTES = 80
LETTERS = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-", np.uint8
)
CASES = {"one key group of many keys": "keys", "one map of one key": "map"}
BYTES_OF_ROW = {"keys": 126, "map": 112}
GOAL_MIB = 700


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys-gib", type=float, default=2.0, help="size of the key group")
    parser.add_argument("--map-gib", type=float, default=1.0, help="size of the map")
    parser.add_argument("--case", nargs="+", choices=CASES.values(), default=[*CASES.values()])
    parser.add_argument("--only", nargs="*", help="these commands alone; others keep their figures")
    parser.add_argument(
        "--folder", help="where files go, and are used again (default: a temporary folder)"
    )


def run(arguments: argparse.Namespace) -> None:
    if arguments.folder is not None:
        _run(arguments, Path(arguments.folder))
        return
    with tempfile.TemporaryDirectory(prefix="dstl-bench-") as folder:
        _run(arguments, Path(folder))


def _run(arguments: argparse.Namespace, folder: Path) -> None:
    before = results.machine()
    sizes = {"keys": arguments.keys_gib, "map": arguments.map_gib}
    known = results.read("large_groups") or {"cases": {}}
    for case in arguments.case:
        work = folder / case
        work.mkdir(exist_ok=True)
        rows = round(sizes[case] * GIB / BYTES_OF_ROW[case])
        measured = known["cases"].get(case)
        if measured is None or measured["rows"] != rows:
            measured = known["cases"][case] = {"rows": rows, "commands": {}}
        for _ in _measured(work, case, rows, measured, arguments.only):
            machine = {**before, "load_average_after": results.machine()["load_average"]}
            figures = {"machine": machine, "cases": known["cases"]}
            results.write("large_groups", figures, table_of(figures))


def _measured(
    work: Path, case: str, rows: int, measured: dict[str, Any], only: list[str] | None
) -> Iterator[str]:
    """Measures the commands; gives the name of each, once its figures are known."""
    for name in ("before", "after"):
        if not (work / name / "_metadata").is_file():
            shutil.rmtree(work / f"{name}-stream", ignore_errors=True)
            _in_a_process(work / f"{name}-stream", case, rows, is_changed=name == "after")
            to_native = ["rewrite", str(work / f"{name}-stream"), str(work / name)]
            ran = run_dstl(work, [*to_native, "--format", "native"], 1)
            shutil.rmtree(work / f"{name}-stream")
            if name == "before":
                measured["commands"]["rewrite, canonical to native"] = ran
    measured["bytes"] = size_of(work / "before")
    for name, command in _commands(work).items():
        if only and not any(name.startswith(each) for each in only):
            continue
        print(f"# {case}, {name}", file=sys.stderr)
        measured["commands"][name] = run_dstl(work, command, 1)
        shutil.rmtree(work / "out", ignore_errors=True)
        print(f"# {measured['commands'][name]}", file=sys.stderr)
        yield name


def _commands(work: Path) -> dict[str, list[str]]:
    source, changed, out = (str(work / name) for name in ("before", "after", "out"))
    rule: dict[str, Any] = {"key": "cast(key, STRING)"}
    declaration: dict[str, Any] = {"migration": 1, "from": source, "operators": {UID: rule}}
    (work / "key.yaml").write_text(json.dumps(declaration))
    return {
        "verify": ["verify", source],
        "report": ["report", source, "--json"],
        "dump": ["dump", source],
        "rewrite to canonical form": ["rewrite", source, out, "--canonical"],
        "migrate, other key": ["migrate", "apply", str(work / "key.yaml"), out],
        "diff, 5 % changed": ["diff", source, changed],
        "diff --json, 5 % changed": ["diff", source, changed, "--json"],
        "report --compare": ["report", changed, "--json", "--compare", source],
    }


def _in_a_process(path: Path, case: str, rows: int, *, is_changed: bool) -> None:
    """Writes a state elsewhere: a new process begins with the peak memory of the one it is from."""
    writer = get_context("fork").Process(
        target=write_state, args=(path, case, rows), kwargs={"is_changed": is_changed}
    )
    writer.start()
    writer.join()
    if writer.exitcode:
        raise SystemExit(f"The state in {path} was not written.")


def write_state(path: Path, case: str, rows: int, *, is_changed: bool) -> None:
    """Writes the savepoint of a case, in the order that files of RocksDB have.

    Args:
        path: Its folder.
        case: One of ``CASES``.
        rows: Number of keys, or of entries of the map.
        is_changed: Whether every twentieth text is another one.
    """
    texts = Types.MAP(Types.STRING, Types.STRING)
    states = [StateMetaInfoSnapshot.key_value("texts", KeyedStateType.MAP, texts)]
    if case == "keys":
        states = [
            StateMetaInfoSnapshot.key_value("text", KeyedStateType.VALUE, Types.STRING),
            StateMetaInfoSnapshot.key_value("count", KeyedStateType.VALUE, Types.LONG),
        ]
    encoder = KeyedStateEncoder(Types.LONG, states, 1)
    pieces = _pieces(encoder, rows, is_changed=is_changed)
    stream = KeyedStream(encoder.header, encoder.key_groups, 1, [pieces])
    folder = SavepointFolder(path)
    subtask = OperatorSubtaskState(0, managed_keyed_state=folder.add_keyed_stream(stream))
    operator = OperatorState(OperatorID.for_uid(UID), 1, 1, (subtask,), uid=UID)
    folder.publish(CheckpointMetadata(3, 1, (operator,)), {})


def _pieces(encoder: KeyedStateEncoder, rows: int, *, is_changed: bool) -> Iterator[memoryview]:
    for meta in encoder.header.states:
        for start in range(0, rows, ROWS_AT_ONCE):
            numbers = np.arange(start, min(rows, start + ROWS_AT_ONCE))
            columns = {"state_key": numbers, "state_value": numbers}
            if meta.name == "text":
                columns["state_value"] = _texts(numbers, is_changed=is_changed)
            elif meta.name == "texts":
                places = pa.array([f"{number:09}" for number in numbers.tolist()])
                values = _texts(numbers, is_changed=is_changed)
                zeros = np.zeros(len(numbers), np.int64)
                columns = {"state_key": zeros, "map_key": places, "map_value": values}
            yield memoryview(encoder.encode(meta.name, pa.table(columns)).data)
    yield memoryview(END_OF_SECTION)


def _texts(numbers: Any, *, is_changed: bool) -> pa.Array:
    """Texts that do not get smaller when they are compressed."""
    random = np.random.default_rng(int(numbers[0]))
    letters = LETTERS[random.integers(0, len(LETTERS), (len(numbers), TEXT_BYTES), np.uint8)]
    if is_changed:
        letters[numbers % 20 == 0, 0] = ord("!")
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * TEXT_BYTES
    return pa.StringArray.from_buffers(
        len(numbers), pa.py_buffer(offsets), pa.py_buffer(letters.tobytes())
    )


def table_of(figures: dict[str, Any]) -> str:
    lines = [
        "# Key groups and maps that are larger than memory",
        "",
        f"{results.describe(figures['machine'])} The goal is {GOAL_MIB} MiB for a process. "
        f"`--jobs 1`, whole processes, one after the other. `rewrite, canonical to native` reads a "
        f"canonical savepoint, and the others files of RocksDB.",
        "",
    ]
    for title, case in CASES.items():
        measured = figures["cases"].get(case)
        if measured is None:
            continue
        lines += [
            f"## {title[0].upper()}{title[1:]}: {measured['rows']:,} of them, "
            f"{measured['bytes'] / GIB:.2f} GiB",
            "",
            "| command | peak MiB | CPU s | CPU s a GiB |",
            "|---|---|---|---|",
        ]
        for name, ran in measured["commands"].items():
            seconds = ran["cpu_seconds"]
            a_gib = seconds * GIB / measured["bytes"]
            lines.append(f"| {name} | {ran['peak_mib']:,} | {seconds:.1f} | {a_gib:.1f} |")
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"
