"""Every way to write a savepoint from another one, over the golden files: what its sections hold.

``python -m tests.written_corpus`` records the digests anew. They were first recorded by the three
engines that one engine replaced, so nobody records them because a test fails.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

from dstl_core import Snapshot
from dstl_core.codec.snappy_frames import decompress_frames
from dstl_core.errors import DstlError
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint.edit.savepoint_edit import edit_savepoint
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.state.restore.canonical import read_stream_header
from tests.golden_files import CHANGED_JOBS, JDK_JOBS, JDK_TYPES, SNAPSHOTS, UPGRADE_JOBS, snapshot

RECORDED = Path(__file__).parent / "unit" / "savepoint" / "written_sections.json"
DECLARATIONS = Path(__file__).parents[1] / "examples" / "migrate"
MOVED = ("cnt", "names", "_timer_state/event_user-timers")
MOVABLE = (
    "a-hashmap-canonical",
    "a-hashmap-canonical-compressed",
    "a-hashmap-native",
    "a-rocksdb-native-incremental",
    "a-hashmap-changelog-materialized",
)
Write = Callable[[Path, int], str]


def _edited(fixture: Path, max_parallelism: int | None, folder: Path, jobs: int) -> str:
    edit = edit_savepoint(Snapshot.load(fixture)).with_files("canonical")
    if max_parallelism is not None:
        edit = edit.with_max_parallelism(max_parallelism)
    return edit.write(folder, jobs=jobs)


def _split(name: str, folder: Path, jobs: int) -> str:
    keyed, apart = map(OperatorIdentifier.for_uid, ("a-keyed", "apart"))
    edit = edit_savepoint(Snapshot.load(snapshot(name))).with_files("canonical")
    return edit.split_operator(keyed, apart, MOVED).write(folder, jobs=jobs)


def _merged(name: str, folder: Path, jobs: int) -> str:
    keyed, apart = map(OperatorIdentifier.for_uid, ("a-keyed", "apart"))
    parts = Snapshot.load(_split(name, folder.with_name("parts"), jobs))
    edit = edit_savepoint(parts).with_files("canonical")
    return edit.merge_operators(apart, keyed).write(folder, jobs=jobs)


def _upgraded(job: Path, folder: Path, jobs: int) -> str:
    [path] = job.glob("savepoint-*")
    source = Snapshot.load(path, jars=[job / "job.jar"])
    return SavepointUpgrade(source, types=JDK_TYPES.get(job.name)).write(folder, jobs=jobs)


def _migrated(pair: str, folder: Path, jobs: int) -> str:
    declared = Migration.load(DECLARATIONS / f"{pair}.yaml")
    old, new = (Snapshot.load(CHANGED_JOBS / pair / version) for version in ("old", "new"))
    return SavepointMigration(declared, old, new).write(folder, jobs=jobs)


def corpus() -> dict[str, Write]:
    """What writes each savepoint into a folder, by name."""
    writers: dict[str, Write] = {}
    for fixture in SNAPSHOTS:
        if fixture.name == "x-unaligned-hashmap":
            continue  # in-flight data cannot be copied
        writers[f"copy {fixture.name}"] = partial(_edited, fixture.snapshot, None)
        writers[f"rescale {fixture.name}"] = partial(_edited, fixture.snapshot, 200)
    for name in MOVABLE:
        writers[f"split {name}"] = partial(_split, name)
        writers[f"merge {name}"] = partial(_merged, name)
    for job in sorted([*UPGRADE_JOBS.iterdir(), *JDK_JOBS.iterdir()]):
        if job.is_dir():
            writers[f"upgrade {job.parent.name} {job.name}"] = partial(_upgraded, job)
    for declaration in sorted(DECLARATIONS.glob("*.yaml")):
        writers[f"migrate {declaration.stem}"] = partial(_migrated, declaration.stem)
    return writers


def digest_of(path: str) -> str:
    """What the state of a savepoint is, but for names of files and compression of key groups."""
    written = Snapshot.load(path)
    digest = sha256()
    for operator in sorted(written.operators, key=lambda operator: operator.operator_id.hex):
        digest.update(operator.operator_id.hex.encode())
        for part in _parts(operator):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:24]


def _parts(operator: OperatorCatalog) -> Iterator[bytes]:
    snapshot = operator.snapshot
    for subtask in operator.state.subtasks:
        for listed in (subtask.managed_operator_state, subtask.raw_operator_state):
            if listed is not None:
                yield repr(listed.states).encode()
                yield snapshot.resolver.read(listed.stream)
        keyed = subtask.managed_keyed_state
        if keyed is None:
            continue
        header = read_stream_header(keyed, snapshot.resolver, snapshot.registry)
        raw = snapshot.resolver.read(keyed.stream)
        starts = [*keyed.offsets.offsets]
        cuts = [start for start in starts if start] + [len(raw)]
        yield f"{keyed.key_group_range} {[bool(start) for start in starts]}".encode()
        # The states of a stream without records have no order.
        states = header.states if any(starts) else sorted(header.states, key=lambda meta: meta.name)
        yield repr(header.key_serializer).encode() + repr(tuple(states)).encode()
        for start, end in pairwise(cuts):
            section = raw[start:end]
            yield decompress_frames(section, 0, len(section)) if header.compressed else section


def outcome(write: Write, folder: Path, jobs: int = 1) -> str:
    """The digest of what was written, or the kind of the error that says why nothing was."""
    try:
        path = write(folder, jobs)
    except DstlError as error:
        return type(error).__name__
    return digest_of(path)


def recorded() -> dict[str, str]:
    digests: dict[str, str] = json.loads(RECORDED.read_bytes())
    return digests


if __name__ == "__main__":
    outcomes: dict[str, str] = {}
    for name, write in corpus().items():
        with tempfile.TemporaryDirectory() as folder:
            outcomes[name] = outcome(write, Path(folder) / "out")
    RECORDED.write_text(json.dumps(outcomes, indent=0, sort_keys=True) + "\n")
