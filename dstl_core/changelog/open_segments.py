"""Opens the segments of a handle one after the other, and reads the next ones ahead on threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack

from dstl_core.codec.change_format import COMPRESSED_FLAG, segment_body
from dstl_core.codec.snappy_frames import Allocate
from dstl_core.model.handle import FileStateHandle, StreamStateHandle
from dstl_core.storage.location import Location

_THREADS = 2
_AHEAD_BYTES = 64 << 20
"""Largest number of bytes of segments that wait for their turn."""
_LEAST_BYTES = 1 << 20
"""Smaller logs are not worth a thread."""

Segment = bytes | memoryview
"""A whole segment file, with its flag byte."""
OpenSegment = Callable[[StreamStateHandle], AbstractContextManager[Segment]]
_Opened = tuple[ExitStack, memoryview]


class OpenSegments:
    """The body of the segment that was asked for last. One thread owns it.

    Args:
        open_segment: Opens a segment for the length of a block. It runs on several threads.
        expected: The segments that will be asked for, in their order. If the first one is
            compressed or remote, the next ones are read while one is in use.
        allocate: Makes memory for a compressed segment.
    """

    def __init__(
        self,
        open_segment: OpenSegment,
        expected: Sequence[StreamStateHandle] = (),
        allocate: Allocate = bytearray,
    ) -> None:
        self._open_segment = open_segment
        self._allocate = allocate
        is_large = sum(each.state_size for each in expected) >= _LEAST_BYTES
        self._expected = deque(expected if is_large and len(expected) > 1 else ())
        self._ahead: deque[tuple[StreamStateHandle, Future[_Opened]]] = deque()
        self._threads: ThreadPoolExecutor | None = None
        self._stream: StreamStateHandle | None = None
        self._open = ExitStack()
        self._body = memoryview(b"")
        self._compressed = False

    def __enter__(self) -> OpenSegments:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()
        for _, future in self._ahead:
            future.cancel()
        if self._threads is not None:
            self._threads.shutdown()
        for _, future in self._ahead:
            if not future.cancelled() and future.exception() is None:
                future.result()[0].close()
        self._ahead.clear()

    def _close(self) -> None:
        self._stream, self._body = None, memoryview(b"")
        self._open.close()

    def body(self, stream: StreamStateHandle) -> memoryview:
        """The uncompressed body of a segment, valid until the next call for another one.

        Raises:
            StorageError: The segment is missing.
            FormatError: It is damaged, or has another size than the handle says.
        """
        if stream != self._stream:
            self._close()
            self._open, self._body = self._next(stream)
            self._stream = stream
        return self._body

    def _next(self, stream: StreamStateHandle) -> _Opened:
        if self._ahead and self._ahead[0][0] == stream:
            future = self._ahead.popleft()[1]
            self._read_ahead()
            return future.result()
        if self._expected and self._expected[0] == stream:
            self._expected.popleft()
        opened = self._opened(stream)
        if self._threads is None and self._expected and (self._compressed or _is_remote(stream)):
            self._threads = ThreadPoolExecutor(_THREADS, "dstl-changelog-read")
        self._read_ahead()
        return opened

    def _read_ahead(self) -> None:
        waiting = sum(stream.state_size for stream, _ in self._ahead)
        while self._threads is not None and self._expected and len(self._ahead) < _THREADS:
            waiting += self._expected[0].state_size
            if self._ahead and waiting > _AHEAD_BYTES:
                return
            stream = self._expected.popleft()
            self._ahead.append((stream, self._threads.submit(self._opened, stream)))

    def _opened(self, stream: StreamStateHandle) -> _Opened:
        with ExitStack() as stack:
            segment = stack.enter_context(self._open_segment(stream))
            self._compressed = segment[:1] == COMPRESSED_FLAG
            size = stream.state_size if isinstance(stream, FileStateHandle) else None
            body = segment_body(segment, size, self._allocate)
            return stack.pop_all(), body


def _is_remote(stream: StreamStateHandle) -> bool:
    return isinstance(stream, FileStateHandle) and not Location.parse(stream.path).is_local
