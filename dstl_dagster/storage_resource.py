"""Where pipelines, savepoints and events lie."""

import dagster as dg
from pydantic import Field

from dstl_core.storage.location import Location


class DstlStorageResource(dg.ConfigurableResource):
    """A folder or URL that every process of the pipeline sees.

    Below it: ``jobs/<job id>`` (state of pipelines), ``savepoints/<name>``.
    """

    base_path: str = Field(description="Folder or URL, e.g. /data/dstl.")

    @property
    def jobs(self) -> str:
        """Base path of stateful jobs."""
        return str(Location.parse(self.base_path).child("jobs"))

    def savepoint(self, name: str) -> str:
        """Folder of a savepoint by name."""
        return str(Location.parse(self.base_path).child("savepoints", name))
