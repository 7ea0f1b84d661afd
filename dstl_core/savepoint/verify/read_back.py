"""Reads back what a savepoint got, before anybody else can see it.

Every way to write a savepoint from another one asks here, and then publishes. What was written anew
is read as ``dstl verify`` reads it. Bytes that come from another snapshot are compared with what
was copied, and not judged: a copy is not to blame for damage of its source. Files that stay where
they are, are not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from dstl_core.checkpoint.store.metadata_file import unpublished_metadata_file
from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.columnar.keyed.record_digests import RecordDigests, StateDigest
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.job_types import with_job_types
from dstl_core.codec.kryo.kryo_serializer import KryoClasses, dialect_of
from dstl_core.codec.serializers import BUILT_IN
from dstl_core.codec.sst.manifest import read_manifest
from dstl_core.errors import (
    FormatError,
    SavepointError,
    StateFileNotFoundError,
    StorageError,
    UnreadableValueError,
)
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    OperatorStateMode,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from dstl_core.savepoint.access.units import Jobs
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.verify.range_check import ReportForm
from dstl_core.savepoint.verify.verify import Finding, Report, verify_snapshot
from dstl_core.savepoint.write.folder import SavepointFolder, StoredKeyedHandle
from dstl_core.savepoint.write.recorded_runner import RecordedRunner
from dstl_core.savepoint.write.table_parts import part_of
from dstl_core.state.columns.progress import Stage
from dstl_core.state.restore.canonical import read_stream_header
from dstl_core.state.restore.rocksdb import current_manifest, table_name
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location

NOTHING_COUNTED: Mapping[tuple[str, str], int] = {}
REFUSED = "What was written is not what is stored, so nothing was published"


def read_back(
    target: SavepointFolder,
    metadata: CheckpointMetadata,
    source: Snapshot | None,
    stage_of: Callable[[int], Stage],
    counts: Mapping[tuple[str, str], int] = NOTHING_COUNTED,
    jobs: Jobs = 1,
) -> tuple[Snapshot, Report]:
    """Reads what was written into a folder that nobody sees yet.

    Args:
        target: The folder.
        metadata: What is about to be published.
        source: The snapshot that the state is from. It lends its types and classes.
        stage_of: Gives what is told of progress, once the number of bytes to read is known.
        counts: Records that were written, by operator and state, as far as they are known.
        jobs: Number of processes that read keyed state, or what runs units.

    Returns:
        The snapshot as it will be, and what was found in the state that was written anew.

    Raises:
        SavepointError: Something differs, cannot be read, or is not there. The message names it.
    """
    whole = _snapshot(target, metadata, source)
    fresh = tuple(_fresh(each, target, whole) for each in metadata.operators)
    checked = _snapshot(target, replace(metadata, operators=fresh), source)
    copies = _copies(whole.metadata, target)
    total = sum(copies.values()) + sum(each.state_size for each in fresh)
    stage = stage_of(total)
    for name, length in copies.items():
        _compare_copy(target, name, length)
        stage.add(length)
    if target.record is not None:
        jobs = RecordedRunner(target.record, jobs, ReportForm())
    known = {stream for each in checked.operators for stream in _self_checking(each, target)}
    report = verify_snapshot(
        checked,
        on_progress=stage.add,
        jobs=jobs,
        self_checking=known,
        copies=frozenset(target.copied_records),
        is_sampled=True,
    )
    # A sidecar in the folder belongs to the snapshot that is replaced, not to these files.
    findings = [each for each in report.findings if each.operator is not None]
    if findings:
        raise SavepointError(_refusal(findings[0], source, target))
    _compare_copied_records(checked, report, target)
    _compare_counts(checked, report, counts, target)
    stage.finish()
    return whole, report


def _snapshot(
    target: SavepointFolder, metadata: CheckpointMetadata, source: Snapshot | None
) -> Snapshot:
    file = unpublished_metadata_file(target.folder, metadata, target.written)
    shared = {
        Location.parse(stream.path).parent
        for operator in metadata.operators
        for subtask in operator.subtasks
        for stream in subtask.streams()
        if isinstance(stream, FileStateHandle | SegmentFileStateHandle)
    }
    resolver = HandleResolver(target.file_io, target.folder, allow_roots=[*shared])
    layouts = ClassLayouts(JobClasses()) if source is None else source.kryo.layouts
    kryo = KryoClasses(dialect_of(metadata.version), layouts)
    registry = with_job_types(BUILT_IN if source is None else source.registry, kryo)
    snapshot = Snapshot(file, target.file_io, resolver, registry)
    snapshot.kryo = kryo
    return snapshot


# ------------------------------------------------------------------------------------- what is new


def _fresh(state: OperatorState, target: SavepointFolder, whole: Snapshot) -> OperatorState:
    """The operator with the state that was written anew, and no other."""
    subtasks = (_fresh_subtask(each, target, whole) for each in state.subtasks)
    return replace(state, subtasks=tuple(subtasks), coordinator_state=None)


def _fresh_subtask(
    subtask: OperatorSubtaskState, target: SavepointFolder, whole: Snapshot
) -> OperatorSubtaskState:
    listed, keyed = subtask.managed_operator_state, subtask.managed_keyed_state
    if listed is not None and _is_old(listed.stream, target):
        listed = None
    if not _is_fresh(keyed, target):
        keyed = None
    if isinstance(keyed, IncrementalRemoteKeyedStateHandle):
        keyed = _fresh_tables(keyed, target, whole)
    raw = subtask.raw_operator_state
    if raw is not None and _is_old(raw.stream, target):
        raw = None
    timers = subtask.raw_keyed_state
    if not isinstance(timers, KeyGroupsStateHandle) or _is_old(timers.stream, target):
        timers = None
    return replace(
        subtask,
        managed_operator_state=listed,
        managed_keyed_state=keyed,
        raw_operator_state=raw,
        raw_keyed_state=timers,
    )


def _self_checking(
    operator: OperatorSnapshot, target: SavepointFolder
) -> Iterator[StreamStateHandle]:
    """The streams of keyed state all of whose bytes have checksums: the blocks of table files, and
    the compressed key groups behind a header that is the one that was written.
    """
    for keyed in operator.keyed_handles:
        match keyed:
            case IncrementalRemoteKeyedStateHandle():
                yield from (stream for _, stream in keyed.shared)
            case KeyGroupsSavepointStateHandle(stream=RelativeFileStateHandle() as stream):
                with suppress(
                    FormatError, StateFileNotFoundError
                ):  # what is wrong, the reading says
                    if target.has_head(stream.relative_path) and _is_compressed(operator, keyed):
                        yield stream


def _is_compressed(operator: OperatorSnapshot, keyed: KeyGroupsSavepointStateHandle) -> bool:
    snapshot = operator.snapshot
    return read_stream_header(keyed, snapshot.resolver, snapshot.registry).compressed


def _is_fresh(keyed: KeyedStateHandle | None, target: SavepointFolder) -> bool:
    match keyed:
        case KeyGroupsSavepointStateHandle():
            return not _is_old(keyed.stream, target)
        case IncrementalRemoteKeyedStateHandle():
            # Other names of states make a new MANIFEST of table files that stay.
            return not all(_is_old(stream, target) for _, stream in keyed.shared)
    return False  # a form that is not written


def _fresh_tables(
    handle: IncrementalRemoteKeyedStateHandle, target: SavepointFolder, whole: Snapshot
) -> IncrementalRemoteKeyedStateHandle:
    """The handle with the states whose table files were written anew. Those of a state are all old
    or all new.
    """
    streams = dict(handle.shared + handle.private)
    try:
        place = current_manifest(handle, whole.resolver)
        families = read_manifest(whole.resolver.read(streams[place])).family_of_file
    except (FormatError, StorageError):
        return handle  # what is wrong, the reading says
    old: dict[str, None] = {
        family.name: None
        for number, family in families.items()
        if _is_old(streams.get(table_name(number)), target)
    }
    if not old:
        return handle
    return part_of(handle, old, whole.resolver, whole.registry, "fresh")


def _is_old(stream: object, target: SavepointFolder) -> bool:
    match stream:
        case ByteStreamStateHandle(handle_name=name) | RelativeFileStateHandle(relative_path=name):
            return name in target.copied or name in target.kept
        case FileStateHandle() | SegmentFileStateHandle():
            return True  # what is written is in the folder
    return False


def _copies(metadata: CheckpointMetadata, target: SavepointFolder) -> dict[str, int]:
    """The files that were copied, by name, with their sizes."""
    streams = (
        stream
        for operator in metadata.operators
        for subtask in operator.subtasks
        for stream in subtask.streams()
    )
    names = (
        stream.relative_path for stream in streams if isinstance(stream, RelativeFileStateHandle)
    )
    return {name: target.copied[name] for name in names if name in target.copied}


# ----------------------------------------------------------------------------------- what is wrong


def _compare_copy(target: SavepointFolder, name: str, length: int) -> None:
    """Compares a copied file with what was copied."""
    location = target.folder.child(name)
    size = target.file_io.size(location)
    if size != length:
        got = "no file" if size is None else f"{size} bytes"
        raise SavepointError(
            f"{REFUSED}: expected {length} bytes, got {got} in {location}; {_advice(target)}."
        )
    if name in target.copied_by_store:
        return  # the store checks its own copies; to read it would be more work than the copy
    try:
        is_stored = target.is_stored(name)
    except StateFileNotFoundError as error:
        raise SavepointError(f"{REFUSED}: {error.message}; {_advice(target)}.") from error
    if not is_stored:
        raise SavepointError(
            f"{REFUSED}: expected the bytes that were copied, got others in {location}; "
            f"{_advice(target)}."
        )


def _refusal(finding: Finding, source: Snapshot | None, target: SavepointFolder) -> str:
    """The sentence for a finding, which may be a fault that the source has, too."""
    before = None if source is None else _finding_of(source, finding)
    if before is not None and source is not None:
        return (
            f"The source is damaged, so nothing was published: {before} (in {source.folder}); mend "
            f"the source, or leave the operator out."
        )
    return f"{REFUSED}: {finding}; {_advice(target)}."


def _finding_of(source: Snapshot, finding: Finding) -> Finding | None:
    """What is wrong with the same operator of the source, or in the same way with another one whose
    state it got. Read only after something went wrong.
    """
    for source_finding in verify_snapshot(source).findings:
        is_same = (
            source_finding.operator == finding.operator or source_finding.problem == finding.problem
        )
        if source_finding.operator is not None and is_same:
            return source_finding
    return None


def _advice(target: SavepointFolder) -> str:
    return f"the source did not change: check the storage of {target.folder}, then write again"


def _compare_copied_records(snapshot: Snapshot, report: Report, target: SavepointFolder) -> None:
    """Compares the digests of records that were copied with those of what was read."""
    for operator in snapshot.operators:
        with_timers = _with_timers(operator, target)
        if operator.label not in report.digests:
            continue  # small state, whose records were decoded
        expected = RecordDigests()
        for handle in operator.keyed_handles:
            if isinstance(handle, StoredKeyedHandle):
                expected.update(target.copied_records.get(handle, {}))
        read = report.digests[operator.label]
        for handle in with_timers.timer_queues:
            from dstl_core.savepoint.read.stored_columns import digests_of_range  # loads kernels

            read.update(digests_of_range(with_timers, handle, handle.key_group_range))
        stored = read.states
        for state in expected.states.keys() | stored.keys():
            told, got = expected.states.get(state, (0, 0)), stored.get(state, (0, 0))
            if told != got:
                raise SavepointError(
                    f"{REFUSED}: expected {_digest_text(told)} of state {state!r} of operator "
                    f"{operator.label!r}, got {_digest_text(got)}; {_advice(target)}."
                )


def _with_timers(operator: OperatorSnapshot, target: SavepointFolder) -> OperatorSnapshot:
    try:
        return operator.with_timer_queues
    except SavepointError as error:
        raise SavepointError(f"{REFUSED}: {error.message}; {_advice(target)}.") from error


def _digest_text(digest: StateDigest) -> str:
    count, own = digest
    return f"{count} records with the digest {own:016x}"


def _compare_counts(
    snapshot: Snapshot,
    report: Report,
    counts: Mapping[tuple[str, str], int],
    target: SavepointFolder,
) -> None:
    """Compares the number of records of each state with what was written."""
    if not counts:
        return
    counted = Counter(report.records)
    unknown = set(report.incomplete)
    for operator in snapshot.operators:
        _count_elements(operator, counted, unknown)
    for (operator_label, state), expected in counts.items():
        is_known = not unknown & {(operator_label, state), (operator_label, None)}
        if is_known and counted[operator_label, state] != expected:
            raise SavepointError(
                f"{REFUSED}: expected {expected} records of state {state!r} of operator "
                f"{operator_label!r}, got {counted[operator_label, state]}; {_advice(target)}."
            )


def _count_elements(
    operator: OperatorSnapshot,
    counted: Counter[tuple[str, str]],
    unknown: set[tuple[str, str | None]],
) -> None:
    for _, handle, reader in operator.operator_state_readers():
        for info in handle.states:
            try:
                of_map = info.mode is OperatorStateMode.BROADCAST
                entries = reader.raw_pairs(info) if of_map else reader.raw_elements(info)
            except UnreadableValueError:
                unknown.add((operator.label, info.name))
            else:
                counted[operator.label, info.name] += len(list(entries))
