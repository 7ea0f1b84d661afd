"""What an option of the plugin may be. It is checked where it is given, not by a later run."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import dagster as dg

from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.errors import ConfigError
from dstl_core.flink_text import parse_duration_ms
from dstl_core.model.key_group import UPPER_BOUND_MAX_PARALLELISM
from dstl_dagster.resources.upload_resource import UploadSchedulerResource
from dstl_dagster.translator import DagsterDstlTranslator


@dataclass(frozen=True)
class Kind:
    """Values that an option takes.

    Args:
        expected: What they are, as a message says it.
        fits: Whether a value is one.
    """

    expected: str
    fits: Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_list(value: Any) -> bool:
    # A key or a spec of Dagster looks like one.
    is_one = isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)
    return is_one and not type(value).__module__.startswith(("dagster.", "dagster_shared."))


def _are_texts(value: Any) -> bool:
    return _is_list(value) and all(map(_is_text, value))


def _is_place(value: Any) -> bool:
    return _is_text(value) or isinstance(value, os.PathLike)


def _texts_to(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def are_pairs(value: Any) -> bool:
        is_mapping = isinstance(value, Mapping)
        return is_mapping and all(map(_is_text, value)) and all(map(fits, value.values()))

    return are_pairs


def _is_whole(value: Any, least: int, most: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_number_of_bytes(value: Any) -> bool:
    # 1e9 is how a person writes a billion. Bytes are only compared, so they may stay a float.
    return _is_whole(value, 0) or (
        isinstance(value, float) and value.is_integer() and _is_whole(int(value), 0)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_duration(value: Any) -> bool:
    if not _is_text(value):
        return False
    try:
        parse_duration_ms(value)
    except ConfigError:
        return False
    return True


def _is_object(value: Any) -> bool:
    module, separator, name = value.partition(":") if isinstance(value, str) else ("", "", "")
    return bool(separator) and all(part.isidentifier() for part in (*module.split("."), name))


def _is_version(value: Any) -> bool:
    from dstl_core.savepoint.edit.upgrade import METADATA_VERSIONS

    return value in METADATA_VERSIONS


def _is_pipeline(value: Any) -> bool:
    # Pipelines are above this module, which they use.
    return callable(getattr(value, "python_name", None))


def _instance(kind: type, name: str) -> Kind:
    return Kind(f"{name}(..)", lambda value: isinstance(value, kind))


_FLAG = Kind("True or False", lambda value: isinstance(value, bool))
TEXT = Kind("text", _is_text)
_PLACE = Kind("a path", _is_place)
_TEXTS = Kind("a list of texts", _are_texts)
_PAIRS = Kind("a dictionary from text to text", _texts_to(_is_text))
_LIST = Kind("a list", _is_list)
_LISTS = Kind("a dictionary from text to a list of texts", _texts_to(_are_texts))
_DICTIONARY = Kind("a dictionary", lambda value: isinstance(value, Mapping))
_CRON = Kind("a cron such as '0 3 * * *'", lambda value: _is_text(value) or _are_texts(value))
_COUNT = Kind("a whole number above 0", lambda value: _is_whole(value, 1))
_NUMBER = Kind("a whole number of at least 0", lambda value: _is_whole(value, 0))
_BYTES = Kind("a whole number of at least 0", _is_number_of_bytes)
_ABOVE_ZERO = Kind("a number above 0", lambda value: _is_number(value) and value > 0)
_RATIO = Kind("a number of at least 0", lambda value: _is_number(value) and value >= 0)
_GROUPS = Kind(
    f"a whole number from 1 to {UPPER_BOUND_MAX_PARALLELISM}",
    lambda value: _is_whole(value, 1, UPPER_BOUND_MAX_PARALLELISM),
)
_DURATION = Kind("a duration such as '14 days' or '12 h'", _is_duration)
_JOB = Kind(
    "a function, or 'package.module:function'", lambda value: callable(value) or _is_object(value)
)
_REGISTRY = Kind(
    "a SerializerRegistry, or 'package.module:name'",
    lambda value: isinstance(value, SerializerRegistry) or _is_object(value),
)
_FUNCTION = Kind("a function", callable)

_NAMES: Sequence[tuple[Kind, str]] = [
    (TEXT, "name uid before_uid group key_by event_time partition_column state sql declaration"),
    (TEXT, "path place format template starts_from flink_job engine io_manager_key"),
    (TEXT, "pool materialization_pool schedule_timezone"),
    (_TEXTS, "order_by columns ignore_columns outputs allow_roots remove jars new_jars drop"),
    (_PAIRS, "relocate rename types new_keys"),
    (_LIST, "deps assets checks savepoint_checks check_specs"),
    (_LISTS, "lineage output_columns"),
    (_DICTIONARY, "resources op_tags evolve"),
    (_FLAG, "stop drain native show_keys blocking automatic sensors_running schedules_running"),
    (_FLAG, "with_jobs with_sensors allow_non_restored_state allow_dropped allow_new"),
    (_FLAG, "allow_migration"),
    (_CRON, "schedule epochs_schedule materialization_schedule verify_schedule"),
    (_COUNT, "num_retained sensor_interval_seconds max_runtime_s"),
    (_NUMBER, "max_retries"),
    (_BYTES, "small_log_bytes max_log_bytes"),
    (_GROUPS, "parallelism max_parallelism"),
    (_RATIO, "materialize_at_ratio max_changed_ratio"),
    (_FUNCTION, "inputs write batch"),
]
KINDS: Mapping[str, Kind] = {
    **{name: kind for kind, names in _NAMES for name in names.split()},
    "checkpoints": _PLACE,
    "to": Kind("a version of Flink from 2.0 to 2.3", _is_version),
    "keys": Kind("a dictionary from text to a path", _texts_to(_is_place)),
    "max_log_ratio": _ABOVE_ZERO,
    "retain": _DURATION,
    "job": _JOB,
    "pipeline": Kind("a StatefulPipeline, as aggregating_pipeline(..) returns it", _is_pipeline),
    "serializers": _REGISTRY,
    "required_resource_keys": Kind(
        "a set of texts", lambda value: isinstance(value, Set) and _are_texts(value)
    ),
    "uploads": _instance(UploadSchedulerResource, "UploadSchedulerResource"),
    "translator": _instance(DagsterDstlTranslator, "DagsterDstlTranslator"),
    "automation_condition": _instance(dg.AutomationCondition, "AutomationCondition"),
    "freshness_policy": _instance(dg.FreshnessPolicy, "FreshnessPolicy"),
    "backfill_policy": _instance(dg.BackfillPolicy, "BackfillPolicy"),
    "retry_policy": _instance(dg.RetryPolicy, "RetryPolicy"),
}
"""Options of all functions and classes that make definitions. One name has one kind everywhere."""
_PLUGIN = f"{__package__}."
_TURNED_OFF = {
    "materialize_at_ratio",
    "materialization_schedule",
    "verify_schedule",
    "retry_policy",
}
"""Options that have a value by default, and that None turns off."""


def check_options(
    what: Any,
    owner: Callable[..., Any],
    values: Mapping[str, Any],
    but: Mapping[str, Kind | None] | None = None,
) -> None:
    """Checks the arguments of a function, or the fields of a class. One that is None by default
    may be None.

    Args:
        what: What they are the options of, for the message: a text, or the pipeline.
        owner: The function or class. Of a class that a user derived from it, only the fields of
            the plugin are options.
        values: Name of each argument to its value.
        but: Options that are another thing here than elsewhere, to their kind here; None: any.

    Raises:
        ConfigError: A value is not of the kind of its option.
    """
    if isinstance(owner, type):
        owner = next(kind for kind in owner.__mro__ if kind.__module__.startswith(_PLUGIN))
    kinds = {**KINDS, **(but or {})}
    for name, parameter in inspect.signature(owner).parameters.items():
        kind = kinds.get(name)
        if kind is None or name not in values:
            continue
        value = values[name]
        may_be_none = parameter.default is None or name in _TURNED_OFF
        if not kind.fits(value) and not (value is None and may_be_none):
            of = what if isinstance(what, str) else f"pipeline {getattr(what, 'name', what)!r}"
            raise ConfigError(
                f"The option {name} of {of} is wrong: expected {kind.expected}, got {value!r}."
            )
