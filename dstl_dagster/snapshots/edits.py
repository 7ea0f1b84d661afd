"""Edited copies of a savepoint, as Python and YAML declare them."""

from typing import Annotated, Any, Self

import dagster as dg
from pydantic import Field, field_validator, model_validator

from dstl_core.savepoint.edit.kept_state import Files
from dstl_core.savepoint.write.folder import KeyedForm
from dstl_dagster.attributes import shown
from dstl_dagster.option_kinds import check_options

_Engine = Annotated[
    str | None,
    shown(
        "Key of the resource whose Spark session reads and writes the keyed state; by default the "
        "process of the run does.",
        "spark",
    ),
]
_Files = Annotated[
    Files | None,
    shown(
        "What becomes of state that does not change: `canonical`, `copy` (files as they are) or "
        "`share` (by reference). By default `canonical`; with native form, files of a checkpoint "
        "are shared, and files of a savepoint copied.",
        "copy",
        "share",
    ),
]
_Form = Annotated[
    KeyedForm,
    shown(
        "The form of keyed state that is written: `canonical`, or `native` for RocksDB.", "native"
    ),
]


def _names_in(names: Any) -> Any:
    """Names in a list or dictionary. Dagster's templates make a number of a name of digits."""
    if isinstance(names, dict):
        return {_name_of(old): _name_of(new) for old, new in names.items()}
    return [_name_of(name) for name in names] if isinstance(names, list) else names


def _name_of(name: Any) -> Any:
    return str(name) if type(name) is int else name


_OF_THE_ASSET = {"name", "engine", "automatic"}
"""Fields that say nothing of what is written."""


class _Edit(dg.Model):
    def edit(self) -> dict[str, Any]:
        """What is written, as arguments of the function that makes the asset."""
        return {name: value for name, value in self if name not in _OF_THE_ASSET}

    @model_validator(mode="after")
    def _check(self) -> Self:
        name = type(self).__name__
        check_options(f"a {name}" if name != "Upgrade" else "an Upgrade", type(self), vars(self))
        return self


class Rewrite(_Edit, dg.Resolvable):
    """An edited copy of a savepoint."""

    name: Annotated[str, shown("Name of the asset in its key.", "rewritten")] = "rewritten"
    rename: Annotated[
        dict[str, str], shown("Uid of an operator to its new uid.", {"totals": "sums"})
    ] = Field(default={})
    remove: Annotated[list[str], shown("Uids of operators to leave out.", ["totals"])] = Field(
        default=[]
    )
    max_parallelism: Annotated[int | None, shown("New number of key groups.", 256)] = None
    files: _Files = None
    format: _Form = "canonical"
    engine: _Engine = None
    automatic: Annotated[
        bool, shown("Whether Dagster rewrites each new savepoint by itself.", False)
    ] = True

    @field_validator("rename", "remove", mode="before")
    @classmethod
    def _texts_of(cls, uids: Any) -> Any:
        return _names_in(uids)

    @property
    def automation_condition(self) -> dg.AutomationCondition | None:
        """When Dagster rewrites, unless a translator says so."""
        return dg.AutomationCondition.eager() if self.automatic else None


class Upgrade(_Edit, dg.Resolvable):
    """A copy of a savepoint of Flink 1.x that Flink 2.x restores."""

    name: Annotated[str, shown("Name of the asset in its key.", "upgraded")] = "upgraded"
    to: Annotated[str, shown("Version of Flink that restores it: 2.0 to 2.3.", "2.2")] = "2.2"
    jars: Annotated[
        list[str], shown("Paths of the jars of the job that wrote it.", ["jobs/orders.jar"])
    ] = Field(default=[])
    drop: Annotated[
        list[str], shown("States to leave out: STATE or OPERATOR/STATE.", ["cache"])
    ] = Field(default=[])
    types: Annotated[
        dict[str, str],
        shown(
            "Java types that the jars do not show, by STATE, OPERATOR/STATE or CLASS.FIELD.",
            {"items": "List<shop.Line>"},
        ),
    ] = Field(default={})
    template: Annotated[
        str | None,
        shown("A savepoint of the new job, whose types take the place of Scala's.", "orders/new"),
    ] = None
    new_jars: Annotated[
        list[str],
        shown("Jars of the new job, with classes that take the place of Scala's.", ["new.jar"]),
    ] = Field(default=[])
    new_keys: Annotated[
        dict[str, str],
        shown(
            "Java types of keys, in place of those of Scala, by operator.",
            {"orders": "Tuple2<String, Long>"},
        ),
    ] = Field(default={})
    files: _Files = None
    format: _Form = "canonical"
    engine: _Engine = None

    @field_validator("to", mode="before")
    @classmethod
    def _version_of(cls, version: Any) -> Any:
        """Dagster's templates make a number of a text that looks like one."""
        return str(version) if isinstance(version, float) else version

    @field_validator("drop", mode="before")
    @classmethod
    def _texts_of(cls, names: Any) -> Any:
        return _names_in(names)


class Migrate(_Edit, dg.Resolvable):
    """A savepoint as a changed job restores it, by a declaration of ``dstl migrate``."""

    name: Annotated[str, shown("Name of the asset in its key.", "migrated")] = "migrated"
    declaration: Annotated[str, shown("Path of the declaration.", "migrations/orders-v2.yaml")]
    files: _Files = None
    format: _Form = "canonical"
    engine: _Engine = None
