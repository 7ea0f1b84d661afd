"""Runs the blocks of a page in order, as a reader would: one namespace, one shell, one folder.

* ``python`` runs in this process. With a title it is a file, too.
* ``bash`` runs in a real shell, whose variables and folder the next block finds again.
* ``console`` has commands after ``$`` and what they print; ``...`` stands for further lines.
* ``pycon`` is compared as a doctest.
* ``yaml`` is a file of a Dagster component. Its attributes are checked; the page itself loads it.
  With ``ops`` it is the configuration of a run, which Dagster checks against the page's ``defs``.
* ``text title="Output"`` is compared with what the block before it printed.
* ``toml`` and ``json`` with a title are files.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from dstl_core.savepoint import Migration
from tests.docs.fences import ROOT, SETUP, SHOWN, Block, PageError
from tests.golden_files import GOLDEN, snapshot

COMMAND_TIMEOUT_S = 300
SHOWN_FOLDER = "/data"
"""How pages name the folder that they run in."""


class PageRun:
    """Runs blocks. Owned by one test, which has made ``folder`` the current one and goes back."""

    def __init__(self, folder: Path, **names: Any) -> None:
        self._folder = folder
        self._names = {"__name__": "__main__", "golden": self._golden, "folder": folder, **names}
        self._printed: str | None = None
        self._shell_folder = folder
        self._environment = os.environ | {
            "COLUMNS": "80",
            "DAGSTER_DISABLE_TELEMETRY": "yes",
            "DAGSTER_DG_UPDATE_CHECK_ENABLED": "0",  # no look into a package index
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
        }
        self._path = os.pathsep.join(
            [str(Path(__file__).parent / "bin"), str(Path(sys.executable).parent)]
        )
        self._runners: dict[str, Callable[[Block], None]] = {
            SETUP: self._python,
            "python": self._python,
            "pycon": self._pycon,
            "bash": self._bash,
            "console": self._console,
            "yaml": self._yaml,
            "toml": self._file,
            "json": self._file,
            "text": self._text,
        }

    def run(self, blocks: Sequence[Block]) -> int:
        """Runs all of them, and gives how many a reader could have run.

        Raises:
            PageError: A block does not do what the page says.
        """
        for block in blocks:
            try:
                self._runners[block.language](block)
            except PageError:
                raise
            except BaseException as error:
                error.add_note(f"in {block.place}")
                raise
        return sum(block.language not in SHOWN | {SETUP} for block in blocks)

    def _golden(self, name: str, to: str, *, whole: bool = False) -> None:
        """Copies a snapshot that real Flink wrote, or the whole folder of its job."""
        shutil.copytree(GOLDEN / name if whole else snapshot(name), self._folder / to)

    def _file(self, block: Block) -> None:
        if block.title is not None:
            path = self._shell_folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)

    def _python(self, block: Block) -> None:
        self._file(block)
        if block.title is not None:
            self._names["__file__"] = str(self._shell_folder / block.title)
        code = compile("\n" * block.line + block.text, block.page, "exec", dont_inherit=True)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, self._names)  # our own pages
        self._printed = printed.getvalue()

    def _pycon(self, block: Block) -> None:
        example = doctest.DocTestParser().get_doctest(
            block.text, self._names, block.page, block.page, block.line
        )
        report = io.StringIO()
        if doctest.DocTestRunner().run(example, out=report.write, clear_globs=False).failed:
            raise PageError(f"{block.place}: {report.getvalue()}")

    def _shell(self, block: Block, command: str) -> str:
        """What a command prints. Variables and the folder stay for the next one."""
        left = self._folder / ".shell"
        environment = self._environment | {
            "PATH": os.pathsep.join([self._path, self._environment["PATH"]])
        }
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{command}\n{{ pwd; env -0; }} > {left}"],
            cwd=self._shell_folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        if not left.exists():
            raise PageError(f"{block.place}: Exit code {ran.returncode}:\n{command}\n{ran.stdout}")
        folder, _, variables = left.read_text().partition("\n")
        left.unlink()
        self._shell_folder = Path(folder)
        os.chdir(folder)
        pairs = (pair.partition("=") for pair in variables.split("\0") if pair)
        self._environment |= {name: value for name, _, value in pairs if name != "PATH"}
        return ran.stdout

    def _bash(self, block: Block) -> None:
        self._printed = self._shell(block, block.text)

    def _console(self, block: Block) -> None:
        command: str | None = None
        expected: list[str] = []
        for line in [*block.text.splitlines(), "$ "]:
            if not line.startswith("$ "):
                expected.append(line)
                continue
            if command is not None:
                # An error is part of what a page shows. One that it leaves out is a mistake.
                shown = [line for line in expected if line != "..."]
                fine = "true" if shown else "[ $? -eq 1 ]"
                self._compare(block, expected, self._shell(block, f"{command} || {fine}"))
            command, expected = line.removeprefix("$ "), []

    def _text(self, block: Block) -> None:
        if block.title == "Output":
            if self._printed is None:
                raise PageError(f"{block.place}: No block before it has printed anything.")
            self._compare(block, block.text.splitlines(), self._printed)

    def _compare(self, block: Block, expected: list[str], printed: str) -> None:
        lines = [
            line.rstrip() for line in printed.replace(str(self._folder), SHOWN_FOLDER).splitlines()
        ]
        if expected and expected[-1] == "...":
            expected = expected[:-1]
            lines = lines[: len(expected)]
        if lines != expected:
            raise PageError(
                f"{block.place}: Expected:\n"
                + "\n".join(expected)
                + "\nGot:\n"
                + printed.replace(str(self._folder), SHOWN_FOLDER)
            )

    def _yaml(self, block: Block) -> None:
        if block.title is None:
            raise PageError(f"{block.place}: A block of YAML needs the title of its file.")
        self._file(block)
        document = yaml.safe_load(block.text)
        if "ops" in document:
            every = self._names["defs"].resolve_implicit_global_asset_job_def()
            dg.validate_run_config(every, document)
            return
        if "migration" in document:
            Migration.of(document)
            return
        module, _, name = str(document.get("type")).rpartition(".")
        if not module.startswith("dstl_dagster"):
            raise PageError(f"{block.place}: Expected a component of dstl_dagster as the type.")
        component = getattr(importlib.import_module(module), name)
        component.get_model_cls().model_validate(document["attributes"])
