"""Checks the arguments of operators where they are declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dstl_core.aggregates.aggregate import Aggregate
from dstl_core.codec.serializers import AnySerializer, TypeSerializer
from dstl_core.errors import ConfigError
from dstl_core.functions import (
    KeyedColumnFunction,
    KeyedProcessFunction,
    RichMapFunction,
    WindowFunction,
)
from dstl_core.job.spec.output_types import twins_of

FOR_KEYS = (KeyedProcessFunction, RichMapFunction, WindowFunction, KeyedColumnFunction)
FOR_ROWS = (KeyedProcessFunction, RichMapFunction)


def is_text(value: Any) -> bool:
    """Whether a value is text that files can store: no half of a surrogate pair, which Java would
    store as a question mark.
    """
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def check_uid(uid: Any) -> None:
    """Raises ConfigError if an operator has no uid."""
    if not is_text(uid) or not uid:
        raise ConfigError(f"The uid of an operator is wrong: expected a name, got {uid!r}.")


def check_arguments(operator: Any) -> None:
    """Raises ConfigError if names or sources of an operator are not of their kind."""
    uid = operator.uid
    if operator.key_by is not None:
        check_key_column(uid, operator.key_by)
    if operator.event_time is not None and not isinstance(operator.event_time, str):
        raise _wrong(uid, "event_time", "the name of a column", operator.event_time)
    check_order(operator.order_by, f"operator {uid!r}")
    for name, source in (("source", operator.source), ("broadcast", operator.broadcast)):
        if source is not None and not isinstance(source, str) and not callable(source):
            raise _wrong(uid, name, "the uid of an operator, or a function", source)


def check_key_column(uid: str, key_by: Any) -> None:
    """Raises ConfigError if the key is not one column."""
    if not is_text(key_by) or not key_by:
        raise ConfigError(
            f"The key_by of operator {uid!r} is wrong: expected the name of one column, got "
            f"{key_by!r}; put several columns into one, for example with Spark's struct."
        )


def check_order(order_by: Any, what: str) -> None:
    """Raises ConfigError if ``order_by`` is no column and no list of columns.

    Args:
        order_by: The columns; None if no order is given.
        what: What has this order, for the error.
    """
    if order_by is None or isinstance(order_by, str):
        return
    if not isinstance(order_by, list | tuple) or not all(isinstance(c, str) for c in order_by):
        raise ConfigError(
            f"The order_by of {what} is wrong: expected a list of names of columns, got "
            f"{order_by!r}."
        )


def check_key_type(uid: str, key_type: AnySerializer) -> None:
    """Raises ConfigError if values of a type cannot be keys."""
    if type(key_type).java_hash is TypeSerializer.java_hash:
        raise ConfigError(
            f"The key of operator {uid!r} is a {key_type.type_name}, which cannot be a key: its "
            f"Java hash is not known; use text, a number, a time, or a struct of these."
        )


def check_function(uid: str, function: Any, allowed: tuple[type, ...]) -> None:
    """Raises ConfigError if an operator cannot run a function."""
    if isinstance(function, allowed):
        return
    if isinstance(function, type):
        raise ConfigError(
            f"The function of operator {uid!r} is the class {function.__name__}; make an object "
            f"of it: {function.__name__}(..)."
        )
    names = " or ".join(each.__name__ for each in allowed)
    raise ConfigError(
        f"The function of operator {uid!r} is wrong: expected a {names}, got {function!r}."
    )


def check_aggregates(uid: str, aggregates: Any, output: Any) -> None:
    """Raises ConfigError if these are not aggregates by name, or if their output is no choice."""
    if not isinstance(aggregates, Mapping):
        raise ConfigError(
            f"The aggregates of operator {uid!r} are wrong: expected a mapping of names to "
            f"aggregates, got {aggregates!r}."
        )
    if not aggregates:
        raise ConfigError(f"The operator {uid!r} has no aggregate; give it at least one.")
    for name, aggregate in aggregates.items():
        if not is_text(name) or not name:
            raise ConfigError(
                f"The name of an aggregate of operator {uid!r} is wrong: expected text, got "
                f"{name!r}."
            )
        if not isinstance(aggregate, Aggregate):
            is_class = isinstance(aggregate, type)
            got = f"the class {aggregate.__name__}" if is_class else repr(aggregate)
            raise ConfigError(
                f"The aggregate {name!r} of operator {uid!r} is wrong: expected one of "
                f"dstl_core.aggregates, such as aggregates.count(), got {got}."
            )
    if not isinstance(output, bool | list | tuple | None):
        raise _wrong(uid, "output", "True, False, or a list of names of aggregates", output)


def check_output_names(uid: str, names: list[str]) -> None:
    """Raises ConfigError if Spark cannot read an output with these columns."""
    if not names:
        raise ConfigError(
            f"The output of operator {uid!r} has no column; give it some, or None for no output."
        )
    twins = twins_of(names)
    if twins is not None:
        raise ConfigError(
            f"The output of operator {uid!r} has the columns {twins[0]!r} and {twins[1]!r}, which "
            f"Spark cannot tell apart; rename one of them."
        )


def _wrong(uid: str, argument: str, expected: str, got: Any) -> ConfigError:
    return ConfigError(
        f"The {argument} of operator {uid!r} is wrong: expected {expected}, got {got!r}."
    )
