"""Tells the documentation which names of a package are public, where they load on first use."""

from __future__ import annotations

from typing import Any

import griffe

from dstl_core.lazy_names import homes_of


class PublicNames(griffe.Extension):
    """Takes the public names of a package from the one list of ``dstl_core.lazy_names``."""

    def on_module_members(self, *, mod: griffe.Module, **options: Any) -> None:
        """Exports what the package imports for type checkers."""
        if mod.is_init_module and (homes := homes_of(mod.path)):
            mod.exports = sorted(homes)
