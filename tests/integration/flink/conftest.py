from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.flink.checker import FlinkChecker, FlinkCheckerError


@pytest.fixture(scope="session")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkChecker]:
    """Real Flink. The one JVM of the session ends with it."""
    try:
        checker = FlinkChecker(tmp_path_factory.mktemp("flink"))
    except FlinkCheckerError as error:
        pytest.fail(str(error), pytrace=False)
    yield checker
    checker.close()
