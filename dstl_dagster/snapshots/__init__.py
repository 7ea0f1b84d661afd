"""Savepoints and checkpoints as assets: what finds, copies and describes them.

A name loads its module on first use.
"""

from typing import TYPE_CHECKING

from dstl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dstl_dagster.metadata import report_metadata as report_metadata
    from dstl_dagster.snapshots.edits import (
        Migrate as Migrate,
        Rewrite as Rewrite,
        Upgrade as Upgrade,
    )
    from dstl_dagster.snapshots.snapshot_assets import (
        build_bootstrapped_asset as build_bootstrapped_asset,
    )
    from dstl_dagster.snapshots.sources import (
        checkpoint_of as checkpoint_of,
        savepoint_of as savepoint_of,
        snapshot_at as snapshot_at,
    )

__getattr__, __dir__ = lazy_names(__name__)
