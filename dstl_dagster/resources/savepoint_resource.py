"""Loads, checks, edits and reads savepoints and checkpoints in the code of assets."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field, PrivateAttr

from dstl_core.clock import SystemClock
from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.errors import SnapshotExistsError, StateFileNotFoundError
from dstl_core.flink_text import duration_ms
from dstl_core.savepoint.access.units import Jobs
from dstl_core.savepoint.edit.kept_state import Files
from dstl_core.savepoint.edit.rewrite import edit_by_names
from dstl_core.savepoint.edit.savepoint_edit import SavepointEdit
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.read.snapshot_names import SnapshotNames, lines_of_file
from dstl_core.savepoint.report.snapshot_report import SnapshotReport, report_snapshot
from dstl_core.savepoint.verify.verify import Report, verify_snapshot
from dstl_core.savepoint.write.folder import KeyedForm
from dstl_core.state.tables.named_objects import SERIALIZERS, registry_from
from dstl_dagster.resources.checked_options import CheckedOptions
from dstl_dagster.resources.storage_resource import DstlStorageResource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SavepointResource(CheckedOptions, dg.ConfigurableResource):
    """Finds snapshots by name (in the storage) or by path. Only ``read`` needs Spark.

    ``jobs`` is what reads and writes keyed state: a number of processes, None for all cores if it
    is large, or ``SparkUnits(session)``.
    """

    storage: dg.ResourceDependency[DstlStorageResource]
    allow_roots: list[str] = Field(default=[], description="Further folders handles may name.")
    relocate: dict[str, str] = Field(default={}, description="Old root to new root of files.")
    serializers: str | None = Field(default=None, description=SERIALIZERS)
    _types: SerializerRegistry | None = PrivateAttr(default=None)

    def with_types(self, registry: SerializerRegistry) -> "SavepointResource":
        """This resource with a registry of types that has no name."""
        self._types = registry
        return self

    def load(self, place: str) -> Snapshot:
        """Loads a snapshot.

        Raises:
            StateFileNotFoundError: There is no snapshot.
            FormatError: Its metadata is damaged.
        """
        return self._load(place)

    def _load(
        self, place: str, jars: Sequence[str] = (), further_roots: Sequence[str] = ()
    ) -> Snapshot:
        return Snapshot.load(
            self.storage.path_of(place),
            allow_roots=[*self.allow_roots, *further_roots],
            relocate=self.relocate,
            serializers=self._registry,
            jars=jars,
        )

    @property
    def _registry(self) -> SerializerRegistry:
        return registry_from(self._types or self.serializers, "the resource of savepoints")

    def find(self, place: str) -> Snapshot | None:
        """Loads a snapshot; returns None if there is none."""
        return self._find(place)

    def _find(self, place: str, further_roots: Sequence[str] = ()) -> Snapshot | None:
        try:
            return self._load(place, further_roots=further_roots)
        except StateFileNotFoundError:
            return None

    def verify(self, place: str, jobs: Jobs = 1) -> Report:
        """Reads a whole snapshot and reports what is wrong with it."""
        return verify_snapshot(self.load(place), jobs=jobs)

    def report(self, place: str, compare: str | None = None, **options: Any) -> SnapshotReport:
        """Reports on a snapshot, and on what grew since another one. It reads every record.

        Args:
            place: The snapshot.
            compare: An older snapshot.
            options: Further options of ``dstl_core.report_snapshot``.
        """
        older = None if compare is None else self.load(compare)
        return report_snapshot(self.load(place), compare=older, **options)

    def rewrite(
        self,
        source: str,
        out: str,
        *,
        rename: Mapping[str, str] | None = None,
        remove: Sequence[str] = (),
        max_parallelism: int | None = None,
        files: Files | None = None,
        format: KeyedForm = "canonical",
        erase_keys: Mapping[str, str] | None = None,
        where: Mapping[str, str] | None = None,
        drop_expired: Mapping[str, str] | None = None,
        jobs: Jobs = 1,
    ) -> Snapshot:
        """Writes an edited copy of a snapshot. If ``out`` holds that copy already, it returns it.

        Args:
            source: The snapshot to copy.
            out: Where the copy goes.
            rename: Operator (uid, hash or name) to its new uid.
            remove: Operators to leave out.
            max_parallelism: New max parallelism of all operators.
            files: What becomes of state that does not change: ``canonical``, ``copy`` or ``share``,
                as ``SavepointEdit.with_files`` says. None is ``canonical``; with native form, files
                of a checkpoint are shared, and files of a savepoint copied.
            format: The form of keyed state that is written: ``canonical``, or ``native`` for
                RocksDB.
            erase_keys: Operator to the path of a file with keys that go, one on each line.
            where: ``OP/STATE`` to the condition of entries that stay.
            drop_expired: ``OP/STATE`` to a time to live as ``7 d``: values that were last accessed
                so long ago go.
            jobs: What reads and writes keyed state.

        Raises:
            SavepointError: The edit is impossible, or ``out`` holds another snapshot: of another
                source, or by another edit.
        """
        snapshot = self.load(source)
        asked = erase_keys or {}, where or {}, drop_expired or {}
        purge = _purge(SnapshotNames(snapshot), *asked)
        edit = edit_by_names(
            snapshot,
            rename=rename,
            remove=remove,
            max_parallelism=max_parallelism,
            files=files or (None if format == "native" else "canonical"),
            form=None if format == "canonical" else format,
            **purge,
        )
        choices: list[Any] = [dict(rename or {}), list(remove), max_parallelism]
        choices += _kept(edit.kept_files, format)
        choices += [sorted(purge["erase_keys"].items()), where, drop_expired] if any(asked) else []
        return self._copied(edit, snapshot, out, choices, jobs)

    def upgrade(
        self,
        source: str,
        out: str,
        *,
        to: str = "2.2",
        jars: Sequence[str] = (),
        drop: Sequence[str] = (),
        types: Mapping[str, str] | None = None,
        template: str | None = None,
        new_jars: Sequence[str] = (),
        new_keys: Mapping[str, str] | None = None,
        files: Files | None = None,
        format: KeyedForm = "canonical",
        jobs: Jobs = 1,
    ) -> Snapshot:
        """Writes a copy of a savepoint of Flink 1.x that Flink 2.x restores. If ``out`` holds that
        copy already, it returns it.

        Args:
            source: The savepoint of Flink 1.x.
            out: Where the copy goes.
            to: The version of Flink that restores it, 2.0 to 2.3.
            jars: Paths of the jars of the job that wrote it.
            drop: States to leave out, as ``state`` or ``operator/state``.
            types: Java types that the jars do not show, by state or by ``class.field``.
            template: A savepoint of the new job, whose types take the place of Scala's.
            new_jars: Jars of the new job, with classes that take the place of Scala's.
            new_keys: Java types of keys, in place of those of Scala, by operator.
            files: As for ``rewrite``.
            format: As for ``rewrite``.
            jobs: What reads and writes keyed state.

        Raises:
            ConfigError: ``source`` is of Flink 2.x, or a type is wrong.
            SavepointError: A state is blocked, or ``out`` holds another snapshot: of another
                source, or by another edit.
        """
        snapshot = self._load(source, jars)
        new_job = None if template is None else self.load(template)
        upgrade = SavepointUpgrade(
            snapshot,
            to,
            drop,
            types,
            files=files,
            format=format,
            new_jars=new_jars,
            new_keys=new_keys,
            template=new_job,
        )
        choices: list[Any] = [to, sorted(drop), dict(types or {})]
        if template is not None or new_jars or new_keys:
            sha256 = None if new_job is None else new_job.file.sha256
            choices += [sha256, list(new_jars), dict(new_keys or {})]
        choices += _kept(upgrade.files, format)
        return self._copied(upgrade, snapshot, out, choices, jobs)

    def migration(
        self,
        declaration: str | Mapping[str, Any],
        source: str | None = None,
        *,
        files: Files | None = None,
        format: KeyedForm = "canonical",
    ) -> SavepointMigration:
        """A migration of a savepoint, to plan it.

        Args:
            declaration: Path of the YAML file, or its values.
            source: The savepoint of the old job; by default the one that the declaration names.
            files: As for ``rewrite``.
            format: As for ``rewrite``.

        Raises:
            ConfigError: It is not a declaration.
            StateFileNotFoundError: A savepoint is missing.
        """
        declared = (
            Migration.load(declaration)
            if isinstance(declaration, str)
            else Migration.of(declaration)
        )
        place = source or declared.from_
        old = None if place is None else self.load(place)
        return SavepointMigration(
            declared, old, serializers=self._registry, files=files, format=format
        )

    def migrate(
        self,
        declaration: str | Mapping[str, Any],
        out: str,
        *,
        source: str | None = None,
        files: Files | None = None,
        format: KeyedForm = "canonical",
        jobs: Jobs = 1,
    ) -> Snapshot:
        """Writes a savepoint for a job that changed, by a declaration. If ``out`` holds that copy
        already, it returns it. Arguments as for ``migration`` and ``rewrite``.

        Raises:
            ConfigError: It is not a declaration, or it does not fit the savepoint.
            SavepointError: Something has to be decided, or ``out`` holds another snapshot: of
                another source, or by another declaration.
            ColumnValueError: Values do not fit.
        """
        migration = self.migration(declaration, source, files=files, format=format)
        return self.write_migration(migration, out, jobs)

    def write_migration(self, migration: SavepointMigration, out: str, jobs: Jobs = 1) -> Snapshot:
        """Writes a migration that was planned; see ``migrate``."""
        edit: list[Any] = [migration.migration.document, migration.plan_json()]
        edit += _kept(migration.files, migration.form)
        return self._copied(migration, migration.source, out, edit, jobs)

    def _copied(
        self,
        rewriter: SavepointEdit | SavepointUpgrade | SavepointMigration,
        source: Snapshot,
        out: str,
        edit: Sequence[Any],
        jobs: Jobs,
    ) -> Snapshot:
        """Writes the copy that an edit makes of a snapshot, unless it is there."""
        text = json.dumps([source.file.sha256, *edit], sort_keys=True, default=str)
        run_key = hashlib.sha256(text.encode()).hexdigest()[:16]
        # A copy by reference has its files in folders of the source.
        shared = rewriter.shares_files_in
        existing = self._find(out, shared)
        if existing is None or not _is_copy(existing, source, run_key):
            try:
                rewriter.write(self.storage.path_of(out), run_key=run_key, jobs=jobs)
            except SnapshotExistsError as error:
                occupant = error.context["found"]
                raise SnapshotExistsError(
                    f"{occupant}, and not what this edit makes of {source.folder}; give the copy "
                    f"another name (out), or remove what is there.",
                    found=occupant,
                ) from None
            return self._load(out, further_roots=shared)
        return existing

    def read(
        self,
        session: "SparkSession",
        place: str,
        *,
        uid: str | None = None,
        state: str | None = None,
    ) -> "DataFrame":
        """Reads keyed state as a DataFrame: a column per state, or one state in flat form."""
        from dstl_core.spark.savepoints.data_source import load_state

        path = self.storage.path_of(place)
        return load_state(
            session,
            path,
            uid=uid,
            state=state,
            serializers=self._registry,
            allow_roots=self.allow_roots,
            relocate=self.relocate,
        )


def _kept(files: Files, form: KeyedForm) -> list[str]:
    """What an edit says of files and forms; nothing by default, as edits of versions before."""
    return [*([] if files == "canonical" else [files]), *([] if form == "canonical" else [form])]


def _purge(
    names: SnapshotNames,
    erase_keys: Mapping[str, str],
    where: Mapping[str, str],
    drop_expired: Mapping[str, str],
) -> dict[str, Any]:
    """What goes from keyed state, as arguments of ``edit_by_names``."""

    def place(option: str, name: str) -> tuple[str, str]:
        [known] = names.places(option, [name])
        return known

    return {
        "erase_keys": {
            name: lines_of_file("erase_keys", file, "key") for name, file in erase_keys.items()
        },
        "where": {place("where", name): condition for name, condition in where.items()},
        "drop_expired": {
            place("drop_expired", name): (
                duration_ms(ttl, f"Time to live of {name}", least=0),
                SystemClock().now_ms(),
            )
            for name, ttl in drop_expired.items()
        },
    }


def _is_copy(snapshot: Snapshot, source: Snapshot, run_key: str) -> bool:
    """Whether a savepoint is what an edit makes of the present content of another one. A copy of a
    version before does not know its edit, so its source decides.
    """
    sidecar = snapshot.file.sidecar
    if sidecar is None or sidecar.notes.get("source_sha256") != source.file.sha256:
        return False
    return bool(sidecar.notes.get("run_key", run_key) == run_key)


def version_of(snapshot: Snapshot) -> str:
    """The data version of a snapshot: its checkpoint id and the digest of its metadata."""
    return f"ck-{snapshot.metadata.checkpoint_id}:{snapshot.file.sha256}"
