"""Checks the arguments of a job and of a run before anything happens."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.config import ChangelogOptions
from dstl_core.errors import ConfigError
from dstl_core.job.spec.operator_checks import check_order, is_text
from dstl_core.job.spec.operators import (
    AggregateOperator,
    KeyedOperator,
    LocalCopies,
    ProcessOperator,
)
from dstl_core.state.backends.state_backend import StateBackend

_OPERATORS = (KeyedOperator, ProcessOperator, AggregateOperator)


def check_job(job: Any) -> None:
    """Raises ConfigError if an argument of a job is of another kind than it should be.

    Args:
        job: A ``StatefulJob``, which imports this module.
    """
    if not is_text(job.name) or not job.name:
        raise ConfigError(f"The name of a job is wrong: expected text, got {job.name!r}.")
    what = f"the job {job.name!r}"
    if not isinstance(job.operator, _OPERATORS):
        raise _wrong(
            what,
            "operator",
            "a KeyedOperator, ProcessOperator or AggregateOperator; "
            "further operators are the downstream of a job",
            job.operator,
        )
    downstream = job.downstream
    if not isinstance(downstream, list | tuple) or not all(
        isinstance(operator, _OPERATORS) for operator in downstream
    ):
        raise _wrong(what, "downstream", "a list of operators", downstream)
    for name in ("parallelism", "max_parallelism", "num_retained", "num_retained_outputs"):
        number = getattr(job, name)
        if not _is_whole(number) and not (number is None and name == "num_retained_outputs"):
            raise _wrong(what, name, "a whole number", number)
    if job.num_retained_outputs is not None and job.num_retained_outputs < 1:
        raise ConfigError(
            f"The output of at least one epoch has to be kept: expected num_retained_outputs "
            f">= 1 or None, got {job.num_retained_outputs}."
        )
    if job.retain is not None and not isinstance(job.retain, str):
        raise _wrong(what, "retain", "a duration as text, such as '14 days'", job.retain)
    for name in ("columns", "ignore_columns"):
        names = getattr(job, name)
        if not _are_names(names) and not (names is None and name == "columns"):
            raise _wrong(what, name, "a list of names of columns", names)
    timeout: Any = job.checkpoint_timeout_s
    if not isinstance(timeout, int | float) or not 0.001 <= timeout < 1e12:
        raise _wrong(what, "checkpoint_timeout_s", "a number of seconds above 0", timeout)
    if not isinstance(job.changelog_options, Mapping | ChangelogOptions):
        raise _wrong(what, "changelog_options", "a mapping of options", job.changelog_options)
    if not isinstance(job.state_backend, StateBackend):
        raise _wrong(
            what, "state_backend", "an object such as HashMapStateBackend()", job.state_backend
        )
    if not isinstance(job.local_copies, LocalCopies):
        raise _wrong(what, "local_copies", "LocalCopies(..)", job.local_copies)
    if not isinstance(job.serializers, SerializerRegistry):
        raise _wrong(
            what, "serializers", "a SerializerRegistry, e.g. BUILT_IN.copy()", job.serializers
        )


def check_run(name: str, order_by: Any, watermark_ms: Any) -> None:
    """Raises ConfigError if an argument of a run is of another kind than it should be."""
    what = f"a run of the job {name!r}"
    check_order(order_by, what)
    if watermark_ms is not None and not _is_whole(watermark_ms):
        raise _wrong(what, "watermark_ms", "milliseconds as a whole number", watermark_ms)


def _are_names(names: Any) -> bool:
    return isinstance(names, list | tuple) and all(isinstance(each, str) for each in names)


def _is_whole(number: Any) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool)


def _wrong(what: str, argument: str, expected: str, got: Any) -> ConfigError:
    return ConfigError(f"The {argument} of {what} is wrong: expected {expected}, got {got!r}.")


def check_input_id(input_id: Any) -> None:
    """Raises ConfigError if the input id is invalid."""
    if isinstance(input_id, str):
        if not is_text(input_id):
            raise ConfigError(
                f"An input id is not valid text: {input_id!r} has half of a surrogate pair."
            )
    elif not isinstance(input_id, int) or isinstance(input_id, bool):
        raise ConfigError(
            f"An input id is text or a whole number; got {input_id!r}, a {type(input_id).__name__}."
        )
