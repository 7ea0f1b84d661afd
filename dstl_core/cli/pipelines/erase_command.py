"""``dstl erase``: keys go from all that a pipeline keeps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from dstl_core.cli.options import JobsOption, JsonOption, serializers_in_use
from dstl_core.cli.output import complain, print_lines, write_json
from dstl_core.display import size_text

if TYPE_CHECKING:
    from dstl_core.job.erasure.erasure import Entries, Erasure, KeyTraces
    from dstl_core.savepoint.read.snapshot import Snapshot
    from dstl_core.savepoint.read.snapshot_names import SnapshotNames


KeysOption = Annotated[
    list[str],
    typer.Option(
        "--keys",
        metavar="[OP=]FILE",
        help="The keys to erase, one on each line of FILE as dump shows it.",
    ),
]
OutputColumnOption = Annotated[
    list[str] | None,
    typer.Option(
        "--output-column",
        metavar="OP=COLUMN",
        help="Column of stored output that has the key; by default the key column of OP.",
    ),
]
DropOutputsOption = Annotated[
    bool,
    typer.Option(
        "--drop-outputs", help="Leave out all rows of stored output that has no such column."
    ),
]
SavepointOption = Annotated[
    list[str] | None,
    typer.Option(
        "--savepoint", metavar="PATH", help="A savepoint of the pipeline, to be written again."
    ),
]
LocalCopiesOption = Annotated[
    str | None,
    typer.Option(
        "--local-copies", metavar="DIR", help="Folder of local copies of state on this machine."
    ),
]
LookOption = Annotated[
    bool, typer.Option("--dry-run", help="Look for the keys, and change nothing.")
]


def erase(
    pipeline: Annotated[
        str, typer.Argument(metavar="PIPELINE", help="Folder of a pipeline: <base>/<job id>.")
    ],
    keys: KeysOption,
    output_column: OutputColumnOption = None,
    drop_outputs: DropOutputsOption = False,
    savepoint: SavepointOption = None,
    local_copies: LocalCopiesOption = None,
    dry_run: LookOption = False,
    jobs: JobsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Erase keys from all that a pipeline of dstl keeps.

    The state without the keys is a new commit. Earlier checkpoints go, with their logs; rows of the
    keys go from stored output; so do files of runs that have died, and local copies of state. Then
    the keys are looked for again in all that is left.
    """
    from dstl_core.checkpoint.store.pipeline_store import PipelineStore
    from dstl_core.job.erasure.erasure import PipelineKeys
    from dstl_core.savepoint.read.snapshot import Snapshot
    from dstl_core.savepoint.read.snapshot_names import SnapshotNames

    store = PipelineStore.in_folder(pipeline)
    registry = serializers_in_use()
    snapshot = Snapshot.load(store.path_of(store.require_latest()), serializers=registry)
    names = SnapshotNames(snapshot)
    uids = {f"hash:{each.operator_id.hex}": each.uid or "" for each in snapshot.operators}
    every = PipelineKeys(
        pipeline,
        {uids[name]: own for name, own in names.keys_of_files("--keys", keys).items()},
        _columns(snapshot, names, output_column or ()),
        drop_outputs,
        savepoint or (),
        local_copies,
        jobs,
        registry,
    )
    if dry_run:
        traces = every.find()
        if as_json:
            write_json([traces.to_json()], indent=1)
            return
        _complain_of(traces)
        print_lines([*_shown(traces), "nothing was changed"])
        return
    done = every.erase()
    if as_json:
        write_json([done.to_json()], indent=1)
        return
    _complain_of(done.traces)
    print_lines([*_shown(done.traces), *_done(done)])


def _columns(
    snapshot: Snapshot, names: SnapshotNames, texts: Iterable[str]
) -> dict[str, list[str]]:
    """The columns of ``OP=COLUMN``, by uid."""
    from dstl_core.savepoint.read.snapshot_names import cut_pair

    columns: dict[str, list[str]] = {}
    for text in texts:
        operator, column = cut_pair(
            "--output-column", text, "OP=COLUMN", lambda left, _: names.is_operator(left)
        )
        columns.setdefault(snapshot[operator].uid or "", []).append(column)
    return columns


def _complain_of(traces: KeyTraces) -> None:
    for path in traces.unread:
        complain(f"a savepoint of the pipeline is not looked at (--savepoint): {path}")


def _shown(traces: KeyTraces) -> list[str]:
    lines = [f"keys of {uid}: {count:,}" for uid, count in traces.keys.items()]
    lines += [f"latest state: {text}" for text in _entries(traces.entries)]
    lines += [f"records in files of {uid}: {count:,}" for uid, count in traces.records.items()]
    if traces.earlier:
        lines.append(f"earlier checkpoints: {', '.join(traces.earlier)}")
    lines += [f"stored output {name}: {count:,} rows" for name, count in traces.rows.items()]
    for path, entries in traces.savepoints.items():
        lines += [f"savepoint {path}: {text}" for text in _entries(entries)]
    return lines


def _entries(entries: Entries) -> list[str]:
    return [
        f"{count:,} of {uid}/{state}"
        for uid, counts in entries.items()
        for state, count in sorted(counts.items())
    ]


def _done(done: Erasure) -> list[str]:
    lines = []
    if done.checkpoint is not None:
        subtasks = "1 subtask" if done.subtasks == 1 else f"{done.subtasks:,} subtasks"
        size = size_text(done.written_bytes)
        lines.append(f"written: checkpoint {done.checkpoint}, {subtasks}, {size}")
    lines += [f"files of stored output written again: {done.files:,}"] if done.files else []
    lines += [f"files of dead runs deleted: {done.swept:,}"] if done.swept else []
    lines += [f"local copies deleted: {done.copies:,}"] if done.copies else []
    return [*lines, "none of the keys is left"]
