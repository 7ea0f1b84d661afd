"""Savepoints and changelogs as DataFrames, and stateful jobs, on PySpark."""

from dstl_core.model.state_size import StateSize
from dstl_core.spark.data_source import SavepointDataSource, register
from dstl_core.spark.job import EpochResult, StatefulJob
from dstl_core.spark.operators import KeyedOperator
from dstl_core.spark.savepoint_reader import SavepointReader
from dstl_core.spark.savepoint_writer import SavepointWriter
from dstl_core.spark.transformations import OperatorTransformation

__all__ = [
    "EpochResult",
    "KeyedOperator",
    "OperatorTransformation",
    "SavepointDataSource",
    "SavepointReader",
    "SavepointWriter",
    "StateSize",
    "StatefulJob",
    "register",
]
