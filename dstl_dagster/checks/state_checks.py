"""Asset checks of the content of state: by SQL, and against another snapshot."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import dagster as dg

from dstl_dagster.attributes import shown
from dstl_dagster.checks.snapshot_check import (
    Asset,
    Severity,
    SnapshotCheck,
    check_source,
    operator_of,
    severity_of,
)
from dstl_dagster.resources.engines import engine_of
from dstl_dagster.resources.storage_resource import DstlStorageResource
from dstl_dagster.snapshots.typed_source import SnapshotSource, resource_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class StateCheck(SnapshotCheck, dg.Resolvable):
    """Checks state by SQL: each row that the query returns is a violation.

        StateCheck("SELECT state_key FROM {state} WHERE total < 0", name="no_negative_total")

    ``{state}`` stands for the operator's keyed state: a row per key, a column per state. It is a
    temporary view, which the check drops. The result shows the number of keys, not the keys. The
    check needs the resource ``spark``. In YAML, too, the braces are single.

    Args:
        sql: The query.
        uid: The operator; by default the pipeline's own. A check of a savepoint names it.
        state: One state, to be read in flat form instead of all states.
        name: Name of the check.
        severity: ``"warn"`` never stops downstream assets.
        blocking: Whether a violation stops downstream assets.
    """

    sql: Annotated[
        str,
        shown(
            "Query that returns the violations; {state} has a row per key, a column per state.",
            "SELECT state_key FROM {state} WHERE total < 0",
        ),
    ]
    uid: Annotated[
        str | None,
        shown("Uid of the operator whose state is checked; a pipeline has a default.", "totals"),
    ] = None
    state: Annotated[
        str | None, shown("One state, in flat form, instead of all states.", "total")
    ] = None
    name: Annotated[str | None, shown("Name of the check.", "no_negative_total")] = None
    severity: Annotated[Severity, shown("Severity of a violation.", "error", "warn")] = "error"
    blocking: Annotated[bool, shown("Whether a violation stops downstream assets.", True)] = False

    def definition(
        self, asset: Asset, source: SnapshotSource, uid: str | None = None
    ) -> dg.AssetChecksDefinition:
        operator = operator_of(f"{self.sql!r}", self.uid, uid)
        severity = severity_of(self.severity)

        @dg.asset_check(
            asset=asset, name=self.name or _name("state_of", operator), blocking=self.blocking
        )
        def state_check(
            context: dg.AssetCheckExecutionContext,
            storage: DstlStorageResource,
            spark: dg.ResourceParam[Any],
        ) -> dg.AssetCheckResult:
            path = source(storage)
            with engine_of(spark, "dstl", context.run.run_id, operator) as session:
                resource = resource_for(source, storage)
                rows = resource.read(session, path, uid=operator, state=self.state)
                violations = session.sql(self.sql, state=rows).count()
            return dg.AssetCheckResult(
                passed=violations == 0,
                severity=severity,
                metadata={"violations": violations, "path": path, "sql": self.sql},
            )

        return state_check


@dataclass(frozen=True)
class DiffCheck(SnapshotCheck):
    """Checks that two snapshots do not differ in too many keys of an operator.

    The check needs the resource ``spark``.

    Args:
        before: Finds the snapshot to compare with.
        uid: The operator; by default the pipeline's own. A check of a savepoint names it.
        before_uid: The uid of the operator in ``before``, if it differs.
        max_changed_ratio: Largest ratio of added, removed and changed keys to the keys before.
        name: Name of the check.
        severity: ``"error"`` makes a run of ``dstl-checks`` fail.
    """

    before: SnapshotSource
    uid: str | None = None
    before_uid: str | None = None
    max_changed_ratio: float = 0.5
    name: str | None = None
    severity: Severity = "warn"

    def definition(
        self, asset: Asset, source: SnapshotSource, uid: str | None = None
    ) -> dg.AssetChecksDefinition:
        check_source("snapshot before", self.before)
        operator = operator_of("of changed keys", self.uid, uid)
        severity, before = severity_of(self.severity), self.before

        @dg.asset_check(asset=asset, name=self.name or _name("diff_of", operator))
        def diff_size(
            context: dg.AssetCheckExecutionContext,
            storage: DstlStorageResource,
            spark: dg.ResourceParam[Any],
        ) -> dg.AssetCheckResult:
            with engine_of(spark, "dstl", context.run.run_id, "diff") as session:
                old_uid = self.before_uid or operator
                resources = resource_for(before, storage), resource_for(source, storage)
                old = resources[0].read(session, before(storage), uid=old_uid)
                new = resources[1].read(session, source(storage), uid=operator)
                counts = _count_differences(old, new)
            changed = counts["added"] + counts["removed"] + counts["changed"]
            ratio = changed / max(counts["before"], 1)
            return dg.AssetCheckResult(
                passed=ratio <= self.max_changed_ratio,
                severity=severity,
                metadata={**counts, "changed_ratio": ratio},
            )

        return diff_size


def _count_differences(old: "DataFrame", new: "DataFrame") -> dict[str, int]:
    from pyspark.sql import functions as F

    def by_key(rows: "DataFrame", name: str) -> "DataFrame":
        # As text: Spark's own equality takes -0.0 for 0.0, and has none for maps.
        values = [column for column in sorted(rows.columns) if column != "state_key"]
        key = F.to_json(F.struct("state_key")).alias("key")
        return rows.select(key, F.to_json(F.struct(*values)).alias(name))

    both = by_key(old, "old").join(by_key(new, "new"), "key", "full_outer")
    is_old, is_new = F.col("old").isNotNull(), F.col("new").isNotNull()
    row = both.agg(
        F.count_if(is_old).alias("before"),
        F.count_if(~is_old).alias("added"),
        F.count_if(~is_new).alias("removed"),
        F.count_if(is_old & is_new & (F.col("old") != F.col("new"))).alias("changed"),
    ).collect()[0]
    return {name: int(value or 0) for name, value in row.asDict().items()}


def _name(what: str, uid: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", f"{what}_{uid}")
