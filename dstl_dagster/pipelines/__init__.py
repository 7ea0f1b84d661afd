"""Parts of a pipeline for graphs and configurations of your own.

A name loads its module on first use.
"""

from typing import TYPE_CHECKING

from dstl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dstl_core.checkpoint.store.pipeline_store import PipelineStore as PipelineStore
    from dstl_dagster.pipelines.epoch_runs import (
        EpochConfig as EpochConfig,
        InputConfig as InputConfig,
    )
    from dstl_dagster.pipelines.erase_op import (
        build_erase_op as build_erase_op,
        build_erased_check as build_erased_check,
    )
    from dstl_dagster.pipelines.protocol_ops import (
        build_confirm_op as build_confirm_op,
        build_persist_op as build_persist_op,
        build_protocol_job as build_protocol_job,
    )
    from dstl_dagster.pipelines.verb_ops import (
        build_bootstrap_op as build_bootstrap_op,
        build_materialize_op as build_materialize_op,
        build_reset_op as build_reset_op,
        build_rewrite_op as build_rewrite_op,
        build_savepoint_op as build_savepoint_op,
    )

__getattr__, __dir__ = lazy_names(__name__)
