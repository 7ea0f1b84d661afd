"""A check of a snapshot as a value, and what gives it an asset."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import dagster as dg

from dstl_core.errors import ConfigError
from dstl_dagster.option_kinds import check_options
from dstl_dagster.snapshots.typed_source import SnapshotSource

Asset = dg.AssetKey | dg.AssetsDefinition | str
Severity = Literal["error", "warn"]
ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN
MAX_SHOWN = 5


class SnapshotCheck(ABC):
    """A check that can be made of any snapshot. Subclasses are dataclasses."""

    def __post_init__(self) -> None:
        check_options(f"a {type(self).__name__}", type(self), vars(self), but={"job": None})

    @abstractmethod
    def definition(
        self, asset: Asset, source: SnapshotSource, uid: str | None = None
    ) -> dg.AssetChecksDefinition:
        """The check of an asset.

        Args:
            asset: The asset that is checked.
            source: Finds its snapshot.
            uid: The operator to check, unless the check names one.

        Raises:
            ConfigError: The check is about an operator, and nothing says which one.
        """


Check = SnapshotCheck | dg.AssetChecksDefinition
"""A value that becomes a check, or a check that Dagster made."""


def build_snapshot_checks(
    asset: Asset,
    source: SnapshotSource,
    checks: Sequence[Check],
    *,
    uid: str | None = None,
) -> list[dg.AssetChecksDefinition]:
    """Makes checks of an asset, for definitions of your own.

    Args:
        asset: The asset that is checked.
        source: Finds its snapshot: ``snapshot_at``, ``checkpoint_of`` or ``savepoint_of``, or a
            function that takes the storage and returns a path.
        checks: The checks. A check that Dagster made stays as it is.
        uid: The operator, for the checks that name none.

    Raises:
        ConfigError: A check is none, or lacks its operator; the source is no function.
    """
    check_source("source of a check", source)
    if not isinstance(checks, Sequence):
        raise ConfigError(f"The checks are wrong: expected a list of checks, got {checks!r}.")
    definitions = [_definition(check, asset, source, uid) for check in checks]
    check_distinct(definitions)
    return definitions


def check_distinct(definitions: Iterable[dg.AssetChecksDefinition]) -> None:
    """Raises ConfigError for two checks of one asset with one name."""
    counts = Counter(key for definition in definitions for key in definition.check_keys)
    for key, count in counts.items():
        if count > 1:
            raise ConfigError(
                f"The asset {key.asset_key.to_user_string()!r} has {count} checks with the name "
                f"{key.name!r}: expected one; leave out yours if dstl makes it already, or give "
                f"yours another name (name)."
            )


def _definition(
    check: Any, asset: Asset, source: SnapshotSource, uid: str | None
) -> dg.AssetChecksDefinition:
    if isinstance(check, dg.AssetChecksDefinition):
        return check
    if not isinstance(check, SnapshotCheck):
        raise ConfigError(
            f"A check is wrong: expected a check of dstl_dagster.checks, for example "
            f"StateCheck(sql), or one that @asset_check made, got {type(check).__name__} {check!r}."
        )
    return check.definition(asset, source, uid)


def check_source(what: str, source: Any) -> None:
    """Raises ConfigError for a place, which finds nothing by itself."""
    if not callable(source):
        raise ConfigError(
            f"The {what} is wrong: expected a function that takes the storage, for example "
            f"dstl_dagster.snapshots.snapshot_at({str(source)!r}), got {source!r}."
        )


def operator_of(check: str, of_check: str | None, uid: str | None) -> str:
    """The operator that a check is about.

    Raises:
        ConfigError: Neither the check nor what it is given to names one.
    """
    operator = of_check or uid
    if operator is None:
        raise ConfigError(
            f"The check {check} names no operator, and a snapshot may have several: expected a uid."
        )
    return operator


def severity_of(severity: Severity) -> dg.AssetCheckSeverity:
    """Dagster's severity.

    Raises:
        ConfigError: There is no such severity.
    """
    if severity not in ("error", "warn"):
        raise ConfigError(f"A severity is wrong: expected 'error' or 'warn', got {severity!r}.")
    return dg.AssetCheckSeverity[severity.upper()]


def lines_of(items: Sequence[str]) -> str:
    """The first items, and how many more there are."""
    shown = items[:MAX_SHOWN]
    more = [f"and {len(items) - MAX_SHOWN} more"] if len(items) > MAX_SHOWN else []
    return "; ".join([*shown, *more]) or "none"
