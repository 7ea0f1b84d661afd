"""Tells the documentation which names of a package are public, where they load on first use."""

from __future__ import annotations

from typing import Any

import griffe

from dstl_core.lazy_names import homes_of


class PublicNames(griffe.Extension):
    """Takes the public names of a package from the one list of ``dstl_core.lazy_names``."""

    def on_module_members(self, *, mod: griffe.Module, **options: Any) -> None:
        """Exports what the module imports for type checkers."""
        if "lazy_names" in mod.members:
            mod.exports = sorted(homes_of(mod.path))
