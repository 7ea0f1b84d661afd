"""What is closed at the end of a ``with`` block."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self


class Closing(Protocol):
    """Something to close: ``with storage.create_writer(..) as writer:`` closes it in any case."""

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
