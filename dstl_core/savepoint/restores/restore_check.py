"""Checks whether a job restores a snapshot: a verdict and its reason for each state."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from dstl_core.errors import ConfigError
from dstl_core.savepoint.read.job_classes import open_job_classes
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.restores.described_check import DescribedJobCheck
from dstl_core.savepoint.restores.flink_answers import FlinkInstallation
from dstl_core.savepoint.restores.jar_check import JarCheck
from dstl_core.savepoint.restores.job_match import JobDescription
from dstl_core.savepoint.restores.restore_result import RestoreResult
from dstl_core.state.tables.compatibility import parse_flink_version

RestoringJob = Snapshot | JobDescription | Mapping[str, Any] | str | os.PathLike[str]


def check_restore(
    snapshot: Snapshot,
    job: RestoringJob,
    *,
    to: str | None = None,
    drop: Sequence[str] = (),
    columns_kept: bool = False,
    unchanged: Sequence[str] = (),
    main: str | None = None,
    jars: Sequence[str | os.PathLike[str]] = (),
    flink: FlinkInstallation | None = None,
) -> RestoreResult:
    """Checks whether a job restores a snapshot, and whether its values stay what they are.

    It reads the values of states with POJOs, since no header names the subclasses in them.

    Args:
        snapshot: The snapshot to restore.
        job: The job: a snapshot that it wrote, the path of its jar, a description of it, or, for a
            job that runs, the plan of Flink's REST API.
        to: The version of Flink that restores, e.g. ``2.2``. By default 1.20 if ``job`` is a
            snapshot that Flink 1 wrote, otherwise the newest known version.
        drop: Operators (uid, hash or name) and states (``OPERATOR/STATE``) that may be lost.
        columns_kept: Whether columns of SQL rows kept their places. Rows have no names of columns,
            so no file records whether columns of the same type swapped. Not for a jar.
        unchanged: For a jar: operators and states whose declarations did not change: their uid,
            keys, names, kinds and types. The classes in their types are still compared.
        main: For a jar with several jobs: the main class.
        jars: Further jars with classes of the job. They show whether a field that is gone from a
            POJO is gone from its class.
        flink: For a jar: a Flink that is asked, too. This runs code of the jars: static
            initializers, constructors and ``open`` of functions, methods of values.

    Raises:
        ConfigError: The rules of a version are not known, a name matches nothing, the main class is
            not in the jar, an option does not go with the kind of ``job``, or ``flink`` does not
            run or is of another version than ``to``.
        FormatError: A snapshot or a jar is damaged.
        StateFileNotFoundError: A jar does not exist.
    """
    if not isinstance(job, Snapshot | JobDescription | Mapping | str | os.PathLike):
        raise ConfigError(
            f"The job is wrong: expected a Snapshot, a JobDescription, a job plan of Flink's REST "
            f"API or the path of a jar, got a {type(job).__name__}."
        )
    if not isinstance(job, str | os.PathLike):
        if unchanged or main is not None or flink is not None:
            raise ConfigError(
                "The options do not fit: unchanged, main and flink go with the jar of a job, got "
                "another description of it; leave them out."
            )
        described = JobDescription.from_rest_plan(job) if isinstance(job, Mapping) else job
        classes = open_job_classes(jars)
        return DescribedJobCheck(snapshot, described, to, drop, columns_kept, classes).run()
    if columns_kept:
        raise ConfigError(
            "The options do not fit: columns_kept goes with a snapshot of the job, got its jar; "
            "leave it out."
        )
    if flink is not None and to is not None and parse_flink_version(to) != flink.version:
        raise ConfigError(
            f"The version of Flink is wrong: expected {to} (to, --to), got {flink.release} in the "
            f"installation that runs (flink, --flink); name another one, or leave the version out."
        )
    to = to if flink is None else flink.release
    return JarCheck(snapshot, [job, *jars], to, drop, unchanged, main).run(flink)
