"""Savepoints and changelogs as DataFrames, and stateful jobs, on PySpark."""

from dstl_core.model.state_size import StateSize
from dstl_core.spark.data_source import SavepointDataSource, register
from dstl_core.spark.job import EpochResult, StatefulJob
from dstl_core.spark.operators import KeyedOperator
from dstl_core.spark.savepoint_writer import OperatorTransformation, SavepointWriter

__all__ = [
    "EpochResult",
    "KeyedOperator",
    "OperatorTransformation",
    "SavepointDataSource",
    "SavepointWriter",
    "StateSize",
    "StatefulJob",
    "register",
]
