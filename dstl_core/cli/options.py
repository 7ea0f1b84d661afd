"""Arguments that the commands share."""

from __future__ import annotations

import atexit
import os
import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from dstl_core.errors import ConfigError, NoSuchStateError, StateFileNotFoundError
from dstl_core.extras import require

if TYPE_CHECKING:
    from dstl_core.codec.serializers import SerializerRegistry
    from dstl_core.savepoint.access.units import Jobs
    from dstl_core.savepoint.edit.kept_state import Files
    from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
    from dstl_core.savepoint.write.folder import KeyedForm
    from dstl_core.storage.location import Location

# The modules of the commands import what they need when they run: the help starts without it.

PathArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="Folder of a savepoint or checkpoint, or of a job, for its newest one."
    ),
]
OperatorOption = Annotated[
    list[str] | None,
    typer.Option("--op", metavar="OP", help="Only this operator: uid, hash or name."),
]
StateOption = Annotated[
    str | None, typer.Option("--state", metavar="STATE", help="Only this state.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, with exact values.")]
RootOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-root",
        metavar="DIR",
        help="A further folder from which files of the snapshot may be read.",
    ),
]
RelocateOption = Annotated[
    list[str] | None,
    typer.Option("--relocate", metavar="OLD=NEW", help="Look for files of OLD in NEW."),
]
ChangelogBaseOption = Annotated[
    str | None,
    typer.Option(
        "--changelog-base", metavar="DIR", help="Folder of the changelog (dstl.dfs.base-path)."
    ),
]
KeyTypeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--key-type",
        metavar="OP=TYPE",
        help="Type of an operator's key, for a changelog that does not record it: string, long, ..",
    ),
]
JarOption = Annotated[
    list[str] | None,
    typer.Option(
        "--jar",
        metavar="JAR",
        help="A jar of the job, for Kryo values and POJOs of its classes; repeat it for more jars.",
    ),
]
StateTypeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="STATE=TYPE",
        help="A type that the files do not have: a message of --proto, or what a job of PyFlink "
        "declares, such as list[LONG] or map[STRING, LONG].",
    ),
]
ProtoOption = Annotated[
    list[str] | None,
    typer.Option(
        "--proto",
        metavar="FILE",
        help="A descriptor set of protoc, for messages of Protocol Buffers; repeat it for more.",
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        help="Number of processes that read keyed state; by default all cores for large state.",
    ),
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Show what it does, and how much it reads, writes and holds; write nothing.",
    ),
]
SparkOption = Annotated[
    str | None,
    typer.Option(
        "--spark",
        metavar="MASTER",
        help="Read keyed state on Spark, e.g. spark://host:7077, instead of processes (--jobs).",
    ),
]
WorkOption = Annotated[
    str | None,
    typer.Option(
        "--work",
        metavar="DIR",
        help="Keep in this folder what is done, so that the same command goes on after a kill.",
    ),
]
KeepCompressionOption = Annotated[
    bool,
    typer.Option(
        "--keep-compression",
        help="Compress key groups that are written anew only if those of the input are; by "
        "default they are compressed.",
    ),
]
OutOption = Annotated[
    str | None, typer.Option("--out", metavar="OUT", help="Folder of the rewritten copy.")
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace the snapshot in OUT.")]

ShareOption = Annotated[
    bool,
    typer.Option(
        "--share", help="Name the files of state that does not change where they are: no copy."
    ),
]
CopyOption = Annotated[
    bool, typer.Option("--copy", help="Copy the files of state that does not change as they are.")
]
CanonicalOption = Annotated[
    bool,
    typer.Option("--canonical", help="Write keyed state in canonical form, for any state backend."),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORM",
        help="Form of keyed state that is written: canonical, for any state backend, or native, "
        "for RocksDB, which restores its own files in seconds.",
    ),
]

SNAPSHOTS_NAMED = 3
"""Snapshots that the message about a folder without one names."""

_REGISTRY: ContextVar[SerializerRegistry | None] = ContextVar("serializers", default=None)
_DURATION = re.compile(r"(\d{1,18})\s*(ms|s|m|h|d)")
_MILLIS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def use_serializers(named: str | None) -> None:
    """Makes all that the command reads use the registry that ``--serializers`` names.

    Raises:
        ConfigError: There is no such registry.
    """
    if named is None:
        _REGISTRY.set(None)
        return
    from dstl_core.state.tables.named_objects import registry_from

    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # behind all that is installed
    _REGISTRY.set(registry_from(named, "the command line"))


def serializers_in_use() -> SerializerRegistry:
    """The registry that ``--serializers`` names; otherwise that of the built-in types."""
    from dstl_core.codec.serializers import BUILT_IN

    return _REGISTRY.get() or BUILT_IN


