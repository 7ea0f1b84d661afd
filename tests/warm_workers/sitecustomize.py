"""Python runs this at its start: Spark's daemons import here what each of their workers needs.

A worker is a fork of its daemon, and an error of its task ends it. So tests of errors start
hundreds of workers, and each would import pandas, pyarrow and dstl again. Spark also puts its
Python code on the path as an archive, whose modules every process would compile.
"""

import sys

_DAEMON = "pyspark.daemon"

# A stream has a daemon of its own, with one worker.
if _DAEMON in sys.orig_argv and "streaming" not in sys.orig_argv[-1]:
    import gc
    import importlib
    import os

    sys.path[:] = [path for path in sys.path if not path.endswith("pyspark.zip")]
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a fork has none of the daemon's threads
    for name in (
        sys.orig_argv[-1],  # the worker's module
        "pandas",
        "pyarrow",
        "dstl_core.job.task.subtask",
        "dstl_core.spark.savepoints.data_source",
    ):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
