"""Packages that an installation may lack, and the extra that brings each one.

``pip install dstl-core`` brings what the command line and jobs without Spark need. The rest are
extras of the distribution (``pyproject.toml``), and nothing else in dstl says how to install them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from dstl_core.errors import MissingPackageError

EXTRAS = {
    "adlfs": "azure",
    "deltalake": "delta",
    "gcsfs": "gcs",
    "prometheus_client": "prometheus",
    "pyiceberg": "iceberg",
    "pyspark": "spark",
    "rocksdict": "rocksdb",
    "s3fs": "s3",
    "textual": "browse",
}
"""The extra of each package, by the package's name in Python."""


def how_to_install(package: str) -> str:
    """What a user does to get a package of ``EXTRAS``."""
    return f"install {package}: pip install 'dstl-core[{EXTRAS[package]}]'"


def _missing(what: str, package: str) -> MissingPackageError:
    return MissingPackageError(
        f"{what} needs a package that is not installed; {how_to_install(package)}.",
        package=package,
    )


def require(package: str, what: str) -> None:
    """Checks that a package of ``EXTRAS`` is installed. It does not load the package.

    Args:
        package: The package's name in Python.
        what: What needs it, as the beginning of a sentence.

    Raises:
        MissingPackageError: The package is not installed.
    """
    if importlib.util.find_spec(package) is None:
        raise _missing(what, package)


@contextmanager
def extra_named(what: str) -> Iterator[None]:
    """Raises ``MissingPackageError`` if an import in the block fails for a package of ``EXTRAS``.

    Args:
        what: What is imported, as the beginning of a sentence.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise _missing(what, package) from error
