"""``DstlResourcesComponent``: storage, engines and Flink of a project, in YAML only."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import Field

from dstl_core.errors import ConfigError
from dstl_dagster.attributes import shown
from dstl_dagster.components.scaffolders import ResourcesScaffolder
from dstl_dagster.resources.flink_resource import FlinkClusterResource
from dstl_dagster.resources.local_engine_resource import DstlLocalEngineResource
from dstl_dagster.resources.savepoint_resource import SavepointResource
from dstl_dagster.resources.spark_resource import DstlSparkResource
from dstl_dagster.resources.storage_resource import (
    AzureCredentials,
    DstlStorageResource,
    EnvironmentCredentials,
    GcsCredentials,
    S3Credentials,
)

_CREDENTIALS: dict[str, Any] = {
    "environment": EnvironmentCredentials,
    "s3": S3Credentials,
    "gcs": GcsCredentials,
    "azure": AzureCredentials,
}


class CredentialsModel(dg.Model, dg.Resolvable):
    """How a file system is reached. Secrets stay in environment variables."""

    kind: Annotated[
        Literal["environment", "s3", "gcs", "azure"],
        shown("Kind of the credentials; `environment` takes those of the process.", "s3"),
    ] = "environment"
    env: Annotated[
        dict[str, str],
        shown(
            "Field of the credentials to the environment variable that holds it.",
            {"access_key_id": "ORDERS_KEY_ID", "secret_access_key": "ORDERS_KEY"},
        ),
    ] = Field(default={})
    options: Annotated[
        dict[str, str],
        shown("Field of the credentials to its value, for what is no secret.", {"region": "eu-1"}),
    ] = Field(default={})

    def build(self) -> Any:
        """The credentials of a storage.

        Raises:
            ConfigError: A field is unknown or missing.
        """
        kind = _CREDENTIALS[self.kind]
        fields = {name: each for name, each in kind.model_fields.items() if name != "kind"}
        named = {*self.env, *self.options}
        needed = {name for name, each in fields.items() if each.is_required()}
        if named - set(fields) or needed - named:
            raise ConfigError(
                f"The credentials of kind {self.kind!r} have wrong fields: expected "
                f"{', '.join(sorted(fields)) or 'none'} (required: "
                f"{', '.join(sorted(needed)) or 'none'}), got {', '.join(sorted(named)) or 'none'}."
            )
        secrets = {name: dg.EnvVar(variable) for name, variable in self.env.items()}
        return kind(**self.options, **secrets)


class StorageModel(dg.Model, dg.Resolvable):
    """The resource ``storage``."""

    base_path: Annotated[
        str,
        shown(
            "Folder or URL of pipelines and savepoints, which every process sees.",
            "{{ context.project_root }}/data/dstl",
            "s3://bucket/dstl",
        ),
    ]
    credentials: Annotated[
        CredentialsModel, shown("How the file system is reached.", {"kind": "environment"})
    ] = CredentialsModel()
    also_reaches: Annotated[
        list[str], shown("Other places with the same credentials.", ["s3://bucket/flink"])
    ] = Field(default=[])

    def build(self) -> DstlStorageResource:
        return DstlStorageResource(
            base_path=self.base_path,
            credentials=self.credentials.build(),
            also_reaches=self.also_reaches,
        )


class SparkModel(dg.Model, dg.Resolvable):
    """The resource ``spark``."""

    master: Annotated[
        str | None,
        shown("Spark master; local[*] without a remote.", "local[2]", "spark://host:7077"),
    ] = None
    remote: Annotated[str | None, shown("Spark Connect server.", "sc://host:15002")] = None
    app_name: Annotated[str, shown("Name in the Spark UI.", "payments")] = "dstl"
    spark_config: Annotated[
        dict[str, str], shown("Further Spark configuration.", {"spark.executor.memory": "4g"})
    ] = Field(default={})

    def build(self) -> DstlSparkResource:
        return DstlSparkResource(**dict(self))


class LocalModel(dg.Model, dg.Resolvable):
    """The resource ``local``."""

    threads: Annotated[
        int | None, shown("Subtasks that run at a time; by default one for each core.", 4)
    ] = None
    memory: Annotated[
        str | None,
        shown("What rows and states may take; by default, states take what they need.", "4 gb"),
    ] = None
    temp_folder: Annotated[
        str | None, shown("Folder of temporary files; by default the system's.", "/scratch")
    ] = None

    def build(self) -> DstlLocalEngineResource:
        return DstlLocalEngineResource(**dict(self))


@dg.scaffold_with(ResourcesScaffolder)
@dataclass
class DstlResourcesComponent(dg.Component, dg.Resolvable):
    """The resources ``storage``, ``spark``, ``local`` and ``savepoints`` of a project, and
    ``flink`` if it has a URL. All pipelines and savepoints of a project share them.
    """

    storage: Annotated[
        StorageModel, shown("The storage.", {"base_path": "{{ context.project_root }}/data/dstl"})
    ]
    spark: Annotated[SparkModel, shown("The Spark session.", {"master": "local[2]"})] = field(
        default_factory=SparkModel
    )
    local: Annotated[
        LocalModel, shown("The engine of pipelines with `engine: local`.", {"memory": "4 gb"})
    ] = field(default_factory=LocalModel)
    flink_url: Annotated[
        str | None, shown("REST endpoint of a Flink cluster.", "http://jobmanager:8081")
    ] = None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        storage = self.storage.build()
        resources: dict[str, Any] = {
            "storage": storage,
            "spark": self.spark.build(),
            "local": self.local.build(),
            "savepoints": SavepointResource(storage=storage),
        }
        if self.flink_url is not None:
            resources["flink"] = FlinkClusterResource(url=self.flink_url)
        return dg.Definitions(resources=resources)
