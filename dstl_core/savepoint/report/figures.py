"""The figures of a report: sizes from metadata and headers, and counts of the state.

Without the contents no record is read, so a report of terabytes takes as long as one of megabytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from dstl_core.display import command_text
from dstl_core.errors import DAMAGED
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from dstl_core.savepoint.access.summary import snapshot_summary
from dstl_core.savepoint.access.units import Jobs
from dstl_core.savepoint.compare.structure_diff import structure_differences
from dstl_core.savepoint.connectors.pending_commits import COMMITTED_AT_RESTORE, pending_commits
from dstl_core.savepoint.connectors.source_positions import source_positions
from dstl_core.savepoint.folders.job_folder import history_of
from dstl_core.savepoint.read.entries import PROC_TIMER
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.read.snapshot_names import SnapshotNames
from dstl_core.savepoint.report.count_options import CountOptions
from dstl_core.savepoint.report.spread import Spread
from dstl_core.state.columns.progress import Advance, no_progress

HIGH_SKEW = {"subtask": 2.0, "key group": 20.0}
"""A share with this many times the median is worth a look. Key groups hold few keys each, so that
they differ more.
"""
HOT_SHARE, HOT_KEYS = 0.1, 100
"""A key with more than this share of a state of at least so many keys is worth a look."""
EXPIRED_SHARE = 0.1
OVERDUE_MS = 86_400_000
SMALL_FILE = 1 << 20
MANY_FILES = 1000


@dataclass(frozen=True, slots=True)
class Attention:
    """Something that is worth a look, and the command that shows or fixes it."""

    operator: str | None
    what: str
    command: str


def report_figures(
    snapshot: Snapshot,
    older: Snapshot | None = None,
    *,
    contents: CountOptions | None = None,
    on_progress: Advance = no_progress,
    jobs: Jobs = 1,
) -> dict[str, Any]:
    """Everything that the page shows, as values for JSON.

    Args:
        snapshot: The snapshot.
        older: A snapshot to compare with.
        contents: Reads every record, to count keys, entries, ages, timers and windows. Without it,
            only metadata and headers are read.
        on_progress: Called with the bytes that were read; ``bytes_to_read`` says how many they are.
        jobs: Number of processes that count keyed state; None: all cores if it is large.

    Raises:
        FormatError: The state of a source or of a sink is damaged.
    """
    summary = snapshot_summary(snapshot)
    counted = {} if contents is None else _contents(snapshot, contents, on_progress, jobs)
    details = {
        op.operator_id.hex: _details(op) | {"contents": counted.get(op.operator_id.hex)}
        for op in snapshot.operators
    }
    operators = [each | details[each["hash"]] for each in summary.pop("operators")]
    positions = list(source_positions(snapshot))
    commits = list(pending_commits(snapshot))
    pending = Counter(
        (commit.sink or commit.op, commit.checkpoint_id)
        for commit in commits
        if commit.state in COMMITTED_AT_RESTORE
    )
    figures = {
        **summary,
        "written_ms": snapshot.written_ms,
        "history": history_of(snapshot.folder),
        "at_ms": None if contents is None else contents.at_ms,
        "shows_keys": contents is not None and contents.show_keys,
        "inline_bytes": _inline_bytes(snapshot),
        "bytes_by_kind": dict(
            sum((Counter(each["bytes_by_kind"]) for each in operators), Counter())
        ),
        "operators": sorted(operators, key=lambda op: (-op["bytes"], op["hash"])),
        "sources": [position.to_json() for position in positions],
        "pending": [
            {"sink": sink, "checkpoint_id": checkpoint_id, "committables": count}
            for (sink, checkpoint_id), count in sorted(
                pending.items(), key=lambda pair: (pair[0][0], pair[0][1] or 0)
            )
        ],
    }
    path = figures["path"]
    connectors = [
        *((row.op, row.problem, command_text("offsets", path)) for row in positions),
        *((row.op, row.problem, command_text("committables", path)) for row in commits),
    ]
    findings = _attention(snapshot, figures, connectors)
    figures["attention"] = [asdict(finding) for finding in findings]
    figures["compared"] = None if older is None else _compared(snapshot, older)
    if older is not None and contents is not None:
        from dstl_core.savepoint.report.growth import state_growth  # loads the compiler

        before = _contents(older, contents, on_progress, jobs)
        figures["compared"]["states"] = list(
            state_growth(older, snapshot, before, counted, on_progress, jobs)
        )
    return figures


def bytes_to_read(
    snapshot: Snapshot, older: Snapshot | None = None, *, contents: bool = True
) -> int:
    """The bytes of state that ``report_figures`` reports to ``on_progress``."""
    if not contents:
        return 0
    both = [each for each in (snapshot, older) if each is not None]
    total = sum(operator.state.state_size for each in both for operator in each.operators)
    return total if older is None else 2 * total


def _contents(
    snapshot: Snapshot, options: CountOptions, on_progress: Advance, jobs: Jobs
) -> dict[str, dict[str, Any]]:
    """The contents of each operator by its hash; ``problem`` says why one cannot be read."""
    # Loads Arrow and the compiler, which metadata and headers do not need.
    from dstl_core.savepoint.report.contents import operator_contents

    by_hash = {}
    for operator in snapshot.operators:
        try:
            counted = operator_contents(operator, options, on_progress, jobs=jobs) | {
                "problem": None
            }
        except DAMAGED as error:
            counted = {"states": [], "operator_states": [], "problem": str(error)}
        by_hash[operator.operator_id.hex] = counted
    return by_hash


def _details(operator: OperatorSnapshot) -> dict[str, Any]:
    sizes = {each.index: each.state_size for each in operator.state.subtasks}
    subtasks = [sizes.get(index, 0) for index in range(operator.parallelism)]
    key_groups = key_group_bytes(operator)
    return {
        "bytes_by_kind": {key: size for key, size in _by_kind(operator).items() if size},
        "subtasks": Spread.of(subtasks).to_json("bytes"),
        "key_groups": None if key_groups is None else Spread.of(key_groups).to_json("bytes"),
    }


def _by_kind(operator: OperatorSnapshot) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for subtask in operator.state.subtasks:
        keyed = subtask.managed_keyed_state
        if isinstance(keyed, ChangelogStateBackendHandle):
            sizes["changelog"] += sum(each.state_size for each in keyed.non_materialized)
            sizes["keyed state"] += sum(each.state_size for each in keyed.materialized)
        elif keyed is not None:
            sizes["keyed state"] += keyed.state_size
        if subtask.managed_operator_state is not None:
            sizes["operator state"] += subtask.managed_operator_state.state_size
        raw = (subtask.raw_keyed_state, subtask.raw_operator_state)
        sizes["raw state"] += sum(each.state_size for each in raw if each is not None)
        channels = subtask.input_channel_state + subtask.result_subpartition_state
        sizes["in-flight data"] += sum(each.state_size for each in channels)
    coordinator = operator.state.coordinator_state
    sizes["coordinator state"] += 0 if coordinator is None else coordinator.state_size
    return sizes


def key_group_bytes(operator: OperatorSnapshot) -> list[int] | None:
    """Bytes of keyed state by key group, as they are stored. None if files do not tell them apart,
    as those of RocksDB.
    """
    sizes = [0] * operator.max_parallelism
    handles = list(_bases(operator.keyed_handles))
    for handle in handles:
        if not isinstance(handle, KeyGroupsSavepointStateHandle | KeyGroupsStateHandle):
            return None
        is_canonical = isinstance(handle, KeyGroupsSavepointStateHandle)
        size = handle.stream.state_size
        for key_group, start, end in handle.offsets.sections(size, zero_is_empty=is_canonical):
            sizes[key_group] += end - start
    return sizes if handles else None


def _bases(handles: Iterable[KeyedStateHandle]) -> Iterator[KeyedStateHandle]:
    for handle in handles:
        if isinstance(handle, ChangelogStateBackendHandle):
            yield from handle.materialized
        else:
            yield handle


def _inline_bytes(snapshot: Snapshot) -> int:
    """Bytes of state inside ``_metadata``."""
    return sum(
        stream.state_size
        for operator in snapshot.operators
        for subtask in operator.state.subtasks
        for stream in subtask.streams()
        if isinstance(stream, ByteStreamStateHandle)
    )


def _attention(
    snapshot: Snapshot, figures: dict[str, Any], connectors: list[tuple[str, str | None, str]]
) -> Iterator[Attention]:
    path, names = figures["path"], SnapshotNames(snapshot)
    stored = {operator.operator_id.hex: operator for operator in snapshot.operators}
    for figures_of_operator in figures["operators"]:
        yield from _operator_attention(
            path, names, stored[figures_of_operator["hash"]], figures_of_operator
        )
    for op, problem, command in connectors:
        if problem is not None:
            yield Attention(op, problem, command)
    if figures["pending"]:
        count = sum(each["committables"] for each in figures["pending"])
        what = f"{count} committables are committed when a job restores this snapshot"
        yield Attention(None, what, command_text("committables", path))
    files = figures["files"]
    small = sum(each["bytes"] < SMALL_FILE for each in files)
    if len(files) > MANY_FILES and small > len(files) // 2:
        what = f"{len(files):,} files, {small:,} of them smaller than 1 MiB"
        yield Attention(None, what, command_text("rewrite", path, "OUT"))


def _operator_attention(
    path: str, names: SnapshotNames, stored: OperatorSnapshot, operator: dict[str, Any]
) -> Iterator[Attention]:
    label, selected = stored.label, names.text_of(stored)
    if operator["problem"]:
        yield Attention(label, f"not readable: {operator['problem']}", command_text("verify", path))
    for figures in operator["not_readable"]:
        what = f"state {figures['state']} needs Java classes: {', '.join(figures['classes'])}"
        yield Attention(
            label, what, command_text("dump", path, "--op", selected, "--jar", "JOB.jar")
        )
    if operator["uid"] is None and operator["bytes"]:
        command = command_text("rewrite", path, "OUT", "--rename", f"{selected}=UID")
        yield Attention(label, "no uid is known, only its hash", command)
    for name, spread in (("subtask", operator["subtasks"]), ("key group", operator["key_groups"])):
        if spread is not None and (spread["skew"] or 0) >= HIGH_SKEW[name]:
            what = f"the largest {name} has {spread['skew']:g} times the bytes of the median"
            yield Attention(label, what, command_text("dump", path, "--op", selected))
    if operator["contents"] is not None:
        yield from _contents_attention(path, label, selected, operator["contents"])
        for figures in operator["contents"]["operator_states"]:
            place = names.text_of(stored, figures["name"])
            yield from _union_attention(path, label, place, operator["parallelism"], figures)
    log = operator["bytes_by_kind"].get("changelog", 0)
    if log > operator["bytes_by_kind"].get("keyed state", 0):
        what = "the changelog is larger than its base, so that a restore replays more than it reads"
        yield Attention(label, what, command_text("changelog", path, "--op", selected))
    if operator["states"] and 2 * operator["parallelism"] > operator["max_parallelism"]:
        what = f"its parallelism cannot double: max parallelism {operator['max_parallelism']}"
        yield Attention(label, what, command_text("rewrite", path, "OUT", "--max-parallelism", "N"))


def _contents_attention(
    path: str, label: str, selected: str, contents: dict[str, Any]
) -> Iterator[Attention]:
    if contents["problem"]:
        yield Attention(label, f"not readable: {contents['problem']}", command_text("verify", path))
    for state in contents["states"]:
        name = state["name"]
        command = command_text("dump", path, "--op", selected, "--state", name)
        total = state["key_bytes"] + state["value_bytes"]
        hot = state["largest_keys"][:1]
        if hot and (state["keys"] or 0) >= HOT_KEYS and hot[0]["bytes"] > HOT_SHARE * total:
            share = 100 * hot[0]["bytes"] / total
            yield Attention(
                label, f"one key has {share:.0f} % of the bytes of state {name}", command
            )
        ttl = state["ttl"]
        if ttl is not None and (ttl["expired"] or 0) > EXPIRED_SHARE * ttl["count"]:
            share = 100 * ttl["expired"] / ttl["count"]
            yield Attention(label, f"{share:.0f} % of state {name} have expired", command)
        # Timers whose keys do not fit columns are counted only.
        if state["kind"] == PROC_TIMER and state["timers"] is not None:
            late = sum(
                part["count"]
                for part in state["timers"]["distances"]
                if part["to_ms"] is not None and part["to_ms"] <= -OVERDUE_MS
            )
            if late:
                what = f"{late:,} processing timers of {name} are overdue by more than a day"
                yield Attention(label, what, command_text("dump", path, "--op", selected))


def _union_attention(
    path: str, label: str, place: str, parallelism: int, state: dict[str, Any]
) -> Iterator[Attention]:
    """A union state of which every subtask has stored several copies: it was not cleared after a
    restore, which gives every subtask all of it.
    """
    if parallelism < 2 or (state["copies"] or 0) < 2:
        return
    held = f"{state['entries']:,} equal elements"
    if state["distinct"] != 1:
        different = (
            "" if state["distinct"] is None else f", {state['distinct']:,} of them different"
        )
        held = f"{state['entries']:,} elements{different}"
    what = (
        f"union state {state['name']} holds {held}, at parallelism {parallelism}: it multiplies "
        f"with each restore, unless the job clears it"
    )
    yield Attention(label, what, command_text("rewrite", path, "OUT", "--distinct", place))


def _compared(snapshot: Snapshot, older: Snapshot) -> dict[str, Any]:
    """What differs from an older snapshot, by operator; also the files that both use."""
    sizes = [
        {each.label: each.state.state_size for each in one.operators} for one in (older, snapshot)
    ]
    before, after = sizes
    files = [
        {each["path"]: each["bytes"] for each in snapshot_summary(one)["files"]}
        for one in (older, snapshot)
    ]
    try:
        changes = [str(each) for each in structure_differences(older, snapshot)]
    except DAMAGED as error:
        changes = [f"states cannot be compared: {error}"]
    shared = files[0].keys() & files[1].keys()
    return {
        "path": str(older.folder),
        "checkpoint_id": older.metadata.checkpoint_id,
        "bytes_before": sum(before.values()),
        "bytes_after": sum(after.values()),
        "operators": [
            {"operator": label, "before": before.get(label), "after": after.get(label)}
            for label in dict.fromkeys([*after, *before])
        ],
        "shared_files": len(shared),
        "shared_bytes": sum(files[1][path] for path in shared),
        "new_bytes": sum(size for path, size in files[1].items() if path not in shared),
        "changes": changes,
    }
