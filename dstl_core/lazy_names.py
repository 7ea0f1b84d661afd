"""Public names of a package, each of which loads its module on first use.

The imports under ``if TYPE_CHECKING:`` in the package's ``__init__`` are the list of names. Type
checkers and the documentation read them there, and so does the running program.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Makes ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: The package's ``__name__``.
    """
    homes: dict[str, str] = {}

    def get(name: str) -> Any:
        if name.startswith("__"):
            # Python asks every package for names such as ``__path__``.
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        homes.update(homes or _homes(package))
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *sys.modules[package].__all__})

    return get, names


def _homes(package: str) -> dict[str, str]:
    """The module of each name that a package imports for type checkers."""
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
    }
