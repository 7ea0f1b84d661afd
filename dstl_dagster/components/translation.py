"""The ``translation`` of a component's YAML: changes to the asset specs of its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from dagster.components.utils.translation import TranslationFn, TranslationFnResolver

from dstl_dagster.translator import DagsterDstlTranslator, DstlTranslatorData

if TYPE_CHECKING:
    import dagster as dg


def _variables(data: DstlTranslatorData) -> dict[str, Any]:
    return {
        "data": data,
        "pipeline": data.pipeline,
        "kind": data.kind,
        "operator": data.operator,
        "name": data.name or data.kind,
    }


def _resolver() -> TranslationFnResolver[DstlTranslatorData]:
    # Dagster's resolver takes no description, but shows one that it has.
    resolver = TranslationFnResolver[DstlTranslatorData](_variables)
    resolver.description = "Changes to the assets; templates know the part of the pipeline."
    resolver.examples = [{"group_name": "finance", "tags": {"part": "{{ kind }}"}}]
    return resolver


Translation = Annotated[TranslationFn[DstlTranslatorData] | None, _resolver()]
"""Attributes of the specs, as in Dagster's other integrations. Templates know ``spec``, ``data``,
and of that ``pipeline``, ``kind``, ``operator`` and ``name``.
"""


class ComponentTranslator(DagsterDstlTranslator):
    """Asks a component for its specs, so that a subclass of the component can change them."""

    def __init__(self, component: Any) -> None:
        super().__init__(unique_keys=component.unique_keys)
        self._component = component

    def get_asset_spec(self, data: DstlTranslatorData) -> dg.AssetSpec:
        spec: dg.AssetSpec = self._component.get_asset_spec(data)
        return spec


def translated(
    translation: TranslationFn[DstlTranslatorData] | None,
    data: DstlTranslatorData,
    *,
    unique_keys: bool,
) -> dg.AssetSpec:
    """The spec of a part, with the changes of a ``translation``."""
    spec = DagsterDstlTranslator(unique_keys=unique_keys).get_asset_spec(data)
    return spec if translation is None else translation(spec, data)
