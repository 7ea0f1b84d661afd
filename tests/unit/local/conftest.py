"""A session for the tests of jobs that need no Spark."""

from __future__ import annotations

import pytest

from tests.local_session import LocalSession


@pytest.fixture
def session() -> LocalSession:
    return LocalSession()
