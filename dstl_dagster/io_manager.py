"""Snapshots, state and output between assets."""

from collections.abc import Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from dstl_core.checkpoint.store.epoch_facts import LATE_SUFFIX
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.codec.declared_type import parse_type
from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.errors import ConfigError, SavepointError
from dstl_core.job.coordination.input_windows import commits_of_inputs
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.state.tables.named_objects import SERIALIZERS, registry_from
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import METADATA_FILE_NAME, Location
from dstl_dagster import metadata as show
from dstl_dagster.pipelines.pipeline import KIND, PIPELINE
from dstl_dagster.pipelines.pipeline import UID as OPERATOR
from dstl_dagster.resources.checked_options import CheckedOptions
from dstl_dagster.resources.savepoint_resource import version_of
from dstl_dagster.resources.spark_resource import DstlSparkResource
from dstl_dagster.resources.storage_resource import DstlStorageResource
from dstl_dagster.snapshots.stored_rows import (
    committed_output,
    committed_state,
    state_rows,
)

UID = "dstl/uid"
KEY_BY = "dstl/key_by"
TYPES = "dstl/types"


class DstlIOManager(CheckedOptions, dg.ConfigurableIOManager):
    """Loads state and output of pipelines, and stores tables as savepoints.

    **Loading.** An input on the state or an output of a pipeline gives the committed
    rows of the input's partitions, by the commit log: the state after the last of them, or what the
    operator gave in them. An asset without partitions gets the latest state, or all output that the
    latest state stands on. The annotation of the input says in which type: a DataFrame of pyspark,
    pandas or polars, a ``polars.LazyFrame``, a ``duckdb.DuckDBPyRelation``, or a ``pyarrow.Table``.
    Only Spark's needs Spark. Columns of pandas have types of Arrow (``pandas.ArrowDtype``), so
    every value is the stored one. Name this IO manager as the ``input_manager_key`` of the input.

    **Storing.** An asset returns a DataFrame of Spark, or what a ``LocalEngine`` takes, which this
    process writes without Spark: tables of pyarrow, pandas, polars and DuckDB, paths of Parquet
    files. The metadata of its definition describes the columns: ``dstl/uid``, ``dstl/key_by`` and
    ``dstl/types`` (column to Flink type, for types that rows do not have). Each row is a key; every
    column but the key is a state. Loaded rows have the key as ``state_key``, in the type of the
    annotation. Savepoints are in ``<base>/savepoints/<asset key>[/<partition>]/<n>``
    and never change. The complete one with the highest ``n`` is loaded.
    """

    storage: dg.ResourceDependency[DstlStorageResource]
    spark: dg.ResourceDependency[DstlSparkResource]
    max_parallelism: int = Field(default=128, ge=1, description="Key groups.")
    parallelism: int = Field(default=2, ge=1, description="Subtasks.")
    serializers: str | None = Field(default=None, description=SERIALIZERS)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Writes the next savepoint of the asset."""
        if PIPELINE in (context.definition_metadata or {}):
            return  # an epoch has committed its rows
        folder = self._folder(context)
        number, _ = _latest(folder)
        path = str(folder.child(str(number + 1)))
        self._write(context.definition_metadata or {}, obj, path)
        snapshot = Snapshot.load(path, serializers=self._registry)
        context.add_output_metadata(
            {**show.snapshot_metadata(snapshot), "dstl/data_version": version_of(snapshot)}
        )

    def load_input(self, context: dg.InputContext) -> Any:
        """Loads state or output of a pipeline, or the latest savepoint of the upstream asset."""
        upstream = context.upstream_output
        metadata = (upstream.definition_metadata if upstream is not None else None) or {}
        if PIPELINE in metadata:
            return self._load_committed(context, metadata)
        folder = self._folder(context)
        _, path = _latest(folder)
        if path is None:
            part = self._part_named(context.asset_key)
            if part is not None:
                return self._load_committed(context, part)
            raise SavepointError(
                f"There are no rows of the asset {context.asset_key.to_user_string()!r}: expected "
                f"a savepoint in {folder}, or state or output of a pipeline that has committed in "
                f"{self.storage.jobs}; if it has another key, give its spec the metadata "
                f"{PIPELINE!r}, {KIND!r} and {OPERATOR!r}, as pipeline.spec(..) has them."
            )
        rows = state_rows(path, str(metadata[UID]), self._registry)
        return rows.as_type(context.dagster_type.typing_type, lambda: self.spark.spark_session)

    @property
    def _registry(self) -> SerializerRegistry:
        return registry_from(self.serializers, "the IO manager")

    def _load_committed(self, context: dg.InputContext, metadata: Any) -> Any:
        self.storage.connect()
        name, kind, uid = (str(metadata[each]) for each in (PIPELINE, KIND, OPERATOR))
        if kind not in ("state", "output"):
            raise ConfigError(
                f"The asset {context.asset_key.to_user_string()!r} has no rows to load: expected "
                f"state or output of a pipeline, got its {kind}."
            )
        store = PipelineStore(self.storage.jobs, name)
        keys = _keys(context)
        if kind == "state":
            rows = committed_state(store, name, uid, keys, self._registry)
        else:
            rows = committed_output(store, name, uid, keys)
        return rows.as_type(context.dagster_type.typing_type, lambda: self.spark.spark_session)

    def _part_named(self, key: dg.AssetKey) -> dict[str, str] | None:
        """The part of a pipeline with a key of ``DagsterDstlTranslator``, with or without a prefix:
        ``<pipeline>/<pipeline>_<kind>_<uid>`` or ``<pipeline>/<kind>/<uid>``.
        """
        for at, name in enumerate(key.path[:-1]):
            for kind in ("state", "output"):
                names = self._operators_of(name)
                for uid in names:
                    text = uid.replace("/", "_")
                    if key.path[at + 1 :] in ([f"{name}_{kind}_{text}"], [kind, text]):
                        return {PIPELINE: name, KIND: kind, OPERATOR: uid}
        return None

    def _operators_of(self, name: str) -> list[str]:
        """The uids of a pipeline, and the names of late rows; none if it has not committed."""
        commit = next(commits_of_inputs(PipelineStore(self.storage.jobs, name)), None)
        uids = [] if commit is None else list(commit.facts.operators)
        return [*uids, *(f"{uid}{LATE_SUFFIX}" for uid in uids)]

    def _folder(self, context: dg.OutputContext | dg.InputContext) -> Location:
        parts = [*context.asset_key.path]
        if context.has_asset_partitions:
            parts.append(context.asset_partition_key)
        return Location.parse(self.storage.savepoint("/".join(parts)))

    def _write(self, metadata: Any, rows: Any, path: str) -> None:
        from dstl_core.local.local_engine import LocalEngine
        from dstl_core.operator_transformation import OperatorTransformation
        from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter

        missing = [name for name in (UID, KEY_BY) if name not in metadata]
        if missing:
            raise ConfigError(
                f"The asset does not say how its rows become state: its metadata has no "
                f"{missing[0]}."
            )
        types = {name: parse_type(text) for name, text in dict(metadata.get(TYPES, {})).items()}
        writer = SavepointWriter.new_savepoint(
            self.spark.spark_session if hasattr(rows, "sparkSession") else LocalEngine(),
            max_parallelism=self.max_parallelism,
            parallelism=self.parallelism,
        )
        keyed = OperatorTransformation.bootstrap_with(rows).key_by(str(metadata[KEY_BY]))
        identifier = OperatorIdentifier.for_uid(str(metadata[UID]))
        writer.with_operator(identifier, keyed.transform_columns(types)).write(path)


def _keys(context: dg.InputContext) -> Sequence[str] | None:
    """The partitions that an input asks for; None if it asks for all, or there are none."""
    if not context.has_asset_partitions:
        return None
    keys = context.asset_partition_keys
    # Without partitions of its own, an asset depends on all that there are, committed or not.
    every = context.asset_partitions_def.get_partition_keys(
        dynamic_partitions_store=context.instance
    )
    return None if set(keys) == set(every) else keys


def _latest(folder: Location) -> tuple[int, str | None]:
    """The highest number in use, and the path of the highest that is complete."""
    file_io = open_file_io(folder)
    numbers = sorted(
        int(status.location.name)
        for status in file_io.list_folder(folder)
        if status.location.name.isdecimal()
    )
    for number in reversed(numbers):
        place = folder.child(str(number))
        if file_io.size(place.child(METADATA_FILE_NAME)) is not None:
            return numbers[-1], str(place)
    return (numbers[-1] if numbers else 0), None
