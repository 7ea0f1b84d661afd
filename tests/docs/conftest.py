from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark_session import local_session

LONGEST = (
    "docs/start/tutorial.md",
    "README.md",
    "docs/how-to/dagster-yaml.md",
    "docs/how-to/bootstrap.md",
    "docs/how-to/ci.md",
    "docs/how-to/report.md",
)
"""Pages that take long, the longest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs long pages first: a process that takes one at the end would leave the other idle."""
    runs = [f"_run[{name}]" for name in LONGEST]
    items.sort(key=lambda item: [run in item.name for run in runs], reverse=True)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session()
    yield session
    session.stop()
