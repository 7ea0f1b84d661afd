"""What integration tests share."""

import pytest

from dstl_core.storage.location import Location
from dstl_core.storage.profiles import register_profile
from tests.s3_server import S3Server


@pytest.fixture
def place(s3: S3Server, bucket: str) -> str:
    """The URL of a new bucket; this process and its Spark workers have the key to it."""
    register_profile(Location.parse(bucket), s3.storage_options)
    return bucket
