"""The ``dstl`` command: look into savepoints and checkpoints without Spark and without Flink.

Exit codes: 0 fine, 1 findings or differences, 2 error (one sentence on stderr).
"""

from dstl_core.cli.app import app, main
from dstl_core.cli.output import printable, to_json

__all__ = ["app", "main", "printable", "to_json"]
