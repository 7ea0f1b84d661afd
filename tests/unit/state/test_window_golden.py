"""The windows that real Flink has left open fire here with what Flink says that they hold."""

import pytest

from dstl_core.checkpoint.store.metadata_file import load_metadata_file
from dstl_core.codec.serializers import Types
from dstl_core.functions import ProcessWindowFunction, WindowFunction
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend
from dstl_core.state.windows.evictors import CountEvictor
from dstl_core.state.windows.triggers import CountTrigger, PurgingTrigger
from dstl_core.state.windows.windowing import (
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from tests.golden_files import GOLDEN, Fixture
from tests.stateful_job import Job, SumAndCount

FIXTURE = Fixture(GOLDEN / "d-windows-hashmap")
EVENT = Types.TUPLE(Types.STRING, Types.LONG, Types.LONG)
MINUTE = TumblingEventTimeWindows.of(60_000)
END = 1 << 60


class Show(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield (key, "global" if window == "global" else tuple(window), list(map(plain, elements)))


class Accumulator(SumAndCount):
    def get_result(self, accumulator):
        return accumulator


def add(a, b):
    return (a[0], a[1] + b[1], max(a[2], b[2]))


def windows(assigner, type=EVENT, **parts):
    return WindowFunction(assigner, type, process=Show(), element="event", **parts)


OPERATORS = {
    "d-tumble-agg": windows(MINUTE, Types.TUPLE(Types.LONG, Types.LONG), aggregate=Accumulator()),
    "d-tumble-reduce": windows(MINUTE, reduce=add),
    "d-sliding": windows(SlidingEventTimeWindows.of(60_000, 20_000), reduce=add),
    "d-session": windows(
        EventTimeSessionWindows.with_gap(25_000),
        Types.TUPLE(Types.LONG, Types.LONG),
        aggregate=Accumulator(),
    ),
    "d-evictor": windows(MINUTE, evictor=CountEvictor.of(100)),
    "d-process": windows(MINUTE),
    "d-count-trigger": windows(MINUTE, reduce=add, trigger=CountTrigger.of(3)),
    "d-count-window": windows(
        GlobalWindows.create(), reduce=add, trigger=PurgingTrigger.of(CountTrigger.of(7))
    ),
}
BACKENDS = {
    "hashmap": HashMapStateBackend(),
    "rocksdb": EmbeddedRocksDBStateBackend(cache_bytes=1 << 20, write_buffer_bytes=1 << 20),
}


def plain(value):
    return list(value) if isinstance(value, tuple) else value


def told(uid, state):
    """``{(key, window): value}`` as Flink says."""
    return {
        (line["key"], tuple(line["ns"]) if isinstance(line["ns"], list) else line["ns"]): line[
            "value"
        ]
        for line in FIXTURE.truth
        if line["op"] == uid and line.get("state") == state
    }


def restored(tmp_path, uid, backend):
    function = OPERATORS[uid]
    files = open_file_io(Location.parse(str(tmp_path)))
    job = Job(files, Location.parse(str(tmp_path)), 128, function=lambda folding: function)
    folder = Location.parse(str(FIXTURE.snapshot))
    metadata = load_metadata_file(files, folder).metadata
    job.start(
        BACKENDS[backend], parallelism=3, changelog=True, snapshot=metadata, folder=folder, uid=uid
    )
    return job


def fired(job, watermark):
    return [out for each in job.subtasks for out in each.advance_watermark(watermark)]


def expected(uid):
    contents = told(uid, "window-contents")
    if uid == "d-session":
        return [
            (key, tuple(window), [contents[key, tuple(kept)]])
            for (key, _), pairs in told(uid, "merging-window-set").items()
            for window, kept in pairs
        ]
    if uid == "d-evictor":
        contents = {place: [each["value"] for each in kept] for place, kept in contents.items()}
    elif uid != "d-process":
        contents = {place: [kept] for place, kept in contents.items()}
    return [(*place, kept) for place, kept in contents.items()]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("uid", [each for each in OPERATORS if "count" not in each])
def test_windows_of_flink_fire_here(tmp_path, uid, backend):
    job = restored(tmp_path, uid, backend)
    wanted = expected(uid)
    assert sorted(fired(job, END)) == sorted(wanted) != []
    for subtask in job.subtasks:
        for table in subtask.keyed.state.tables.values():
            assert not any(len(group) for group in table.groups.values()), table.meta.name
    job.stop()


@pytest.mark.parametrize(("uid", "count"), [("d-count-trigger", 3), ("d-count-window", 7)])
def test_counts_of_flink_go_on_here(tmp_path, uid, count):
    job = restored(tmp_path, uid, "hashmap")
    counts, contents = told(uid, "count"), told(uid, "window-contents")
    assert set(counts) <= set(contents)
    for (key, window), kept in contents.items():
        time = 0 if window == "global" else window[0]
        outputs = []
        for _ in range(count - counts.get((key, window), 0)):
            event = (key, 1, 0)
            outputs += job.owner(key).process({"key": key, "event": event}, time)
        added = count - counts.get((key, window), 0)
        assert outputs == [(key, window, [[kept[0], kept[1] + added, kept[2]]])]
    assert fired(job, END) == []
    job.stop()
