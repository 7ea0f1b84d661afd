"""What integration tests share."""

import pytest

from dstl_core.storage.location import Location
from dstl_core.storage.profiles import register_profile
from tests.s3_server import S3Server

LONGEST = (
    "test_components",
    "test_s3_cluster",
    "test_loading",
    "test_s3_pipeline",
    "test_demo",
    "test_job_kills",
    "test_job_state_files",
    "test_task_failures",
    "test_full_disks",
    "test_secrets",
    "test_connect",
    "test_aggregates",
    "test_odd_inputs",
)
"""Files that take long, the longest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs long files first: a process that takes one at the end would leave the other idle."""
    order = {name: at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.fixture
def place(s3: S3Server, bucket: str) -> str:
    """The URL of a new bucket; this process and its Spark workers have the key to it."""
    register_profile(Location.parse(bucket), s3.storage_options)
    return bucket
