"""Who loads the values of a pipeline's assets: never Dagster's own IO manager, which pickles."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import dagster as dg

from dstl_core.errors import ConfigError

UNNAMED = "dstl_rows"
"""Key of the IO manager of assets that name none. The assets bring it."""


class UnnamedIOManager(dg.IOManager):
    """Stores nothing, because state and output are in the pipeline's folder, and loads nothing."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Does nothing."""

    def load_input(self, context: dg.InputContext) -> Any:
        """Raises ConfigError."""
        raise ConfigError(
            f"No IO manager loads the asset {context.asset_key.to_user_string()!r} of a pipeline: "
            f"expected the key of a DstlIOManager; give it to dstl_assets (io_manager_key='dstl'), "
            f"or to the input alone (AssetIn(input_manager_key='dstl'))."
        )


_BROUGHT = {UNNAMED: dg.IOManagerDefinition.hardcoded_io_manager(UnnamedIOManager())}
"""One object for all assets: Dagster refuses two of one key in one run."""


def loaded_by(specs: Sequence[dg.AssetSpec], key: str | None = None) -> list[dg.AssetSpec]:
    """Specs whose values an IO manager loads.

    Args:
        specs: The specs.
        key: Key of the IO manager; None: of one that says what to do.
    """
    return [spec.with_io_manager_key(key or UNNAMED) for spec in specs]


def bringing(assets: dg.AssetsDefinition) -> dg.AssetsDefinition:
    """Assets with the IO manager of ``UNNAMED``. The decorator takes no resources of assets whose
    function has resources as parameters, so they are given here.
    """
    attributes = {**assets.get_attributes_dict(), "resource_defs": _BROUGHT}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # of attributes that the decorator has set
        return dg.AssetsDefinition(**attributes)
