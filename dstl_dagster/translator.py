"""Makes asset specs for the parts of a pipeline. Override ``get_asset_spec`` to change them."""

from __future__ import annotations

from collections.abc import Mapping
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
    "upgraded",
    "migrated",
    "evolution",
    "report",
    "bootstrapped",
    "external",
]

_DESCRIPTIONS: dict[DstlAssetKind, str] = {
    "state": "State per key after each window of input: one epoch a partition.",
    "changelog": "What each epoch changed, on top of the materialized state.",
    "checkpoint": "Committed checkpoints: folders that real Flink restores.",
    "output": "What the functions of the operator give, for each window of input.",
    "materialization": "The full state as a new base; the log before it is released.",
    "savepoint": "The state as a self-contained canonical savepoint.",
    "rewritten": "An edited copy of a savepoint: other uids, other max parallelism.",
    "upgraded": "A copy of a savepoint of Flink 1.x that Flink 2.x restores.",
    "migrated": "A savepoint as a changed job restores it, by a declaration.",
    "evolution": "What the definition of the pipeline would change in its state.",
    "report": "The page of dstl report about the latest checkpoint.",
    "bootstrapped": "State computed in bulk and written as a savepoint.",
    "external": "Snapshots of a Flink job that runs elsewhere.",
}
SPARK = "spark"
"""Key of the resource that runs jobs by default."""
_ON_ENGINE = ("state", "output", "materialization", "savepoint", "bootstrapped", "evolution")
_WITH_OPERATOR = ("state", "changelog", "output", "materialization")


@dataclass(frozen=True)
class DstlTranslatorData:
    """The part of a pipeline that an asset is.

    Args:
        pipeline: Name of the pipeline, or of the group of savepoints.
        kind: The kind of the part.
        operator: Uid of the operator, for a part of one operator.
        name: Name of the part in the key, if it is not the kind.
        engine: Key of the resource that runs the pipeline.
    """

    pipeline: str
    kind: DstlAssetKind
    operator: str | None = None
    name: str | None = None
    engine: str = SPARK


class DagsterDstlTranslator:
    """Names and describes assets. To change that, override ``get_asset_spec``.

    Args:
        unique_keys: Whether the last part of each key names the pipeline, so that no two nodes of
            Dagster's graph look the same: ``payments/payments_state_totals``. Otherwise keys are
            those of versions before: ``payments/state/totals``.
    """

    unique_keys = True
    """A subclass that does not call ``__init__`` has this value."""

    def __init__(self, *, unique_keys: bool = True) -> None:
        self.unique_keys = unique_keys

    def get_asset_spec(self, data: DstlTranslatorData) -> dg.AssetSpec:
        """The spec of one part: ``<pipeline>/<pipeline>_state_<uid>``,
        ``<pipeline>/<pipeline>_checkpoint``, ..
        """
        parts = [data.name or data.kind]
        if data.operator is not None and data.kind in _WITH_OPERATOR:
            parts.append(data.operator.replace("/", "_"))
        if self.unique_keys:
            parts = ["_".join([data.pipeline, *parts])]
        return dg.AssetSpec(
            dg.AssetKey([data.pipeline, *parts]),
            description=_DESCRIPTIONS[data.kind],
            group_name=data.pipeline.replace("-", "_").replace(".", "_"),
            kinds={"flink", "pyspark"} if _is_on_spark(data) else {"flink"},
            tags={"dstl/pipeline": data.pipeline},
        )


class RenamedParts(DagsterDstlTranslator):
    """Another translator, but for the keys of some assets.

    Args:
        translator: The other one.
        keys: Its keys to those that the assets have.
    """

    def __init__(
        self, translator: DagsterDstlTranslator, keys: Mapping[dg.AssetKey, dg.AssetKey]
    ) -> None:
        super().__init__(unique_keys=translator.unique_keys)
        self._translator = translator
        self._keys = keys

    def get_asset_spec(self, data: DstlTranslatorData) -> dg.AssetSpec:
        spec = self._translator.get_asset_spec(data)
        return spec.replace_attributes(key=self._keys.get(spec.key, spec.key))


def _is_on_spark(data: DstlTranslatorData) -> bool:
    return data.kind in _ON_ENGINE and data.engine == SPARK
