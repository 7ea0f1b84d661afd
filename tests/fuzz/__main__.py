"""Coverage-guided fuzzing with atheris: ``python -m tests.fuzz TARGET SECONDS [SEED]``.

Inputs that reach new code go to ``.fuzz/TARGET``. A finding ends the run with an error; its input
lies in the working directory as ``crash-*``, ``timeout-*`` or ``oom-*``. With ``keep`` in place of
SECONDS the smallest of what was found go into the corpus.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["dstl_core"]):
    from tests.fuzz.targets import CORPUS, TARGETS, check, seeds

WORK = Path(".fuzz")
KEPT = 40
"""Inputs of one target at most."""
TIMEOUT_S = 30
"""Of one input, which may take a second: instrumented code is slow, and so may the machine be."""
MEMORY_MB = 1024
"""Of the process, which takes a third of it by itself."""


def main(target: str, seconds: str, seed: str = "1") -> None:
    if target not in TARGETS:
        raise SystemExit(f"no such target; there are: {', '.join(TARGETS)}")
    findings, start, kept = WORK / target, WORK / f"{target}-seeds", CORPUS / target
    for folder in (findings, start, kept):
        folder.mkdir(parents=True, exist_ok=True)
    for number, raw in enumerate(seeds(target)):
        (start / f"{number:04}").write_bytes(raw)
    if seconds == "keep":
        for path in sorted(findings.iterdir(), key=lambda path: path.stat().st_size)[:KEPT]:
            shutil.copyfile(path, kept / path.name)
        return
    options = [f"-timeout={TIMEOUT_S}", f"-rss_limit_mb={MEMORY_MB}", f"-seed={seed}"]
    options += [f"-max_total_time={seconds}", "-print_final_stats=1"]
    folders = [str(findings), str(kept), str(start)]
    atheris.Setup([sys.argv[0], *options, *folders], lambda raw: check(target, raw))
    atheris.Fuzz()


main(*sys.argv[1:])
