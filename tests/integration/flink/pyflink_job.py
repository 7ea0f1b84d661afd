"""A job of PyFlink: numbers from files, and a keyed state of each kind that holds them.

PyFlink's own Python runs this file, which imports nothing of dstl:

    PYTHON pyflink_job.py JOB.json

``JOB.json`` has the mode, the type of the keys, the folders of files and savepoints, the savepoint
to restore, the uid, names and types that differ, and how many numbers come. For each number the
function writes what its states held before it, as a line of JSON, into a pipe, and once more when
its timers are registered. When all of them are, the job takes a savepoint, whose path is the last
line of the output.
"""

import decimal
import json
import os
import select
import sys

from pyflink.common import Configuration, Duration, Row, Time, Types, WatermarkStrategy
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.datastream.functions import AggregateFunction, ReduceFunction
from pyflink.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from pyflink.java_gateway import get_gateway

LONGEST_WAIT_S = 60
KEYS = {
    "string": (lambda n: f"key-{n % 3}", Types.STRING()),
    "tuple": (lambda n: (n % 3, "k"), Types.TUPLE([Types.INT(), Types.STRING()])),
    "pickle": (lambda n: n % 3, None),
}
OPTIONS = {
    "rest.port": "0",
    "rest.bind-port": "0",
    "taskmanager.memory.managed.size": "64m",
    "taskmanager.memory.network.min": "32m",
    "taskmanager.memory.network.max": "32m",
    "taskmanager.numberOfTaskSlots": "2",
    "python.fn-execution.bundle.time": "100",
    "execution.checkpointing.storage": "jobmanager",
    "restart-strategy.type": "none",
    "heartbeat.timeout": "300000",
    "web.timeout": "300000",
    "python.executable": sys.executable,
    "python.client.executable": sys.executable,
}


class Sum(ReduceFunction):
    def reduce(self, one, other):
        return one + other


class Mean(AggregateFunction):
    def create_accumulator(self):
        return (0, 0.0)

    def add(self, value, accumulator):
        return (accumulator[0] + 1, accumulator[1] + value)

    def get_result(self, accumulator):
        return accumulator[1] / accumulator[0] if accumulator[0] else None

    def merge(self, one, other):
        return (one[0] + other[0], one[1] + other[1])


class Hold(KeyedProcessFunction):
    def __init__(self, pipe, names, numbers):
        self.pipe, self.names, self.numbers_type = pipe, names, numbers
        self.as_number = decimal.Decimal if numbers == "BIG_DEC" else int

    def open(self, context):
        def named(name):
            return self.names.get(name, name)

        plain, long = Types.PICKLED_BYTE_ARRAY(), Types.LONG()
        mean_type = Types.TUPLE([Types.INT(), Types.DOUBLE()])
        row_type = Types.ROW([long, Types.STRING(), Types.DOUBLE()])
        number_type = getattr(Types, self.numbers_type)()
        self.last = context.get_state(ValueStateDescriptor(named("last"), plain))
        self.numbers = context.get_list_state(ListStateDescriptor(named("numbers"), number_type))
        self.counts = context.get_map_state(
            MapStateDescriptor(named("counts"), Types.STRING(), long)
        )
        self.seen = context.get_map_state(MapStateDescriptor(named("seen"), plain, plain))
        self.total = context.get_reducing_state(
            ReducingStateDescriptor(named("total"), Sum(), long)
        )
        self.mean = context.get_aggregating_state(
            AggregatingStateDescriptor(named("mean"), Mean(), mean_type)
        )
        self.row = context.get_state(ValueStateDescriptor(named("row"), row_type))
        kept = ValueStateDescriptor(named("kept"), Types.STRING())
        kept.enable_time_to_live(StateTtlConfig.new_builder(Time.days(3650)).build())
        self.kept = context.get_state(kept)

    def held(self, key):
        row = self.row.value()
        return {
            "key": key,
            "last": self.last.value(),
            "numbers": [str(n) for n in self.numbers.get() or []],
            "counts": sorted(self.counts.items()),
            "seen": sorted(self.seen.items()),
            "total": self.total.get(),
            "mean": self.mean.get(),
            "row": None if row is None else [row[at] for at in range(3)],
            "kept": self.kept.value(),
        }

    def process_element(self, n, context):
        line = json.dumps(self.held(context.get_current_key())) + "\n"
        self.last.update([n, f"p{n}", None])
        self.numbers.add(self.as_number(n))
        self.counts.put(f"c{n % 2}", n * 11)
        self.seen.put(("k", n), [n, "v"])
        self.total.add(n)
        self.mean.add(n * 1.5)
        self.row.update(Row(n, None if n % 2 else f"r{n}", n / 4))
        self.kept.update(f"t{n}")
        context.timer_service().register_event_time_timer(4000000000000 + n)
        context.timer_service().register_processing_time_timer(4000000000000 + n)
        # It is over, so it goes off when the others are registered.
        context.timer_service().register_processing_time_timer(1 + n)
        self.tell(line)
        yield n

    def on_timer(self, timestamp, context):
        self.tell("gone off\n")
        return []

    def tell(self, line):
        with open(self.pipe, "a") as pipe:
            pipe.write(line)


def lines_of(pipe, count, client):
    """So many lines that the function writes.

    Raises:
        RuntimeError: None came for a long time.
    """
    end, text = os.open(pipe, os.O_RDWR), b""
    while text.count(b"\n") < count:
        if not select.select([end], [], [], LONGEST_WAIT_S)[0]:
            raise RuntimeError(
                "no number came; the job is " + str(client.get_job_status().result())
            )
        text += os.read(end, 65536)
    return text.decode().splitlines()


def main(job):
    options = Configuration()
    for name, value in {**OPTIONS, "python.execution-mode": job["mode"]}.items():
        options.set_string(name, value)
    if job.get("restore"):
        options.set_string("execution.state-recovery.path", job["restore"])
    env = StreamExecutionEnvironment.get_execution_environment(options)
    env.set_parallelism(1)
    env.set_max_parallelism(128)
    text = StreamFormat.text_line_format()
    files = FileSource.for_record_stream_format(text, job["input"])
    source = files.monitor_continuously(Duration.of_millis(200)).build()
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "files").uid("files")
    numbers = lines.map(int, Types.LONG()).uid("numbers")
    selector, key_type = KEYS[job["key"]]
    keyed = numbers.key_by(selector, key_type) if key_type else numbers.key_by(selector)
    hold = Hold(job["pipe"], job.get("names", {}), job.get("number_type", "LONG"))
    keyed.process(hold, Types.LONG()).uid(job["uid"]).name("hold").print()
    client = env.execute_async("numbers")
    held = lines_of(job["pipe"], 2 * job["count"], client)
    forms = get_gateway().jvm.org.apache.flink.core.execution.SavepointFormatType
    # PyFlink's own method is of another release: Flink 2 has none without the form.
    savepoint = client._j_job_client.triggerSavepoint(job["out"], forms.CANONICAL).get()
    client.cancel().result()
    sys.stdout.writelines(f"HELD {line}\n" for line in held if line[0] == "{")
    sys.stdout.write(f"{savepoint}\n")


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        main(json.load(file))
