"""The column with the keys of rows."""

from __future__ import annotations

import pyarrow as pa

from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError
from dstl_core.state.columns.arrow_values import column_type
from dstl_core.state.columns.column_fit import fit


def fitted_keys(keys: pa.Array, column: str, key_type: AnySerializer) -> pa.Array:
    """Keys in the form of their state.

    Args:
        keys: The keys of some rows.
        column: The name of their column, for errors.
        key_type: Their type.

    Raises:
        ConfigError: A key is null, or does not fit the type.
    """
    if keys.null_count:
        raise ConfigError(
            f"A key is null, in the column {column!r}; keyed state needs a key: drop or fill such "
            f"rows."
        )
    return fit(keys, column_type(key_type), "The key")
