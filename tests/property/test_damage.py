"""Real files with damage anywhere: an error of ours, or an answer, and never anything else."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from dstl_core import Snapshot
from dstl_core.checkpoint.store.metadata_file import MetadataFile
from dstl_core.codec.change_format import read_change_set, segment_body
from dstl_core.codec.metadata.metadata_format import read_metadata, write_metadata
from dstl_core.codec.serializers import BUILT_IN
from dstl_core.errors import DstlError, FormatError
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location
from tests.golden_files import GOLDEN, SNAPSHOTS

FILES = sorted(path for fixture in SNAPSHOTS for path in fixture.metadata_files)
RAW = {path: path.read_bytes() for path in FILES}
SEGMENTS = [
    path.read_bytes()[:20_000]
    for folder in ("changelog-segment", "changelog-segment-compressed")
    for path in (GOLDEN / folder).rglob("dstl/*")
]
NUMBERS = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0", b"\xff\xff"]


@st.composite
def damage(draw: st.DrawFn, raw: bytes) -> bytes:
    """The bytes with one to four flips, exchanges, cuts or insertions."""
    damaged = bytearray(raw)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(damaged) - 1))
        match draw(st.sampled_from(["flip", "flip", "byte", "number", "delete", "insert"])):
            case "flip":
                damaged[at] ^= 1 << draw(st.integers(0, 7))
            case "byte":
                damaged[at] = draw(st.integers(0, 255))
            case "number":
                number = draw(st.sampled_from(NUMBERS))
                damaged[at : at + len(number)] = number
            case "delete":
                del damaged[at : at + draw(st.integers(1, 9))]
            case "insert":
                damaged[at:at] = draw(st.binary(min_size=1, max_size=9))
        if not damaged:
            break
    return bytes(damaged)


@given(st.sampled_from(FILES).flatmap(lambda path: st.tuples(st.just(path), damage(RAW[path]))))
def test_damaged_snapshots(drawn: tuple[object, bytes]) -> None:
    path, raw = drawn
    try:
        metadata = read_metadata(raw)
    except FormatError:
        return
    assert read_metadata(write_metadata(metadata)) == metadata
    folder = Location.parse(str(path)).parent
    files = open_file_io(folder)
    file = MetadataFile(folder, metadata, "", len(raw), None)
    snapshot = Snapshot(file, files, HandleResolver(files, folder), BUILT_IN)
    for operator in snapshot.operators:
        problem = operator.problem()
        try:
            list(islice(operator.dump(), 200))
        except DstlError:
            continue
        assert problem is None


@given(st.sampled_from(SEGMENTS).flatmap(damage), st.integers(0, 3))
def test_damaged_segments(raw: bytes, offset: int) -> None:
    try:
        list(read_change_set(segment_body(raw), offset))
    except FormatError:
        pass
