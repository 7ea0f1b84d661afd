"""What edits, upgrades and migrations write is byte for byte what three engines wrote before."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstl_core import Snapshot
from dstl_core.model.handle import KeyGroupsSavepointStateHandle
from dstl_core.savepoint.edit import keyed_units
from dstl_core.savepoint.edit.savepoint_edit import edit_savepoint
from dstl_core.state.restore.canonical import read_stream_header
from tests.golden_files import snapshot
from tests.written_corpus import corpus, outcome, recorded

FEW = (
    "copy a-rocksdb-canonical",
    "copy o-ttl-maps-changelog",
    "rescale a-rocksdb-heaptimers-checkpoint",
    "merge a-rocksdb-native-incremental",
    "upgrade upgrade-jobs carts",
    "upgrade jdk-jobs heap",
    "migrate join-addcol",
    "migrate key-type",
)


@pytest.mark.parametrize("name", FEW)
def test_sections_have_the_bytes_that_they_had(name: str, tmp_path: Path) -> None:
    assert outcome(corpus()[name], tmp_path / "out") == recorded()[name]


@pytest.mark.parametrize(
    "name",
    [
        "copy a-rocksdb-checkpoint-incremental",
        "rescale a-hashmap-native",
        "merge a-hashmap-native",
        "upgrade jdk-jobs heap",
        "migrate key-type",
        "migrate value-to-map",
    ],
)
def test_two_processes_write_the_same_bytes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With units so small that both have some."""
    monkeypatch.setattr(keyed_units, "BYTES_AT_ONCE", 4096)
    write = corpus()[name]
    written = outcome(write, tmp_path / "two" / "out", jobs=2)
    assert written == outcome(write, tmp_path / "one" / "out", jobs=1)
    assert written == recorded()[name] or name.startswith("rescale")  # units order equal key groups


@pytest.mark.parametrize(
    ("name", "keeps", "is_compressed"),
    [
        ("a-rocksdb-checkpoint-incremental", False, True),
        ("a-rocksdb-checkpoint-incremental", True, False),
        ("a-hashmap-canonical-compressed", True, True),
    ],
)
def test_key_groups_are_compressed_unless_those_of_the_input_decide(
    name: str, keeps: bool, is_compressed: bool, tmp_path: Path
) -> None:
    edit = edit_savepoint(Snapshot.load(snapshot(name))).with_max_parallelism(17)
    written = Snapshot.load(edit.write(tmp_path / "out", keep_compression=keeps))
    headers = {
        read_stream_header(handle, written.resolver, written.registry).compressed
        for operator in written.operators
        for handle in operator.keyed_handles
        if isinstance(handle, KeyGroupsSavepointStateHandle)
    }
    assert headers == {is_compressed}


@pytest.mark.soak
def test_all_sections_have_the_bytes_that_they_had(tmp_path: Path) -> None:
    outcomes = {
        name: outcome(write, tmp_path / name / "out") for name, write in sorted(corpus().items())
    }
    assert outcomes == recorded()
