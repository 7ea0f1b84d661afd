"""The S3 server of the tests refuses who has another key."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import s3fs

from tests.s3_server import S3Server


@pytest.mark.parametrize(
    "wrong", [{"key": "other-key"}, {"secret": "other-secret"}, {"anon": True}], ids=str
)
def test_only_its_own_key_reaches_the_server(
    s3: S3Server, bucket: str, wrong: Mapping[str, object]
) -> None:
    name = "Ordner mit Leerzeichen/日本語 %20 #1+&=~*'().json"
    options = {**s3.storage_options, "skip_instance_cache": True}
    s3fs.S3FileSystem(**options).pipe_file(f"{bucket}/{name}", b"content")
    assert s3fs.S3FileSystem(**options).cat_file(f"{bucket}/{name}") == b"content"
    if "anon" in wrong:
        options = {"endpoint_url": s3.endpoint_url, "skip_instance_cache": True}
    with pytest.raises(PermissionError):
        s3fs.S3FileSystem(**{**options, **wrong}).cat_file(f"{bucket}/{name}")
