from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.flink.checker import FlinkChecker, FlinkCheckerError
from tests.integration.flink.releases import RELEASES, jars_of


@pytest.fixture(scope="session")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkChecker]:
    """Real Flink. The one JVM of the session ends with it."""
    try:
        checker = FlinkChecker(tmp_path_factory.mktemp("flink"))
    except FlinkCheckerError as error:
        pytest.fail(str(error), pytrace=False)
    yield checker
    checker.close()


@pytest.fixture(scope="module", params=RELEASES)
def release(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FlinkChecker]:
    """Another release of Flink, which is fetched once. For long runs."""
    checker = FlinkChecker(tmp_path_factory.mktemp("flink"), jars_of(request.param))
    yield checker
    checker.close()
