"""Checks of a snapshot as values. ``build_pipeline_defs`` and ``build_savepoint_defs`` take them.

``build_snapshot_checks`` makes them checks of an asset of your own. A name loads its module on
first use.
"""

from typing import TYPE_CHECKING

from dstl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dstl_dagster.checks.restore_checks import (
        RestoreCheck as RestoreCheck,
        SchemaCheck as SchemaCheck,
    )
    from dstl_dagster.checks.snapshot_check import (
        SnapshotCheck as SnapshotCheck,
        build_snapshot_checks as build_snapshot_checks,
    )
    from dstl_dagster.checks.state_checks import DiffCheck as DiffCheck, StateCheck as StateCheck
    from dstl_dagster.checks.verify_check import VerifyCheck as VerifyCheck

__getattr__, __dir__ = lazy_names(__name__)
