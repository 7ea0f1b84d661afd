"""The page of ``dstl report`` about the latest checkpoint of a pipeline, as an asset."""

import dagster as dg

from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.report.snapshot_report import report_snapshot
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from dstl_dagster import metadata as show
from dstl_dagster.pipelines.failures import no_retry_of_permanent_errors
from dstl_dagster.pipelines.pipeline import StatefulPipeline
from dstl_dagster.resources.storage_resource import DstlStorageResource


def build_report_asset(pipeline: StatefulPipeline) -> dg.AssetsDefinition:
    """Reports on the latest checkpoint, and writes the page to ``reports`` in the storage.

    It reads all state, and needs no Spark. Keys are in it only if the pipeline shows them.
    """
    spec = pipeline.spec("report").replace_attributes(deps=[pipeline.key("checkpoint")])

    @dg.multi_asset(name=pipeline.python_name("report"), specs=[spec])
    def report(
        context: dg.AssetExecutionContext, storage: DstlStorageResource
    ) -> dg.MaterializeResult[None]:
        store = pipeline.store(storage)
        context.instance.add_run_tags(context.run.run_id, pipeline.run_tags)
        with no_retry_of_permanent_errors():
            latest = store.require_latest()
            snapshot = Snapshot.load(store.path_of(latest), serializers=pipeline.registry)
            made = report_snapshot(snapshot, show_keys=pipeline.show_keys)
            name = f"{pipeline.name}-{latest.checkpoint_id}.html"
            page = Location.parse(storage.base_path).child("reports", name)
            open_file_io(page).replace(page, made.page.encode(errors="backslashreplace"))
        return dg.MaterializeResult(
            metadata={
                **show.report_metadata(made, page.path if page.is_local else str(page)),
                "dstl/checkpoint": dg.MetadataValue.asset(
                    pipeline.as_run(context).key("checkpoint")
                ),
                "dstl/checkpoint_id": latest.checkpoint_id,
            },
            data_version=dg.DataVersion(latest.data_version),
        )

    return report
