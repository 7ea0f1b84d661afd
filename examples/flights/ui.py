"""``make ui``: the Dagster UI on the demo's populated instance, on 127.0.0.1."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Replaces this process by ``dg dev``; DSTL_UI_PORT names another port."""
    folder = Path(os.environ.get("DSTL_DEMO_FOLDER", ROOT / ".demo"))
    home = folder / "dagster_home"
    if not home.is_dir():
        sys.exit("dstl: the demo has not run yet; run make demo first.")
    port = os.environ.get("DSTL_UI_PORT", "3000")
    os.environ["DAGSTER_HOME"] = str(home)
    os.environ["DAGSTER_DISABLE_TELEMETRY"] = "yes"
    print(f"Dagster UI: http://127.0.0.1:{port}  (Ctrl-C ends it)")
    os.execvp("dg", ["dg", "dev", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", port])


if __name__ == "__main__":
    main()
