"""What ``dg scaffold defs`` writes: a component that loads and runs, on a small example.

Each scaffolder writes the YAML of its component, and example data below the project's ``data``
folder. The first one in a project also writes the YAML of the resources.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

RESOURCES_TYPE = "dstl_dagster.DstlResourcesComponent"
ROOT = "{{ context.project_root }}"
LOCAL = "local"
_EVENTS = {
    "2026-01-01": [("ada", 12), ("bob", 3), ("ada", 5)],
    "2026-01-02": [("bob", 20), ("eve", 7)],
    "2026-01-03": [("ada", 1), ("eve", 2)],
}
_COUNTS = {"ada": 3, "bob": 2, "eve": 2}


class ResourcesScaffolder(dg.Scaffolder[Any]):
    """Writes the resources of a project: a storage in its ``data`` folder, and local Spark."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        dg.scaffold_component(request, _resources())


class StatefulPipelineScaffolder(dg.Scaffolder[Any]):
    """Writes a pipeline of aggregates over example events of three days. It needs no Java."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        name = _name_of(request)
        events = f"data/{name}-events"
        for day, rows in _EVENTS.items():
            _write_events(_root_of(request) / events / f"day={day}" / "events.parquet", rows)
        dg.scaffold_component(
            request,
            {
                "name": name,
                "uid": "totals",
                "engine": LOCAL,
                "events": {"path": f"{ROOT}/{events}", "partition_column": "day"},
                "partitions": {"start": "2026-01-01"},
                "key_by": "account",
                "columns": "account string, amount bigint",
                "states": {
                    "payments": {"how": "count"},
                    "total": {"how": "sum", "column": "amount"},
                },
            },
        )
        _scaffold_resources(request)


class SavepointScaffolder(dg.Scaffolder[Any]):
    """Writes the governance of a savepoint, and a small savepoint as an example."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        name = _name_of(request)
        path = f"data/savepoints/{name}"
        _write_savepoint(_root_of(request) / path)
        dg.scaffold_component(
            request,
            {
                "name": name,
                "path": f"{ROOT}/{path}",
                "rewrite": {"rename": {"counts": f"{name}-counts"}},
                "checks": [
                    {"uid": "counts", "sql": "SELECT state_key FROM {state} WHERE n < 0"},
                ],
            },
        )
        _scaffold_resources(request)


def _resources() -> Mapping[str, Any]:
    return {"storage": {"base_path": f"{ROOT}/data/dstl"}, "spark": {"master": "local[2]"}}


def _scaffold_resources(request: dg.ScaffoldRequest[Any]) -> None:
    """Writes the resources beside a component, unless the project has some."""
    if request.project_root is None:
        return
    folder = _folder_of(request)
    defs = next((each for each in folder.parents if each.name == "defs"), folder.parent)
    for path in defs.rglob("*"):
        if path.suffix in (".yaml", ".py") and _has_resources(path.read_text("utf-8")):
            return
    target = defs / "dstl_resources"
    target.mkdir(exist_ok=True)
    dg.scaffold_component(
        dg.ScaffoldRequest(RESOURCES_TYPE, target, "yaml", request.project_root, request.params),
        _resources(),
    )


def _has_resources(text: str) -> bool:
    return "DstlResourcesComponent" in text or "DstlStorageResource" in text


def _folder_of(request: dg.ScaffoldRequest[Any]) -> Path:
    return request.target_path.parent if request.append else request.target_path


def _root_of(request: dg.ScaffoldRequest[Any]) -> Path:
    return request.project_root or _folder_of(request)


def _name_of(request: dg.ScaffoldRequest[Any]) -> str:
    """A pipeline's name from that of the folder."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", _folder_of(request).name)
    return name if name[:1].isalpha() else f"p-{name}"


def _write_events(path: Path, rows: Sequence[tuple[str, int]]) -> None:
    import pyarrow as pa  # it is loaded only when somebody scaffolds
    import pyarrow.parquet as pq

    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        accounts, amounts = zip(*rows, strict=True)
        pq.write_table(pa.table({"account": accounts, "amount": amounts}), path)


def _write_savepoint(path: Path) -> None:
    """A savepoint of one operator with a count per key."""
    # They are loaded only when somebody scaffolds.
    import pyarrow as pa

    from dstl_core.codec.serializers import Types
    from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
    from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
    from dstl_core.model.ids import OperatorID
    from dstl_core.savepoint.write.folder import SavepointFolder
    from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder
    from dstl_core.state.columns.keyed_sections import KeyedSections

    if (path / "_metadata").exists():
        return
    key_groups = 128
    state = StateMetaInfoSnapshot.key_value("n", KeyedStateType.VALUE, Types.LONG)
    encoder = KeyedStateEncoder(Types.STRING, [state], key_groups)
    rows = pa.table({"state_key": list(_COUNTS), "state_value": list(_COUNTS.values())})
    folder = SavepointFolder(path)
    with KeyedSections(encoder.header, encoder.key_groups, key_groups) as sections:
        sections.add(encoder.encode("n", rows))
        handle = folder.add_keyed_stream(sections.stream())
    subtask = OperatorSubtaskState(0, managed_keyed_state=handle)
    operator = OperatorState(OperatorID.for_uid("counts"), 1, key_groups, (subtask,), uid="counts")
    folder.publish(CheckpointMetadata(3, 1, (operator,)), {})
