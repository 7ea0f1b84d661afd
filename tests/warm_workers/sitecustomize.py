"""Python runs this at its start: Spark's daemons of planners import what their workers need.

Spark asks Python to plan each read of a Python source, by workers of four modules. Their daemons
are always Spark's own, whatever ``spark.python.daemon.module`` says.
"""

import sys

if "pyspark.daemon" in sys.orig_argv:
    from dstl_core.spark.worker_daemon import prepare

    prepare(sys.orig_argv[-1])
