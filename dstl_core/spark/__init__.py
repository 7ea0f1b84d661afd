"""Savepoints and changelogs as DataFrames, and stateful jobs, on PySpark."""

from dstl_core.model.state_size import StateSize
from dstl_core.spark.column_function import ColumnResult, KeyedColumnFunction
from dstl_core.spark.data_source import SavepointDataSource, register
from dstl_core.spark.driver import PersistedCheckpoint
from dstl_core.spark.functions import BroadcastFunction, ProcessFunction
from dstl_core.spark.job import StatefulJob
from dstl_core.spark.operators import KeyedOperator, LocalCopies, ProcessOperator
from dstl_core.spark.result import EpochResult
from dstl_core.spark.savepoint_reader import SavepointReader
from dstl_core.spark.savepoint_writer import SavepointWriter
from dstl_core.spark.transformations import OperatorTransformation

__all__ = [
    "BroadcastFunction",
    "ColumnResult",
    "EpochResult",
    "KeyedColumnFunction",
    "KeyedOperator",
    "LocalCopies",
    "OperatorTransformation",
    "PersistedCheckpoint",
    "ProcessFunction",
    "ProcessOperator",
    "SavepointDataSource",
    "SavepointReader",
    "SavepointWriter",
    "StateSize",
    "StatefulJob",
    "register",
]
