from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.s3_server import make_bucket, s3_server

_BUCKETS = itertools.count()


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, Any]]:
    with s3_server() as options:
        yield options


@pytest.fixture
def bucket(s3_options: dict[str, Any]) -> str:
    """The name of a new bucket."""
    name = f"bucket-{next(_BUCKETS)}"
    make_bucket(s3_options, name)
    return name
