"""Tables that follow a job: what ``StatefulJob.merge_into`` brings to the latest commit.

from dstl_core.sinks import DeltaSink

A name loads its module on first use.
"""

from typing import TYPE_CHECKING

from dstl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dstl_core.job.downstream.delta_sink import DeltaSink as DeltaSink
    from dstl_core.job.downstream.iceberg_sink import IcebergSink as IcebergSink
    from dstl_core.job.downstream.parquet_sink import ParquetSink as ParquetSink
    from dstl_core.job.downstream.sink import Sink as Sink

__getattr__, __dir__ = lazy_names(__name__)
