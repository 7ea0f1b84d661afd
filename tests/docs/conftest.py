"""What the pages share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.warm_commands import VARIABLE, warm_commands


@pytest.fixture(scope="session")
def commands() -> Iterator[None]:
    """Calls of ``dstl`` on pages are forks of one process."""
    with warm_commands() as socket, pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, socket)
        yield
