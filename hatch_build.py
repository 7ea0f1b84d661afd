"""Compiled kernels for the wheel of dstl-core.

They are made if ``DSTL_COMPILE_KERNELS_WITH`` names a Python that has what dstl-core requires. Its
version and that of its numba are those that the kernels are for. Else the wheel fits any Python,
and compiles its kernels where it is used.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILED = "dstl_core/codec/columnar/kernels/compiled"


class KernelsHook(BuildHookInterface):
    """Adds the folder of kernels, and says what the wheel fits."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        python = os.environ.get("DSTL_COMPILE_KERNELS_WITH")
        if python is None or version == "editable":
            return
        folder = Path(self.root, "build", "kernels")
        script = Path(self.root, "scripts", "compile_kernels.py")
        # -E: the variables of an isolated build hide the packages of this Python.
        ran = subprocess.run([python, "-E", script, folder], check=True, stdout=subprocess.PIPE)
        made = json.loads(ran.stdout)
        build_data["force_include"][str(folder / made["folder"])] = f"{COMPILED}/{made['folder']}"
        build_data["pure_python"] = False
        build_data["tag"] = compressed(made["tags"])


def compressed(tags: list[str]) -> str:
    """Tags as one, in which each part has its choices."""
    parts = zip(*(tag.split("-") for tag in tags), strict=True)
    return "-".join(".".join(sorted(set(choices))) for choices in parts)
