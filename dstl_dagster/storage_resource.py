"""Where pipelines, savepoints and events lie, and with which credentials they are reached."""

import os
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from dstl_core.storage.location import Location


class EnvironmentCredentials(dg.Config):
    """Credentials are what the environment of each process says already."""

    kind: Literal["environment"] = "environment"

    def environment(self) -> dict[str, str]:
        return {}


class S3Credentials(dg.Config):
    """An access key of S3 or of a store that speaks its protocol. Give secrets as ``EnvVar``."""

    kind: Literal["s3"] = "s3"
    access_key_id: str = Field(repr=False, description="Id of the access key.")
    secret_access_key: str = Field(repr=False, description="The key itself; use EnvVar.")
    session_token: str | None = Field(default=None, repr=False, description="Of a temporary key.")
    endpoint_url: str | None = Field(default=None, description="Of a store that is not Amazon's.")
    region: str | None = Field(default=None, description="Region of the bucket.")

    def environment(self) -> dict[str, str]:
        return _given(
            AWS_ACCESS_KEY_ID=self.access_key_id,
            AWS_SECRET_ACCESS_KEY=self.secret_access_key,
            AWS_SESSION_TOKEN=self.session_token,
            AWS_ENDPOINT_URL=self.endpoint_url,
            AWS_DEFAULT_REGION=self.region,
        )


class GcsCredentials(dg.Config):
    """A service account of Google Cloud Storage."""

    kind: Literal["gcs"] = "gcs"
    key_file: str = Field(repr=False, description="Path of the service account's key file.")

    def environment(self) -> dict[str, str]:
        return {"GOOGLE_APPLICATION_CREDENTIALS": self.key_file}


class AzureCredentials(dg.Config):
    """An account of Azure Blob Storage. Give the key as ``EnvVar``."""

    kind: Literal["azure"] = "azure"
    account_name: str = Field(description="Name of the storage account.")
    account_key: str = Field(repr=False, description="Its key; use EnvVar.")

    def environment(self) -> dict[str, str]:
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": self.account_name,
            "AZURE_STORAGE_ACCOUNT_KEY": self.account_key,
        }


def _given(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


class DstlStorageResource(dg.ConfigurableResource):
    """A folder or URL that every process of the pipeline sees.

    Below it: ``jobs/<job id>`` (state of pipelines), ``savepoints/<name>``.

    Credentials go into the environment of the process, where the file systems (and local Spark
    workers) look for them. They are in no DataFrame option, log line, metadata or ``repr``; what is
    given as ``EnvVar`` is not in the UI either. The workers of a cluster need the same environment
    from the cluster's own settings.
    """

    base_path: str = Field(description="Folder or URL, e.g. /data/dstl or s3://bucket/dstl.")
    credentials: EnvironmentCredentials | S3Credentials | GcsCredentials | AzureCredentials = Field(
        default=EnvironmentCredentials(),
        discriminator="kind",
        description="How the file system is reached.",
    )

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Makes the credentials known to this process. No I/O: init is not covered by retries."""
        self.export_credentials()

    def export_credentials(self) -> None:
        """Puts the credentials where the file systems of this process look for them."""
        os.environ.update(self.credentials.environment())

    @property
    def jobs(self) -> str:
        """Base path of stateful jobs."""
        return str(Location.parse(self.base_path).child("jobs"))

    def savepoint(self, name: str) -> str:
        """Folder of a savepoint by name."""
        return str(Location.parse(self.base_path).child("savepoints", name))

    def path_of(self, place: str) -> str:
        """A savepoint by name or by path: what holds a slash or a scheme is a path."""
        is_path = "/" in place or ":" in place
        return str(Location.parse(place)) if is_path else self.savepoint(place)

    def __repr__(self) -> str:
        return f"DstlStorageResource(base_path={self.base_path!r}, {self.credentials.kind})"

    def __str__(self) -> str:
        return repr(self)

    def __rich_repr__(self) -> Any:
        yield "base_path", self.base_path
