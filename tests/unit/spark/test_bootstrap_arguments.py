"""A bootstrap says at once that its rows are of another kind."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from dstl_core import OperatorTransformation
from dstl_core.errors import ConfigError


@pytest.mark.parametrize(
    ("rows", "got"),
    [
        (None, "a builtins NoneType"),
        ([("a", 1)], "a builtins list"),
        (pd.DataFrame({"a": [1]}), "a pandas DataFrame"),
    ],
    ids=["none", "list", "pandas"],
)
def test_a_bootstrap_starts_from_a_data_frame_of_spark(rows: Any, got: str) -> None:
    said = f"^A bootstrap starts from a Spark DataFrame of a batch, got {got}"
    with pytest.raises(ConfigError, match=said):
        OperatorTransformation.bootstrap_with(rows)
