from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    bootstrap,
    changelog,
    columnar,
    commands,
    curves,
    day,
    edits,
    epochs,
    history,
    jobs,
    large_groups,
    launch,
    migrate,
    rows,
    runners,
    savepoint,
    scale,
    state,
    stores,
    upgrade,
    windows,
)

BENCHMARKS: dict[str, tuple[Callable[[argparse.Namespace], None], Callable[..., None]]] = {
    "bootstrap": (bootstrap.run, bootstrap.add_arguments),
    "changelog": (changelog.run, changelog.add_arguments),
    "columnar": (columnar.run, columnar.add_arguments),
    "commands": (commands.run, commands.add_arguments),
    "epochs": (epochs.run, epochs.add_arguments),
    "curves": (curves.run, curves.add_arguments),
    "day": (day.run, day.add_arguments),
    "edits": (edits.run, edits.add_arguments),
    "history": (history.run, history.add_arguments),
    "jobs": (jobs.run, jobs.add_arguments),
    "large-groups": (large_groups.run, large_groups.add_arguments),
    "launch": (launch.run, launch.add_arguments),
    "migrate": (migrate.run, migrate.add_arguments),
    "rows": (rows.run, rows.add_arguments),
    "runners": (runners.run, runners.add_arguments),
    "state": (state.run, state.add_arguments),
    "savepoint": (savepoint.run, savepoint.add_arguments),
    "scale": (scale.run, scale.add_arguments),
    "stores": (stores.run, stores.add_arguments),
    "upgrade": (upgrade.run, upgrade.add_arguments),
    "windows": (windows.run, windows.add_arguments),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="name")
    for name, (_, add_arguments) in BENCHMARKS.items():
        add_arguments(commands.add_parser(name))
    chosen = parser.parse_args()
    folder = getattr(chosen, "folder", None)
    if folder is not None and not Path(folder).is_dir():
        parser.error(f"--folder is wrong: expected a folder, got {folder}; make it first")
    for name in [chosen.name] if chosen.name else list(BENCHMARKS):
        arguments = chosen if chosen.name else parser.parse_args([name])
        BENCHMARKS[name][0](arguments)


if __name__ == "__main__":
    main()
