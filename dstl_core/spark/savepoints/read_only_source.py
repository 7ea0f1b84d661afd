"""Errors for uses of a data source that state does not support."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from pyspark.sql import datasource as ds
from pyspark.sql.types import StructField, StructType

from dstl_core.errors import ConfigError
from dstl_core.job.spec.output_types import twins_of
from dstl_core.spark.engine.worker_errors import short_traceback


class ReadOnlySource(ds.DataSource):
    """A source for batch reads. Every other use raises an error that names the alternative."""

    profiles: ClassVar[str | None] = None
    """The path of the file with the driver's storage profiles; ``register`` fills it in."""

    @short_traceback
    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise ConfigError(
            f"The source {self.name()!r} cannot be written with df.write: state needs a key and an "
            f"operator; use SavepointWriter and OperatorTransformation.bootstrap_with(df)."
        )

    @short_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # Spark's name
        raise ConfigError(
            f"The source {self.name()!r} cannot be written by a stream; use "
            f"df.writeStream.foreachBatch(job.foreach_batch()) with a StatefulJob, which commits a "
            f"checkpoint per batch."
        )

    @short_traceback
    def streamReader(self, schema: StructType) -> NoReturn:  # Spark's name
        raise ConfigError(
            f"The source {self.name()!r} cannot be read as a stream: a snapshot does not change; "
            f"use spark.read, or the source 'state-changelog' with the option since for the "
            f"changes between two checkpoints."
        )

    def simpleStreamReader(self, schema: StructType) -> NoReturn:  # Spark's name
        self.streamReader(schema)


def columns_asked_for(
    asked: StructType, stored_schema: StructType, what: str
) -> tuple[str, ...] | None:
    """The columns of ``.schema(..)``, in their order; None if it is the table's own schema.

    Raises:
        ConfigError: A column does not exist, has another type, or is declared NOT NULL; or there
            is no column.
    """
    if not asked.names:
        raise ConfigError(
            f".schema(..) has no column; {what} has: {', '.join(stored_schema.names)}."
        )
    types = {each.name: each.dataType.simpleString() for each in stored_schema}
    for field in asked:
        if field.name not in types:
            raise ConfigError(
                f".schema(..) names a column {field.name!r} that {what} does not have; it has: "
                f"{', '.join(types)}."
            )
        if field.dataType.simpleString() != types[field.name]:
            raise ConfigError(
                f".schema(..) gives column {field.name!r} the type "
                f"{field.dataType.simpleString()}, but {what} stores {types[field.name]}; "
                f"leave .schema out, and cast the column after load()."
            )
        stored = stored_schema[field.name]
        if field.nullable < stored.nullable or _shape(field) != _shape(stored):
            raise ConfigError(
                f".schema(..) declares column {field.name!r}, or a part of it, NOT NULL, but Spark "
                f"expects nulls there from {what}; leave NOT NULL (nullable=False, "
                f"containsNull=False) out."
            )
    return None if asked.names == stored_schema.names else tuple(asked.names)


def _shape(field: StructField) -> Any:
    """The type of a column with what may be null, without comments."""

    def plain(json: Any) -> Any:
        if isinstance(json, dict):
            return {name: plain(each) for name, each in json.items() if name != "metadata"}
        return [plain(each) for each in json] if isinstance(json, list) else json

    return plain(field.dataType.jsonValue())


def check_names(names: list[str], what: str) -> None:
    """Refuses columns that Spark cannot tell apart.

    Raises:
        ConfigError: Two names differ only in case.
    """
    twins = twins_of(names)
    if twins is not None:
        raise ConfigError(
            f"The columns {twins[0]!r} and {twins[1]!r} of {what} differ in case only, which Spark "
            f"treats as equal; read one of them with the option columns, or one state with the "
            f"option state."
        )
