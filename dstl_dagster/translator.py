"""Makes asset specs for the parts of a pipeline. Override ``get_asset_spec`` to change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import dagster as dg

DstlAssetKind = Literal[
    "state",
    "changelog",
    "checkpoint",
    "output",
    "materialization",
    "savepoint",
    "rewritten",
    "bootstrapped",
    "external",
]

_DESCRIPTIONS: dict[DstlAssetKind, str] = {
    "state": "State per key after each window of input: one epoch a partition.",
    "changelog": "What each epoch changed, on top of the materialized state.",
    "checkpoint": "Committed checkpoints: folders that real Flink restores.",
    "output": "What the functions of the operator give, for each window of input.",
    "materialization": "The full state as a new base; the log before it goes.",
    "savepoint": "The state as a self-contained canonical savepoint.",
    "rewritten": "An edited copy of a savepoint: other uids, other max parallelism.",
    "bootstrapped": "State computed in bulk and written as a savepoint.",
    "external": "Snapshots of a Flink job that runs elsewhere.",
}
_ON_SPARK = ("state", "output", "materialization", "savepoint", "bootstrapped")
_WITH_OPERATOR = ("state", "changelog", "output", "materialization")


@dataclass(frozen=True)
class DstlTranslatorData:
    """The part of a pipeline that an asset is.

    Args:
        pipeline: Name of the pipeline, or of the group of savepoints.
        kind: The kind of the part.
        operator: Uid of the operator, for a part of one operator.
        name: Last part of the key, if it is not the kind.
    """

    pipeline: str
    kind: DstlAssetKind
    operator: str | None = None
    name: str | None = None


class DagsterDstlTranslator:
    """Names and describes assets. To change that, override ``get_asset_spec``."""

    def get_asset_spec(self, data: DstlTranslatorData) -> dg.AssetSpec:
        """The spec of one part: ``<pipeline>/state/<uid>``, ``<pipeline>/checkpoint``, .."""
        key = [data.pipeline, data.name or data.kind]
        if data.operator is not None and data.kind in _WITH_OPERATOR:
            key.append(data.operator.replace("/", "_"))
        return dg.AssetSpec(
            dg.AssetKey(key),
            description=_DESCRIPTIONS[data.kind],
            group_name=data.pipeline.replace("-", "_").replace(".", "_"),
            kinds={"flink", "pyspark"} if data.kind in _ON_SPARK else {"flink"},
            tags={"dstl/pipeline": data.pipeline},
        )
