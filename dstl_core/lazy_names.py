"""Public names of a package, each of which loads its module on first use.

The imports under ``if TYPE_CHECKING:`` in the package's ``__init__`` are the one list of names.
They have the form ``from module import Name as Name``, which says to type checkers that the name
is public. The documentation and the running program read the same lines.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

_ASKED = ("__all__", "__version__")
"""Names with underscores that a package answers. Python asks every package for others."""


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Makes ``__getattr__`` and ``__dir__`` of a package. ``__all__`` is an attribute of it, too.

    Args:
        package: The package's ``__name__``.
    """
    homes: dict[str, str] = {}

    def public() -> list[str]:
        homes.update(homes or homes_of(package))
        return sorted(name for name in homes if not name.startswith("_"))

    def get(name: str) -> Any:
        unknown = AttributeError(f"module {package!r} has no attribute {name!r}")
        if name.startswith("__") and name not in _ASKED:
            raise unknown
        names = public()
        if name == "__all__":
            return names
        if name not in homes:
            raise unknown
        value = _load(package, homes[name], name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *public()})

    return get, names


def _load(package: str, home: str, name: str) -> Any:
    from dstl_core.extras import extra_named

    with extra_named(f"{package}.{name}"):
        if home == package:  # the name is that of a module
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(home), name)


def homes_of(package: str) -> dict[str, str]:
    """The module of each name that a package imports for type checkers."""
    import ast
    from importlib.util import find_spec

    spec = find_spec(package)
    loader = None if spec is None else spec.loader
    source = None if loader is None else loader.get_source(package)  # type: ignore[attr-defined]
    return {
        alias.name: str(statement.module)
        for block in ast.parse(source or "").body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
        if alias.asname == alias.name
    }
