"""Edited copies of a savepoint, as Python and YAML declare them."""

from typing import Annotated, Any

import dagster as dg
from pydantic import Field, field_validator

from dstl_dagster.attributes import shown


class Rewrite(dg.Model, dg.Resolvable):
    """An edited copy of a savepoint."""

    name: Annotated[str, shown("Name of the asset in its key.", "rewritten")] = "rewritten"
    rename: Annotated[
        dict[str, str], shown("Uid of an operator to its new uid.", {"totals": "sums"})
    ] = Field(default={})
    remove: Annotated[list[str], shown("Uids of operators to leave out.", ["totals"])] = Field(
        default=[]
    )
    max_parallelism: Annotated[int | None, shown("New number of key groups.", 256)] = None
    automatic: Annotated[
        bool, shown("Whether Dagster rewrites each new savepoint by itself.", False)
    ] = True

    @property
    def automation_condition(self) -> dg.AutomationCondition | None:
        """When Dagster rewrites, unless a translator says so."""
        return dg.AutomationCondition.eager() if self.automatic else None

    def edit(self) -> dict[str, Any]:
        """The arguments of ``rewritten_asset``."""
        return {
            "rename": self.rename,
            "remove": self.remove,
            "max_parallelism": self.max_parallelism,
        }


class Upgrade(dg.Model, dg.Resolvable):
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

    @field_validator("to", mode="before")
    @classmethod
    def _text_of(cls, version: Any) -> Any:
        """Dagster's templates make a number of a text that looks like one."""
        return str(version) if isinstance(version, float) else version

    def edit(self) -> dict[str, Any]:
        """The arguments of ``upgraded_asset``."""
        return {"to": self.to, "jars": self.jars, "drop": self.drop, "types": self.types}


class Migrate(dg.Model, dg.Resolvable):
    """A savepoint as a changed job restores it, by a declaration of ``dstl migrate``."""

    name: Annotated[str, shown("Name of the asset in its key.", "migrated")] = "migrated"
    declaration: Annotated[str, shown("Path of the declaration.", "migrations/orders-v2.yaml")]
