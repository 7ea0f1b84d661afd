"""Which process of ``make test`` runs which tests, and in which order.

A test with a Spark session waits for its JVM half of the time, and a session takes long to start.
So two processes take the tests with sessions, and the others the tests that only compute, while
there are any.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

PAGES = "tests/docs/"
WITH_SESSIONS = (PAGES, "tests/integration/")
SESSION_PROCESSES = ("gw0", "gw1")

GUARDED = ("property/test_columnar_", "columnar/test_kryo_converter.py")
"""Files over guarded memory, whose kernels take half a minute: one process compiles them."""

LONGEST = (
    "[docs/start/tutorial.md]",
    "[README.md]",
    "[docs/how-to/dagster-yaml.md]",
    "[docs/how-to/bootstrap.md]",
    "[docs/how-to/ci.md]",
    "[docs/how-to/report.md]",
    "dagster/test_s3_pipeline.py",
    "dagster/test_s3_cluster.py",
    "dagster/test_demo.py",
    "dagster/test_components.py",
    "dagster/test_loading.py",
    "spark/test_job_kills.py",
    "spark/test_engines.py",
    "spark/test_job_odd_inputs.py",
    "spark/test_connect.py",
    "spark/test_full_disks.py",
    "spark/test_task_failures.py",
    "spark/test_secrets.py",
    "spark/test_odd_inputs.py",
    "install/test_core_install.py",
    *GUARDED,
    "local/test_local_kills.py",
    "local/test_job_state_files.py",
    "property/test_file_damage.py",
    "property/test_damaged_copies.py",
    "savepoint/test_diff.py",
)
"""Pages and files that take long, the longest first."""


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Folders as they came, and in each of them the long files first.

    A process that took a long one at the end would leave the others idle. Folders stay together
    since Dagster's tests and Spark's each start a session of their own.
    """
    folders: dict[str, int] = {}

    def place(item: pytest.Item) -> tuple[int, int]:
        folder = str(item.path.parent) if item.nodeid.startswith(WITH_SESSIONS) else ""
        name = (at for at, name in enumerate(LONGEST) if name in item.nodeid)
        return folders.setdefault(folder, len(folders)), next(name, len(LONGEST))

    return sorted(items, key=place)


class SessionsApart(LoadFileScheduling):
    """Gives out files and pages in the order of the items; those over guarded memory are one."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(PAGES):
            return nodeid
        is_guarded = any(name in nodeid for name in GUARDED)
        return "guarded memory" if is_guarded else super()._split_scope(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        takes_sessions = node.gateway.id in SESSION_PROCESSES
        for scope in self.workqueue:
            if scope.startswith(WITH_SESSIONS) == takes_sessions:
                self.workqueue.move_to_end(scope, last=False)
                break
        super()._assign_work_unit(node)

    def remove_node(self, node: Any) -> str | None:
        """Gives the work of a process that died to the others, but not what it had done.

        xdist gives out finished files again, too: a process that gets one has no test to run, never
        asks for more, and the run does not end.
        """
        work = self.assigned_work[node]
        for scope in [scope for scope, tests in work.items() if all(tests.values())]:
            del work[scope]
        return super().remove_node(node)
