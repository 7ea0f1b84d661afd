"""Checks what a bootstrap is given: one sentence for each wrong argument, before a row is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dstl_core.codec.columnar.types.type_layouts import ColumnOptions
from dstl_core.errors import ConfigError
from dstl_core.savepoint.bootstrap.bootstrap_rows import BootstrapRows, check_column
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.state.tables.descriptor import StateDescriptor

_SHOWN = 60


def mapping_of(name: str, argument: object, example: str) -> dict[str, Any]:
    """A mapping of names; an empty one for None.

    Raises:
        ConfigError: It is of another kind.
    """
    if argument is None:
        return {}
    if not isinstance(argument, Mapping) or not all(isinstance(each, str) for each in argument):
        raise _wrong(name, f"a mapping by name, e.g. {example}", argument)
    return dict(argument)


def columns_of(name: str, argument: Any) -> tuple[str, ...]:
    """Columns in some order: a list, or what gives them one after the other, e.g. an index.

    Raises:
        ConfigError: It is of another kind; a text would be a column for each letter.
    """
    is_list = isinstance(argument, Iterable) and not isinstance(argument, str | set | frozenset)
    columns = tuple(argument) if is_list else ()
    if not is_list or not all(isinstance(each, str) for each in columns):
        raise _wrong(name, "a list of columns, e.g. ['ts']", argument)
    return columns


def check_is(name: str, argument: object, kinds: type | tuple[type, ...], expected: str) -> None:
    """Raises ConfigError if an argument is of none of these kinds. The sentence says what is
    expected.
    """
    if not isinstance(argument, kinds):
        raise _wrong(name, expected, argument)


def check_calls(name: str, argument: object, method: str, expected: str) -> None:
    """Raises ConfigError if an argument is no object with a method."""
    if isinstance(argument, type) or not hasattr(argument, method):
        raise _wrong(name, expected, argument)


def check_column_name(name: str, argument: object) -> None:
    """Raises ConfigError if an argument is neither the name of a column nor None."""
    if argument is not None:
        check_is(name, argument, str, "the name of a column")


def broadcast_columns(argument: object) -> dict[str, Any]:
    """The columns of keys and of values, by the name of the broadcast state."""
    pairs = mapping_of("broadcast_state", argument, "{'rates': ('k', 'v')}")
    for name, pair in pairs.items():
        is_pair = isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
        if not is_pair or not all(isinstance(column, str) for column in pair):
            raise ConfigError(
                f"Broadcast state {name!r} is wrong: expected the columns of keys and of "
                f"values, e.g. ('k', 'v'), got {pair!r}."
            )
    return pairs


def check_operator_states(
    listed: Mapping[str, Any],
    united: Mapping[str, Any],
    pairs: Mapping[str, Sequence[str]],
    declared: Mapping[str, Any],
) -> None:
    """Checks that operator state of a name is one state, and that types are of its columns."""
    twice = sorted({*listed} & {*united})
    if twice:
        raise ConfigError(
            f"State {twice[0]!r} is in list_state and in union_state; name it in one of them."
        )
    unused = sorted({*declared} - {column for pair in pairs.values() for column in pair})
    if unused:
        raise ConfigError(
            f"types has {unused[0]!r}, which is no column of a broadcast state; list_state and "
            f"union_state have types of their own."
        )


def descriptors_of(argument: object) -> dict[str, StateDescriptor]:
    """Descriptors of states by their column."""
    example = "{'total': ValueStateDescriptor('total', Types.LONG)}"
    described: dict[str, StateDescriptor] = mapping_of("states", argument, example)
    for column, descriptor in described.items():
        check_is(
            f"states[{column!r}]", descriptor, StateDescriptor, f"a descriptor as in {example}"
        )
    return described


def check_options_of_columns(template: object, options: object, show_keys: object) -> None:
    if template is not None:
        expected = "an operator of a snapshot, e.g. Snapshot.load(path)['uid']"
        check_is("template", template, OperatorSnapshot, expected)
    check_is("options", options, ColumnOptions, "ColumnOptions(..)")
    check_is("show_keys", show_keys, (bool, np.bool_), "True or False")


def check_selector(rows: BootstrapRows, name: str, selector: object) -> None:
    """Checks a part of a row: a column, a function of a row, or None."""
    if selector is not None and not isinstance(selector, str) and not callable(selector):
        raise _wrong(name, "a column, or a function of a row", selector)
    if isinstance(selector, str):
        check_column(rows, selector)


def _wrong(name: str, expected: str, argument: object) -> ConfigError:
    shown = repr(argument) if isinstance(argument, type) else f"a {type(argument).__name__}"
    if argument is None or isinstance(argument, str | int | float | list | tuple | dict):
        shown = repr(argument)
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}.."
    return ConfigError(f"{name} is wrong: expected {expected}, got {shown}.")
