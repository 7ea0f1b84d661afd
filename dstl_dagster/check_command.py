"""``dstl-checks``: runs asset checks without a server, for CI. The exit code is the worst result.

0: all passed. 1: only warnings failed. 2: an error failed. 3: a check could not be run. Stdout has
only the results.
"""

import importlib
import importlib.util
import json
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from xml.etree import ElementTree

import dagster as dg
import typer
from rich.console import Console
from rich.table import Table

from dstl_core.display import printable

PASSED, WARNED, FAILED, BROKEN = 0, 1, 2, 3
_JOB = "dstl_checks"
_WIDE = 10_000
"""The width for a file or a pipe: each check is one line."""
_WORDS = {PASSED: "passed", WARNED: "WARNING", FAILED: "FAILED", BROKEN: "NOT RUN"}
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True)
class CheckResult:
    """The result of one check. ``details`` are its metadata, or the reason why it was not run."""

    asset: str
    check: str
    code: int
    details: dict[str, Any]

    @property
    def word(self) -> str:
        return _WORDS[self.code]

    @property
    def shown(self) -> str:
        return printable(", ".join(f"{name}={value}" for name, value in self.details.items()))

    def to_json(self) -> dict[str, Any]:
        return {
            "asset": self.asset,
            "check": self.check,
            "result": self.word.lower(),
            "details": self.details,
        }


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
    as_json: Annotated[bool, typer.Option("--json", help="Results as JSON.")] = False,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="Also write results as a JUnit XML file.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Dagster's log on stderr.")] = False,
) -> None:
    """Runs asset checks in this process, on the instance of DAGSTER_HOME or an ephemeral one."""
    width = None if sys.stdout.isatty() else _WIDE
    console = Console(highlight=False, soft_wrap=True, width=width)
    try:
        with redirect_stdout(sys.stderr):
            definitions = load_definitions(module)
            keys = select_checks(definitions, asset or [], check or [])
    except Exception as error:  # any error of the user's module ends here, in one line
        typer.echo(printable(f"dstl-checks: {type(error).__name__}: {error}"), err=True)
        raise typer.Exit(BROKEN) from error
    if list_only:
        for key in keys:
            console.print(f"{key.asset_key.to_user_string()} {key.name}")
        raise typer.Exit(PASSED)
    with redirect_stdout(sys.stderr):
        results = run_checks(definitions, keys, verbose=verbose)
    if junit is not None:
        junit.write_text(junit_xml(results))
    if as_json:
        typer.echo(json.dumps([each.to_json() for each in results], indent=2))
    else:
        console.print(table_of(results))
    raise typer.Exit(max(each.code for each in results))


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
    definitions_found = {
        name: value() if callable(value) else value
        for name, value in vars(loaded).items()
        if isinstance(value, dg.Definitions) or _is_lazy_definitions(value)
    }
    if len(definitions_found) != 1:
        names = ", ".join(definitions_found) or "none"
        raise ImportError(f"expected one Definitions object in {module}, found {names}")
    definitions: dg.Definitions = next(iter(definitions_found.values()))
    return definitions


def _is_lazy_definitions(value: Any) -> bool:
    return type(value).__name__ == "LazyDefinitions"


def select_checks(
    definitions: dg.Definitions, assets: list[str], names: list[str]
) -> list[dg.AssetCheckKey]:
    """The checks to run, sorted.

    Raises:
        LookupError: No check fits.
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
    definitions: dg.Definitions, keys: list[dg.AssetCheckKey], *, verbose: bool = False
) -> list[CheckResult]:
    """Runs checks in this process.

    Args:
        definitions: The definitions with the checks.
        keys: The checks.
        verbose: Whether to show Dagster's log.
    """
    job = dg.define_asset_job(
        _JOB, selection=dg.AssetSelection.checks(*keys), executor_def=dg.in_process_executor
    )
    merged = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job]))
    resolved = merged.resolve_job_def(_JOB)
    quiet = not verbose and "console" in resolved.loggers
    with _instance() as instance:
        done = resolved.execute_in_process(
            instance=instance, raise_on_error=False, run_config=_QUIET if quiet else None
        )
    evaluations = {
        dg.AssetCheckKey(evaluation.asset_key, evaluation.check_name): evaluation
        for evaluation in done.get_asset_check_evaluations()
    }
    failures = {
        str(event.step_key): str(event.event_specific_data.error_display_string)  # type: ignore[union-attr]  # of a step failure
        for event in done.all_events
        if event.is_step_failure
    }
    graph = definitions.resolve_asset_graph()
    results = []
    for key in keys:
        step = graph.assets_def_for_key(key).node_def.name
        results.append(_result(key, evaluations.get(key), failures.get(step)))
    return results


def _result(key: dg.AssetCheckKey, evaluation: Any, failure: str | None) -> CheckResult:
    details: dict[str, Any] = {}
    if evaluation is None:
        code = BROKEN
        details["reason"] = _first_line(failure or "Dagster did not start it")
    else:
        details = {name: _plain(value.value) for name, value in evaluation.metadata.items()}
        is_warning = evaluation.severity is dg.AssetCheckSeverity.WARN
        code = PASSED if evaluation.passed else WARNED if is_warning else FAILED
    return CheckResult(key.asset_key.to_user_string(), key.name, code, details)


def _first_line(failure: str) -> str:
    """The innermost cause of a failure, without its stack."""
    lines = [line.strip() for line in failure.splitlines() if line.strip()]
    return next((line for line in lines if not line.startswith("dagster._core")), lines[0])


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _instance() -> dg.DagsterInstance:
    import os

    if os.environ.get("DAGSTER_HOME"):
        return dg.DagsterInstance.get()
    return dg.DagsterInstance.ephemeral()


def table_of(results: list[CheckResult]) -> Table:
    """A line per check."""
    table = Table("asset", "check", "result", "details", box=None)
    for result in results:
        table.add_row(result.asset, result.check, result.word, result.shown)
    return table


def junit_xml(results: list[CheckResult]) -> str:
    """Makes a test case per check. Errors and warnings fail it; a check that was not run is an
    error.
    """
    suite = ElementTree.Element(
        "testsuite",
        name="dstl-checks",
        tests=str(len(results)),
        failures=str(sum(each.code in (WARNED, FAILED) for each in results)),
        errors=str(sum(each.code == BROKEN for each in results)),
    )
    for result in results:
        case = ElementTree.SubElement(suite, "testcase", classname=result.asset, name=result.check)
        if result.code != PASSED:
            kind = "error" if result.code == BROKEN else "failure"
            ElementTree.SubElement(case, kind, message=result.shown, type=result.word)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def main() -> None:
    """Entry point of the command."""
    app()


if __name__ == "__main__":
    main()
