"""The storage of pipelines, savepoints and events, and its credentials."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg
from pydantic import ConfigDict, Field, field_validator

from dstl_core.errors import ConfigError
from dstl_core.storage.location import Location
from dstl_core.storage.profiles import register_profile
from dstl_core.storage.redaction import redacted
from dstl_dagster.resources.checked_options import CheckedOptions


class _Credentials(CheckedOptions, dg.Config):
    """A way to reach a file system. No error shows a value of it."""

    model_config = ConfigDict(hide_input_in_errors=True)


class EnvironmentCredentials(_Credentials):
    """Each process takes its credentials from its environment."""

    kind: Literal["environment"] = "environment"

    def storage_options(self) -> dict[str, Any]:
        return {}


class S3Credentials(_Credentials):
    """An access key of S3 or of a compatible store. Give secrets as ``EnvVar``."""

    kind: Literal["s3"] = "s3"
    access_key_id: str = Field(repr=False, description="Id of the access key.")
    secret_access_key: str = Field(repr=False, description="The key itself; use EnvVar.")
    session_token: str | None = Field(
        default=None, repr=False, description="Session token of a temporary key."
    )
    endpoint_url: str | None = Field(
        default=None, description="URL of a store that is not Amazon's."
    )
    region: str | None = Field(default=None, description="Region of the bucket.")

    def storage_options(self) -> dict[str, Any]:
        # None is given, too, so that nothing of the environment is taken instead.
        return {
            "key": self.access_key_id,
            "secret": self.secret_access_key,
            "token": self.session_token,
            "endpoint_url": self.endpoint_url,
            "client_kwargs": {"region_name": self.region} if self.region else {},
            "config_kwargs": {"ignore_configured_endpoint_urls": True},
        }


class GcsCredentials(_Credentials):
    """A service account of Google Cloud Storage."""

    kind: Literal["gcs"] = "gcs"
    key_file: str = Field(repr=False, description="Path of the service account's key file.")

    def storage_options(self) -> dict[str, Any]:
        return {"token": self.key_file}


class AzureCredentials(_Credentials):
    """An account of Azure Blob Storage. Give the key as ``EnvVar``."""

    kind: Literal["azure"] = "azure"
    account_name: str = Field(description="Name of the storage account.")
    account_key: str = Field(repr=False, description="Its key; use EnvVar.")

    def storage_options(self) -> dict[str, Any]:
        # A connection string of the environment would count more than a name and a key.
        connection = (
            f"DefaultEndpointsProtocol=https;AccountName={self.account_name};"
            f"AccountKey={self.account_key};EndpointSuffix=core.windows.net"
        )
        return {
            "account_name": self.account_name,
            "account_key": self.account_key,
            "connection_string": connection,
        }


def _is_of_a_kind(credentials: Any) -> bool:
    """Whether credentials are options under their kind, as Dagster's configuration has them."""
    is_one = isinstance(credentials, Mapping) and len(credentials) == 1
    return is_one and all(isinstance(options, Mapping) for options in credentials.values())


class DstlStorageResource(CheckedOptions, dg.ConfigurableResource):
    """A folder or URL that every process of the pipeline sees.

    Below it: ``jobs/<job id>`` (state of pipelines), ``savepoints/<name>``.

    The credentials apply to the base path, to the paths in ``also_reaches``, and to everything
    below them. Several resources with different credentials work side by side. Local Spark workers
    read the credentials from a private file of the driver. No environment variable, DataFrame
    option, log line, metadata or ``repr`` holds them; with ``EnvVar`` the UI does not show them
    either. Workers of a cluster need their own credentials: from their environment, or from a file
    that ``DSTL_STORAGE_PROFILES`` names there.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    base_path: str = Field(description="Folder or URL, e.g. /data/dstl or s3://bucket/dstl.")
    credentials: EnvironmentCredentials | S3Credentials | GcsCredentials | AzureCredentials = Field(
        default=EnvironmentCredentials(),
        discriminator="kind",
        description="How the file system is reached.",
    )

    also_reaches: list[str] = Field(
        default=[],
        description="Other folders and buckets with the same credentials, e.g. of Flink's state.",
    )

    @field_validator("base_path", "also_reaches", mode="before")
    @classmethod
    def _places(cls, places: Any) -> Any:
        for place in places if isinstance(places, list) else [places]:
            # A variable of the environment is read when a run starts.
            if isinstance(place, str) and not isinstance(place, dg.EnvVar):
                Location.parse(place)
        return places

    if not TYPE_CHECKING:  # type checkers know the fields as the arguments

        def __init__(self, **fields: Any) -> None:
            # Dagster's own error quotes a text, which may well be the secret itself.
            credentials = fields.get("credentials", EnvironmentCredentials())
            if not isinstance(credentials, _Credentials) and not _is_of_a_kind(credentials):
                raise ConfigError(
                    f"The credentials of DstlStorageResource are wrong: expected S3Credentials, "
                    f"GcsCredentials, AzureCredentials or EnvironmentCredentials, got "
                    f"{type(credentials).__name__}, which is not shown as it may be secret; give "
                    f"e.g. S3Credentials(access_key_id=.., secret_access_key=EnvVar('..'))."
                )
            super().__init__(**fields)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Registers the credentials in this process. No I/O: Dagster does not retry this step."""
        self.connect()

    def connect(self) -> None:
        """Registers the credentials in this process. Call it where Dagster does not set up the
        resource.

        Raises:
            ConfigError: Another resource reaches the same place with other credentials.
        """
        for place in (self.base_path, *self.also_reaches):
            register_profile(Location.parse(place), self.credentials.storage_options())

    @property
    def jobs(self) -> str:
        """Base path of stateful jobs."""
        return str(Location.parse(self.base_path).child("jobs"))

    def savepoint(self, name: str) -> str:
        """Folder of a savepoint by name."""
        return str(Location.parse(self.base_path).child("savepoints", name))

    def path_of(self, place: str) -> str:
        """The path of a savepoint by name or by path: a text with a slash or a scheme is a path."""
        is_path = "/" in place or ":" in place
        return str(Location.parse(place)) if is_path else self.savepoint(place)

    def __repr__(self) -> str:
        place = redacted(self.base_path)
        return f"DstlStorageResource(base_path={place!r}, {self.credentials.kind})"

    def __str__(self) -> str:
        return repr(self)

    def __rich_repr__(self) -> Any:
        yield "base_path", redacted(self.base_path)
