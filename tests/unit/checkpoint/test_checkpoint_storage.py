from __future__ import annotations

from pathlib import Path

import pytest

from dstl_core.checkpoint.store.checkpoint_storage import FileSystemCheckpointStorage
from dstl_core.errors import ConfigError, StateFileNotFoundError
from tests.golden_files import snapshot
from tests.unit.checkpoint.pipeline import Pipeline


def test_a_snapshot_is_found_by_its_folder_or_its_metadata(pipeline: Pipeline) -> None:
    storage = FileSystemCheckpointStorage(pipeline.layout, file_io=pipeline.files)
    folder = snapshot("a-hashmap-canonical")
    by_folder = storage.resolve_checkpoint(str(folder))
    assert by_folder.folder.path == str(folder)
    assert storage.resolve_checkpoint(f"file://{folder}/_metadata") == by_folder
    with pytest.raises(StateFileNotFoundError, match="expected a file _metadata in"):
        storage.resolve_checkpoint(str(folder.parent))


def test_places_of_new_snapshots(pipeline: Pipeline, tmp_path: Path) -> None:
    storage = FileSystemCheckpointStorage(
        pipeline.layout, savepoint_dir=str(tmp_path / "mine"), file_io=pipeline.files
    )
    assert storage.has_default_savepoint_location()
    assert storage.initialize_location_for_checkpoint(3) == pipeline.layout.checkpoint(3)
    default = storage.initialize_location_for_savepoint(4, None)
    assert default.parent.path == str(tmp_path / "mine")
    assert default.name.startswith("savepoint-ababab-")
    asked = storage.initialize_location_for_savepoint(4, str(tmp_path / "asked"))
    assert asked.parent.path == str(tmp_path / "asked")

    nowhere = FileSystemCheckpointStorage(pipeline.layout, file_io=pipeline.files)
    assert not nowhere.has_default_savepoint_location()
    with pytest.raises(ConfigError, match=r"execution\.checkpointing\.savepoint-dir"):
        nowhere.initialize_location_for_savepoint(4, None)
