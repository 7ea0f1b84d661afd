"""How many examples a property test takes: its share of the profile's, which ``conftest.py`` sets.

``make test`` takes 40 of 100 examples, ``make test-fast`` 10, and ``make soak`` 500.
"""

from __future__ import annotations

import hypothesis


def examples(of_a_hundred: int) -> int:
    """The examples of a test that takes ``of_a_hundred`` where the profile has 100."""
    profile = hypothesis.settings().max_examples
    return max(5, of_a_hundred * profile // 100)
