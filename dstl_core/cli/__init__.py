"""The ``dstl`` command: look into savepoints and checkpoints without Spark and without Flink.

Exit codes: 0 fine, 1 findings or differences, 2 error (one sentence on stderr).
"""

from dstl_core.cli.app import main

__all__ = ["main"]
