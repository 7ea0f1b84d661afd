"""The declaration of a migration: what becomes of each operator and state of the old job.

    Migration.load("orders-v2.yaml")
    Migration.of({"migration": 1, "operators": {"4_group-aggregate": {...}}})

Everything that it does not name stays as it is. Unknown keys are errors.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dstl_core.errors import ConfigError
from dstl_core.savepoint.expressions.expression import (
    MERGES,
    UNDECIDED,
    Expression,
    is_undecided,
    parse_expression,
)
from dstl_core.savepoint.migrate.declaration_text import (
    MAX_SIZE,
    check_declaration,
    read_declaration,
)

FORMAT = 1
KINDS = ("value", "list", "map", "reducing", "aggregating")
_TOP = (
    "migration",
    "from",
    "to_template",
    "plans",
    "protos",
    "max_parallelism",
    "operators",
    "drop_operators",
    "start_empty",
)
_OPERATOR = (
    "from",
    "key",
    "on_collision",
    "states",
    "drop",
    "classes",
    "fields",
)
_STATE = (
    "from",
    "kind",
    "type",
    "columns",
    "value",
    "map_key",
    "merge",
    "on_collision",
    "add",
)


@dataclass(frozen=True)
class StateRule:
    """Where a state of the new job gets its contents.

    Args:
        from_: The old state; None is the state of the same name. With several old operators,
            ``OPERATOR/STATE`` names one.
        kind: The kind of the new state, which a template has as well.
        type: The type of its values, without a template.
        columns: The columns of the new row (or of a new map value, or list element), in order.
        value: The whole new value, instead of ``columns``.
        map_key: The user key of the new map: one expression, or one per column of a row.
        merge: How values of keys that become one merge: a rule for each column, or one for all.
        add: New aggregates by meaning, with their start values. It needs the compiled plans.
    """

    from_: str | None = None
    kind: str | None = None
    type: str | None = None
    columns: tuple[Expression, ...] | None = None
    value: Expression | None = None
    map_key: Expression | tuple[Expression, ...] | None = None
    merge: str | tuple[str, ...] | None = None
    add: Mapping[str, Expression] = field(default_factory=dict)


@dataclass(frozen=True)
class OperatorRule:
    """Where an operator of the new job gets its states.

    Args:
        from_: The old operators, by uid, ``hash:..`` or ``name:..``; several are merged. None is
            the operator with the same id.
        key: The new key: one expression, or one per column of a row. None keeps the key, in the
            type of the template.
        on_collision: How values of keys that become one merge; None and ``error`` refuse them.
        states: Rules by new state. A state without a rule keeps its name and columns.
        drop: States of the old operator that may go.
        classes: New names of POJO classes, by old name.
        fields: By new class: the new fields, each from an old field (``from``), or as an
            expression over the old fields. null starts with Java's default, also for a boxed
            number: a savepoint does not tell ``Integer`` from ``int``, which takes no null.
    """

    from_: tuple[str, ...] | None = None
    key: Expression | tuple[Expression, ...] | None = None
    on_collision: str | None = None
    states: Mapping[str, StateRule] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    classes: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Mapping[str, Expression]] = field(default_factory=dict)


@dataclass(frozen=True)
class Migration:
    """What becomes of the state of an old job.

    Args:
        from_: The old savepoint; None if it is given on its own.
        to_template: A savepoint of the new job that started empty; it has the new types.
        plans: The compiled plans of SQL jobs: ``old`` and ``new``.
        protos: Descriptor sets of messages in state: ``old`` and ``new``.
        max_parallelism: Key groups of the result; None keeps those of the source.
        operators: Rules by operator of the new job: its uid, ``hash:..`` or ``name:..``.
        drop_operators: Operators of the old job that may go.
        start_empty: Operators, or ``OPERATOR/STATE``, of the new job that start without state.
    """

    from_: str | None = None
    to_template: str | None = None
    plans: Mapping[str, str] = field(default_factory=dict)
    max_parallelism: int | None = None
    operators: Mapping[str, OperatorRule] = field(default_factory=dict)
    drop_operators: tuple[str, ...] = ()
    start_empty: tuple[str, ...] = ()
    protos: Mapping[str, str] = field(default_factory=dict)
    document: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The declaration as its author wrote it."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Migration:
        """Reads a declaration from a YAML file. Local paths in it are relative to its folder, or
        to the working folder.

        Raises:
            ConfigError: The file is missing, is not YAML, or is not a declaration.
        """
        try:
            with open(path, encoding="utf-8") as file:
                document = read_declaration(file.read(MAX_SIZE + 1))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"The declaration {os.fspath(path)!r} cannot be read: "
                f"{getattr(error, 'strerror', None) or error}."
            ) from error
        except ConfigError as error:
            raise ConfigError(
                f"The declaration {os.fspath(path)!r} is wrong: {error.message}"
            ) from error
        declared = cls.of(document)
        folder = os.path.dirname(os.path.abspath(path))
        near = _near(folder)
        return cls(
            **{
                **{name: getattr(declared, name) for name in cls.__dataclass_fields__},
                "from_": near(declared.from_),
                "to_template": near(declared.to_template),
                "plans": {name: str(near(each)) for name, each in declared.plans.items()},
                "protos": {name: str(near(each)) for name, each in declared.protos.items()},
            }
        )

    @classmethod
    def of(cls, document: object) -> Migration:
        """Makes a migration of the values that stand in a YAML file.

        Raises:
            ConfigError: It is not a declaration; the message names the place.
        """
        try:
            check_declaration(document)
        except ConfigError as error:
            raise ConfigError(f"The declaration is wrong: {error.message}") from None
        top = _mapping(document, "The declaration", _TOP)
        if top.get("migration") != FORMAT:
            raise ConfigError(
                f"The declaration has no known version: expected 'migration: {FORMAT}', "
                f"got {top.get('migration')!r}."
            )
        operators = _mapping(top.get("operators") or {}, "operators")
        return cls(
            _text(top.get("from"), "from"),
            _text(top.get("to_template"), "to_template"),
            _paths(top, "plans"),
            _max_parallelism(top.get("max_parallelism")),
            {name: _operator(each, f"operators.{name}") for name, each in operators.items()},
            _names(top.get("drop_operators"), "drop_operators"),
            _names(top.get("start_empty"), "start_empty"),
            _protos(top),
            top,
        )

    @property
    def undecided(self) -> list[str]:
        """The places with ``???``."""
        return list(_undecided(self.document, "")) or [
            f"operators.{name}" for name, rule in self.operators.items() if _has_undecided(rule)
        ]


def _undecided(document: object, where: str) -> Iterator[str]:
    if isinstance(document, Mapping):
        for name, value in document.items():
            if name == UNDECIDED:
                yield where or "the declaration"
            yield from _undecided(value, f"{where}.{name}" if where else str(name))
    elif isinstance(document, list | tuple):
        for at, value in enumerate(document):
            yield from _undecided(value, f"{where}[{at}]")
    elif isinstance(document, str) and UNDECIDED in document:
        yield where


def _has_undecided(rule: OperatorRule) -> bool:
    keys = rule.key if isinstance(rule.key, tuple) else (rule.key,)
    expressions = [each for each in keys if each is not None]
    for state in rule.states.values():
        expressions += [*(state.columns or ()), *state.add.values()]
        expressions += [] if state.value is None else [state.value]
    return any(map(is_undecided, expressions))


def _near(folder: str) -> Any:
    """Local paths beside the declaration become absolute; others stay."""

    def near(path: str | None) -> str | None:
        if path is None or "://" in path or os.path.isabs(path):
            return path
        beside = os.path.join(folder, path)
        return beside if os.path.exists(beside) or not os.path.exists(path) else path

    return near


# ---------------------------------------------------------------------------------- parts


def _mapping(document: object, where: str, known: tuple[str, ...] | None = None) -> dict[str, Any]:
    if not isinstance(document, Mapping):
        raise ConfigError(f"{where} is wrong: expected names with values, got {document!r}.")
    values = {str(name): each for name, each in document.items()}
    for name in values:
        if known is not None and name not in known:
            raise ConfigError(
                f"{where} has an unknown key {name!r}; the known keys are: {', '.join(known)}."
            )
    return values


def _text(text: object, where: str) -> str | None:
    if text is not None and not isinstance(text, str | os.PathLike):
        raise ConfigError(f"{where} is wrong: expected a text, got {text!r}.")
    return None if text is None else os.fspath(text)


def _paths(top: Mapping[str, Any], name: str) -> dict[str, str]:
    """Files of the old and of the new job."""
    paths = _mapping(top.get(name) or {}, name, ("old", "new"))
    return {whose: str(_text(path, f"{name}.{whose}")) for whose, path in paths.items()}


def _protos(top: Mapping[str, Any]) -> dict[str, str]:
    protos = _paths(top, "protos")
    if len(protos) == 1:
        raise ConfigError("protos is wrong: expected the descriptor sets of old and new.")
    return protos


def _names(names: object, where: str) -> tuple[str, ...]:
    if names is None:
        return ()
    every = [names] if isinstance(names, str) else names
    if not isinstance(every, list | tuple) or not all(isinstance(each, str) for each in every):
        raise ConfigError(f"{where} is wrong: expected a list of names, got {names!r}.")
    for name, count in Counter(every).items():
        if count > 1:
            raise ConfigError(f"{where} names {name!r} twice; name it once.")
    return tuple(every)


def _max_parallelism(number: object) -> int | None:
    if number in (None, "keep"):
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= 32768:
        raise ConfigError(
            f"max_parallelism is wrong: expected keep or a number from 1 to 32768, got {number!r}."
        )
    return number


def _operator(rule: object, where: str) -> OperatorRule:
    values = _mapping(rule or {}, where, _OPERATOR)
    states = _mapping(values.get("states") or {}, f"{where}.states")
    classes = _mapping(values.get("classes") or {}, f"{where}.classes")
    return OperatorRule(
        _names(values["from"], f"{where}.from") if values.get("from") is not None else None,
        _expressions(values["key"], f"{where}.key") if "key" in values else None,
        _merge_rule(values.get("on_collision"), f"{where}.on_collision"),
        {name: _state(each, f"{where}.states.{name}") for name, each in states.items()},
        _names(values.get("drop"), f"{where}.drop"),
        {name: str(each) for name, each in classes.items()},
        _fields(values.get("fields") or {}, f"{where}.fields"),
    )


def _fields(rules: object, where: str) -> dict[str, dict[str, Expression]]:
    expressions: dict[str, dict[str, Expression]] = {}
    for name, fields in _mapping(rules, where).items():
        expressions[name] = {}
        for new, old in _mapping(fields, f"{where}.{name}").items():
            place = f"{where}.{name}.{new}"
            if isinstance(old, Mapping):
                old = _mapping(old, place, ("from",)).get("from")
                if not isinstance(old, str):
                    raise ConfigError(f"{place} is wrong: expected from: NAME, got {old!r}.")
            expressions[name][new] = parse_expression(old, place)
    return expressions


def _state(rule: object, where: str) -> StateRule:
    values = _mapping({"from": rule} if isinstance(rule, str) else rule or {}, where, _STATE)
    kind = values.get("kind")
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"{where}.kind is wrong: expected {', '.join(KINDS)}, got {kind!r}.")
    columns = values.get("columns")
    if columns is not None and "value" in values:
        raise ConfigError(f"{where} has columns and value; give one of them.")
    if columns is not None and not isinstance(columns, list | tuple):
        raise ConfigError(f"{where}.columns is wrong: expected a list, got {columns!r}.")
    if "merge" in values and "on_collision" in values:
        raise ConfigError(f"{where} has merge and on_collision; give one of them.")
    name = "merge" if "merge" in values else "on_collision"
    merge = values.get(name)
    added = _mapping(values.get("add") or {}, f"{where}.add")
    return StateRule(
        _text(values.get("from"), f"{where}.from"),
        kind,
        _text(values.get("type"), f"{where}.type"),
        None if columns is None else _several(columns, f"{where}.columns"),
        parse_expression(values["value"], f"{where}.value") if "value" in values else None,
        _expressions(values["map_key"], f"{where}.map_key") if "map_key" in values else None,
        tuple(str(_merge_rule(each, f"{where}.{name}")) for each in merge)
        if isinstance(merge, list | tuple)
        else _merge_rule(merge, f"{where}.{name}"),
        {each: parse_expression(how, f"{where}.add.{each}") for each, how in added.items()},
    )


def _merge_rule(rule: object, where: str) -> str | None:
    if rule is None or rule in MERGES or rule == UNDECIDED:
        return None if rule is None else str(rule)
    raise ConfigError(f"{where} is wrong: expected {', '.join(MERGES)}, got {rule!r}.")


def _expressions(expressions: object, where: str) -> Expression | tuple[Expression, ...]:
    if isinstance(expressions, list | tuple):
        return _several(expressions, where)
    return parse_expression(expressions, where)


def _several(texts: list[object] | tuple[object, ...], where: str) -> tuple[Expression, ...]:
    return tuple(parse_expression(each, f"{where}[{at}]") for at, each in enumerate(texts))
