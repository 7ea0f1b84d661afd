"""The code location of this repository: the flights demo. Loading it starts no Spark.

``DSTL_DEMO_FOLDER`` names another folder than ``.demo``; ``DSTL_DEMO_BASE`` another place for the
state, e.g. ``s3://bucket/demo``.
"""

import os
from pathlib import Path

import dagster as dg

from dstl_dagster import DstlSparkResource, DstlStorageResource
from examples.flights import assets as flights

ROOT = Path(__file__).resolve().parent
DEMO_FOLDER = flights.DEMO_FOLDER

STORAGE = DstlStorageResource(base_path=os.environ.get("DSTL_DEMO_BASE", str(DEMO_FOLDER)))
SPARK = DstlSparkResource(
    master="local[2]",
    app_name="dstl demo",
    spark_config={
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile=file:{ROOT}/examples/flights/log4j2.properties"
        ),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    },
)

defs = dg.Definitions.merge(
    flights.DEFS,
    dg.Definitions(resources={"storage": STORAGE, "spark": SPARK}, executor=dg.in_process_executor),
)
