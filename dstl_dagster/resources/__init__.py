"""Resources: where state lies, which engine runs, which Flink cluster is asked.

A name loads its module on first use.
"""

from typing import TYPE_CHECKING

from dstl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dstl_dagster.resources.flink_client import (
        FlinkClient as FlinkClient,
        FlinkClusterError as FlinkClusterError,
    )
    from dstl_dagster.resources.storage_resource import (
        AzureCredentials as AzureCredentials,
        EnvironmentCredentials as EnvironmentCredentials,
        GcsCredentials as GcsCredentials,
        S3Credentials as S3Credentials,
    )
    from dstl_dagster.resources.upload_resource import (
        BatchingUploads as BatchingUploads,
        DirectUploads as DirectUploads,
        UploadSchedulerResource as UploadSchedulerResource,
    )

__getattr__, __dir__ = lazy_names(__name__)