def duration_ms(option: str, text: str) -> int:
    """The value of an option that is a duration.

    Raises:
        ConfigError: It has another form.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{option} is wrong: expected e.g. 90m, 24h, 7d, got {text!r}.")
    return int(match[1]) * _MILLIS[match[2]]


def moment_ms(option: str, text: str) -> int:
    """The value of an option that is a date and time, in milliseconds. It is UTC without an offset.

    Raises:
        ConfigError: It has another form.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ConfigError(
            f"{option} is wrong: expected e.g. 2026-11-22T18:30Z, got {text!r}."
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def required_out(out: str | None, options: str) -> str:
    """The value of ``--out``, which some options need.

    Raises:
        ConfigError: It is missing.
    """
    if out is None:
        raise ConfigError(f"{options} --out, the folder of the copy; the snapshot stays.")
    return out


def files_of(*, share: bool, copy: bool, canonical: bool) -> Files | None:
    """What becomes of state that does not change; None if no option says it.

    Raises:
        ConfigError: Two options say it.
    """
    words: dict[Files, bool] = {"share": share, "copy": copy, "canonical": canonical}
    wanted = [word for word, is_given in words.items() if is_given]
    if len(wanted) > 1:
        asked = " and ".join(f"--{word}" for word in wanted)
        raise ConfigError(f"{asked} exclude each other; give one.")
    return wanted[0] if wanted else None


def form_of(form: str | None) -> KeyedForm | None:
    """The form that ``--format`` names.

    Raises:
        ConfigError: It is another word.
    """
    forms: dict[str | None, KeyedForm | None] = {
        None: None,
        "canonical": "canonical",
        "native": "native",
    }
    if form in forms:
        return forms[form]
    raise ConfigError(f"--format is wrong: expected canonical or native, got {form!r}.")


def runner_of(jobs: int | None, spark: str | None) -> Jobs:
    """What runs units: a number of processes, or a session of Spark, which ends with the process.

    Raises:
        ConfigError: Both are given.
        MissingPackageError: Spark is not installed.
    """
    if spark is None:
        return jobs
    if jobs is not None:
        raise ConfigError("--jobs and --spark exclude each other; give one.")
    require("pyspark", "--spark")
    from dstl_core.spark.session_start import units_on

    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(units_on(spark))


def selected(snapshot: Snapshot, names: list[str] | None) -> list[OperatorSnapshot]:
    """The operators that ``--op`` names, each once; all without it.

    Raises:
        NoSuchOperatorError: A name fits no operator, or several.
    """
    if not names:
        return snapshot.operators
    return list({each.operator_id: each for each in map(snapshot.__getitem__, names)}.values())


def require_state(snapshot: Snapshot, operators: Sequence[OperatorSnapshot], state: str) -> None:
    """Checks that one of some operators has a state.

    Raises:
        NoSuchStateError: None has it. The message lists the states that they have.
    """
    if any(operator.has_state(state) for operator in operators):
        return
    every = (operator.states + operator.operator_states for operator in operators)
    names = sorted({info.name for infos in every for info in infos})
    where = "operator of this snapshot; it has"
    if len(operators) < len(snapshot.operators):
        where = f"operator of {', '.join(repr(each.label) for each in operators)}; they have"
    raise NoSuchStateError(
        f"State {state!r} is in no {where}: {', '.join(map(repr, names)) or 'none'}.",
        location=str(snapshot.folder),
    )


def load(
    path: str,
    allow_root: list[str] | None,
    relocate: list[str] | None,
    changelog_base: str | None,
    key_type: list[str] | None,
    jar: list[str] | None = None,
    state_type: list[str] | None = None,
    proto: list[str] | None = None,
) -> Snapshot:
    """The snapshot that the arguments name: for the folder of a job or a pipeline, the newest
    checkpoint.

    Raises:
        StateFileNotFoundError: There is none. The message names the snapshots below the path.
    """
    from dstl_core.codec.declared_type import parse_type
    from dstl_core.savepoint.read.snapshot import Snapshot
    from dstl_core.savepoint.read.snapshot_names import cut_pairs, is_last, relocations

    types = {
        operator: parse_type(text)
        for operator, text in cut_pairs("--key-type", key_type, "OP=TYPE", is_last).items()
    }

    def snapshot_at(place: str) -> Snapshot:
        return Snapshot.load(
            place,
            allow_roots=allow_root or (),
            relocate=relocations("--relocate", relocate),
            serializers=serializers_in_use(),
            changelog_base=changelog_base,
            key_types=types,
            jars=jar or (),
            state_types=cut_pairs("--type", state_type, "STATE=TYPE", is_last),
            protos=proto or (),
        )

    try:
        return snapshot_at(path)
    except StateFileNotFoundError as error:
        newest = newest_at(path)
        if newest is not None:
            return snapshot_at(str(newest))
        raise StateFileNotFoundError(
            f"{error.message}{_others_at(path)}", **error.context
        ) from None


def newest_at(path: str) -> Location | None:
    """The newest checkpoint of a job or a pipeline; None if the path is neither."""
    from dstl_core.savepoint.folders.job_folder import JobFolder

    job = JobFolder.at(path)
    return None if job is None else job.newest()


def _others_at(path: str) -> str:
    """Names the snapshots below a folder that is none itself."""
    from dstl_core.savepoint.folders.listing import snapshots_below
    from dstl_core.storage.location import Location

    base = Location.parse(path)
    first = list(islice(snapshots_below(base), SNAPSHOTS_NAMED + 1))
    if not first or first[0].folder == base:  # then another file is missing, such as a jar
        return ""
    names = ", ".join(each.folder.relative_to(base) for each in first[:SNAPSHOTS_NAMED])
    more = ", .." if len(first) > SNAPSHOTS_NAMED else ""
    return f" Snapshots below it: {names}{more}; `dstl ls` lists them all."
