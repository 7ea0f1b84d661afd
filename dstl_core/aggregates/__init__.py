"""Aggregates of the rows of a key, for an ``AggregateOperator``.

Null values are passed over, as in SQL. What an aggregate keeps is plain value state: one state of
the aggregate's name, or several (``<name>_sum``, ``<name>_count``), which can be merged with those
of the next batch. The state does not depend on how rows are split into batches, but for the last
digits of floating-point numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields
from typing import Any

from dstl_core.aggregates.aggregate import Aggregate
from dstl_core.aggregates.bounded_lists import collect_list, collect_set, last_values, top
from dstl_core.aggregates.by_order import first, first_row, last, last_row, max_by, min_by
from dstl_core.aggregates.counts import count, count_null
from dstl_core.aggregates.counts_by_value import value_counts
from dstl_core.aggregates.covariance import corr, covar_samp
from dstl_core.aggregates.decayed_sums import decayed_sum
from dstl_core.aggregates.extremes import bool_and, bool_or, max, min
from dstl_core.aggregates.histograms import histogram
from dstl_core.aggregates.moments import stddev, variance
from dstl_core.aggregates.sketches import approx_count_distinct, quantiles
from dstl_core.aggregates.sums import avg, sum
from dstl_core.errors import ConfigError

__all__ = [
    "Aggregate",
    "approx_count_distinct",
    "avg",
    "bool_and",
    "bool_or",
    "collect_list",
    "collect_set",
    "corr",
    "count",
    "count_null",
    "covar_samp",
    "decayed_sum",
    "first",
    "first_row",
    "histogram",
    "last",
    "last_row",
    "last_values",
    "max",
    "max_by",
    "min",
    "min_by",
    "quantiles",
    "stddev",
    "sum",
    "top",
    "value_counts",
    "variance",
]

AGGREGATES: Mapping[str, type[Aggregate]] = {
    name: value
    for name, value in list(globals().items())
    if name in __all__ and isinstance(value, type) and value is not Aggregate
}
"""Each aggregate by its name. What it declares are the fields of its dataclass."""


def aggregate_of(how: str, **options: Any) -> Aggregate:
    """The aggregate of a name, as YAML and other texts declare it.

    Args:
        how: The name, for example ``"sum"``.
        options: The arguments of the aggregate.

    Raises:
        ConfigError: There is no such aggregate, it has no such argument, lacks one, or refuses one.
    """
    check_options(how, options)
    return AGGREGATES[how](**options)


def check_options(how: Any, options: Collection[str]) -> None:
    """Raises ConfigError: there is no such aggregate, it has no such argument, or lacks one.

    Args:
        how: The name, for example ``"sum"``.
        options: The names of the arguments.
    """
    if not isinstance(how, str) or how not in AGGREGATES:
        raise ConfigError(f"An aggregate is one of {', '.join(sorted(AGGREGATES))}, got {how!r}.")
    declared = fields(AGGREGATES[how])  # type: ignore[arg-type]  # each is a dataclass
    names = [field.name for field in declared]
    for option in options:
        if option not in names:
            raise ConfigError(
                f"The aggregate {how} has no option {option!r}: expected some of "
                f"{', '.join(names)}."
            )
    for field in declared:
        if field.default is MISSING and field.name not in options:
            raise ConfigError(
                f"The aggregate {how} needs {field.name!r}: expected {', '.join(names)}, got "
                f"{', '.join(options) or 'none of them'}."
            )
