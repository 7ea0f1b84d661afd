"""The definitions of the YAML beside this file."""

from pathlib import Path

import dagster as dg

from dstl_dagster import DstlSparkResource, DstlStorageResource


@dg.definitions
def defs() -> dg.Definitions:
    loaded = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    resources = {
        "storage": DstlStorageResource(base_path=dg.EnvVar("DSTL_STATE")),
        "spark": DstlSparkResource(master="local[2]"),
    }
    return dg.Definitions.merge(loaded, dg.Definitions(resources=resources))
