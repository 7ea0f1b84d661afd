"""A writer belongs to the thread that made it."""

from __future__ import annotations

from threading import get_ident

from dstl_core.errors import ChangelogError


def check_owning_thread(owner: int) -> None:
    """Checks that the calling thread is the owner.

    Args:
        owner: ``threading.get_ident()`` of the thread that made the writer.

    Raises:
        ChangelogError: It is another thread.
    """
    if get_ident() != owner:
        raise ChangelogError(
            "A changelog writer was used by a thread that does not own it; every method belongs "
            "to the thread that made the writer."
        )
