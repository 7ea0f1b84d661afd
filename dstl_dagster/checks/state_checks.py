"""Asset checks of the content of state: by SQL, and against another snapshot."""

import re
from typing import TYPE_CHECKING, Any

import dagster as dg

from dstl_dagster.checks.store_checks import ERROR, WARN, Asset
from dstl_dagster.resources.engines import engine_of
from dstl_dagster.resources.storage_resource import DstlStorageResource
from dstl_dagster.snapshots.stored_rows import read_state
from dstl_dagster.snapshots.typed_source import SnapshotSource, registry_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build_state_check(
    uid: str,
    sql: str,
    *,
    asset: Asset,
    source: SnapshotSource,
    name: str | None = None,
    state: str | None = None,
    severity: dg.AssetCheckSeverity = ERROR,
    blocking: bool = False,
) -> dg.AssetChecksDefinition:
    """Checks state by SQL: each row that the query returns is a violation.

        build_state_check(
            "accounts", "SELECT state_key FROM {state} WHERE total < 0", asset=.., source=..)

    ``{state}`` stands for the operator's keyed state: a row per key, a column per state. It is a
    temporary view, which the check drops. The result shows the number of keys, not the keys.

    Args:
        uid: The operator.
        sql: The query.
        asset: The asset that is checked.
        source: The snapshot.
        name: Name of the check.
        state: One state, to be read in flat form instead of all states.
        severity: WARN never stops downstream assets.
        blocking: Whether a failure stops downstream assets.
    """

    @dg.asset_check(asset=asset, name=name or _name("state_of", uid), blocking=blocking)
    def state_check(
        context: dg.AssetCheckExecutionContext,
        storage: DstlStorageResource,
        spark: dg.ResourceParam[Any],
    ) -> dg.AssetCheckResult:
        path = source(storage)
        with engine_of(spark, "dstl", context.run.run_id, uid) as session:
            rows = read_state(session, path, uid, state, registry_of(source))
            violations = session.sql(sql, state=rows).count()
        return dg.AssetCheckResult(
            passed=violations == 0,
            severity=severity,
            metadata={"violations": violations, "path": path, "sql": sql},
        )

    return state_check


def build_diff_size_check(
    uid: str,
    *,
    asset: Asset,
    source: SnapshotSource,
    before: SnapshotSource,
    before_uid: str | None = None,
    max_changed_ratio: float = 0.5,
    name: str | None = None,
    severity: dg.AssetCheckSeverity = WARN,
) -> dg.AssetChecksDefinition:
    """Checks that two snapshots do not differ in too many keys of an operator.

    Args:
        uid: The operator.
        asset: The asset that is checked.
        source: The snapshot.
        before: The snapshot to compare with.
        before_uid: The uid of the operator in ``before``, if it differs.
        max_changed_ratio: Largest ratio of added, removed and changed keys to the keys before.
        name: Name of the check.
        severity: ERROR makes a run of ``dstl-checks`` fail.
    """

    @dg.asset_check(asset=asset, name=name or _name("diff_of", uid))
    def diff_size(
        context: dg.AssetCheckExecutionContext,
        storage: DstlStorageResource,
        spark: dg.ResourceParam[Any],
    ) -> dg.AssetCheckResult:
        with engine_of(spark, "dstl", context.run.run_id, "diff") as session:
            types = registry_of(before), registry_of(source)
            old = read_state(session, before(storage), before_uid or uid, None, types[0])
            new = read_state(session, source(storage), uid, None, types[1])
            counts = _count_differences(old, new)
        changed = counts["added"] + counts["removed"] + counts["changed"]
        ratio = changed / max(counts["before"], 1)
        return dg.AssetCheckResult(
            passed=ratio <= max_changed_ratio,
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
