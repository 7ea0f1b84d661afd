"""``dstl-checks``: runs asset checks without a server, for CI. The exit code is the worst result.

0: all passed. 1: only warnings failed. 2: an error failed. 3: a check could not be run.
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
import typer
from rich.console import Console
from rich.table import Table

PASSED, WARNED, FAILED, BROKEN = 0, 1, 2, 3
_JOB = "dstl_checks"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def checks(
    module: Annotated[
        str, typer.Option("-m", "--module", help="Module with definitions, or a .py file.")
    ] = "definitions",
    asset: Annotated[
        list[str] | None, typer.Option("--asset", help="Only checks of this asset (a/b).")
    ] = None,
    check: Annotated[
        list[str] | None, typer.Option("--check", help="Only checks of this name.")
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Say what would be run.")] = False,
) -> None:
    """Runs asset checks in this process, on the instance of DAGSTER_HOME or an ephemeral one."""
    console = Console(highlight=False, soft_wrap=True)
    try:
        definitions = load_definitions(module)
        keys = select_checks(definitions, asset or [], check or [])
    except Exception as error:  # any error of the user's module ends here, in one line
        typer.echo(f"dstl-checks: {type(error).__name__}: {error}", err=True)
        raise typer.Exit(BROKEN) from error
    if list_only:
        for key in keys:
            console.print(f"{key.asset_key.to_user_string()} {key.name}")
        raise typer.Exit(PASSED)
    raise typer.Exit(report(console, keys, run_checks(definitions, keys)))


def load_definitions(module: str) -> dg.Definitions:
    """The one ``Definitions`` object of a module."""
    sys.path.insert(0, str(Path.cwd()))
    if module.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(module).stem, module)
        if spec is None or spec.loader is None:
            raise ImportError(f"{module} is no Python file")
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = loaded
        spec.loader.exec_module(loaded)
    else:
        loaded = importlib.import_module(module)
    found = {
        name: value() if callable(value) else value
        for name, value in vars(loaded).items()
        if isinstance(value, dg.Definitions) or _is_lazy_definitions(value)
    }
    if len(found) != 1:
        names = ", ".join(found) or "none"
        raise ImportError(f"expected one Definitions object in {module}, found {names}")
    definitions: dg.Definitions = next(iter(found.values()))
    return definitions


def _is_lazy_definitions(value: Any) -> bool:
    return type(value).__name__ == "LazyDefinitions"


def select_checks(
    definitions: dg.Definitions, assets: list[str], names: list[str]
) -> list[dg.AssetCheckKey]:
    """The checks to run, sorted.

    Raises:
        LookupError: Nothing fits.
    """
    graph = definitions.resolve_asset_graph()
    wanted = [
        key
        for key in graph.asset_check_keys
        if (not assets or key.asset_key.to_user_string() in assets)
        and (not names or key.name in names)
    ]
    if not wanted:
        known = ", ".join(
            sorted(f"{key.asset_key.to_user_string()}:{key.name}" for key in graph.asset_check_keys)
        )
        raise LookupError(f"no check fits; the definitions have: {known or 'none'}")
    return sorted(wanted, key=lambda key: (key.asset_key.path, key.name))


def run_checks(
    definitions: dg.Definitions, keys: list[dg.AssetCheckKey]
) -> dict[dg.AssetCheckKey, Any]:
    """Evaluations by check; one that could not be run is missing."""
    job = dg.define_asset_job(
        _JOB, selection=dg.AssetSelection.checks(*keys), executor_def=dg.in_process_executor
    )
    merged = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job]))
    with _instance() as instance:
        result = merged.resolve_job_def(_JOB).execute_in_process(
            instance=instance, raise_on_error=False
        )
        found = result.get_asset_check_evaluations()
    return {dg.AssetCheckKey(each.asset_key, each.check_name): each for each in found}


def _instance() -> dg.DagsterInstance:
    import os

    if os.environ.get("DAGSTER_HOME"):
        return dg.DagsterInstance.get()
    return dg.DagsterInstance.ephemeral()


def report(
    console: Console, keys: list[dg.AssetCheckKey], found: dict[dg.AssetCheckKey, Any]
) -> int:
    """Prints a line per check; returns the exit code."""
    table = Table("asset", "check", "result", "facts", box=None)
    worst = PASSED
    for key in keys:
        evaluation = found.get(key)
        code = _code(evaluation)
        worst = max(worst, code)
        word = {PASSED: "passed", WARNED: "WARNING", FAILED: "FAILED", BROKEN: "NOT RUN"}[code]
        metadata = evaluation.metadata if evaluation is not None else {}
        facts = ", ".join(f"{name}={value.value}" for name, value in metadata.items())
        table.add_row(key.asset_key.to_user_string(), key.name, word, facts)
    console.print(table)
    return worst


def _code(evaluation: Any) -> int:
    if evaluation is None:
        return BROKEN
    if evaluation.passed:
        return PASSED
    return WARNED if evaluation.severity is dg.AssetCheckSeverity.WARN else FAILED


def main() -> None:
    """Entry point of the command."""
    app()


if __name__ == "__main__":
    main()
