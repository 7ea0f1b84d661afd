package dstl.bench;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.state.KeyedStateBackend;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.util.Collector;

import java.lang.management.ManagementFactory;
import java.math.BigDecimal;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Comparator;
import java.util.Iterator;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;

/**
 * {@code write N FOLDER FORM ROUNDS}: a job fills keyed state ({@code key-%d} to Long) and takes a canonical savepoint
 * ({@code plain}, {@code compressed}), a native one with RocksDB ({@code native}; {@code wide} with three states: Long,
 * BigDecimal and String), or incremental checkpoints with RocksDB while it fills ({@code incremental}), of which the
 * last one has every key. Seconds count from the first key in the function. {@code read N PATH ROUNDS BACKEND}: a job
 * restores it and reads every key. One line of JSON each.
 */
public final class SavepointBench {
    static final int PARALLELISM = 2;
    static final String CHECKPOINTS = Paths.get("checkpoints").toAbsolutePath().toUri().toString();
    static final AtomicLong FILLED = new AtomicLong();
    static final AtomicLong KEYS = new AtomicLong();
    static final AtomicLong STARTED = new AtomicLong(Long.MAX_VALUE);
    static final AtomicLong ENDED = new AtomicLong();
    static final AtomicLong CHECKPOINT = new AtomicLong();

    /** Gives numbers 0..n-1, then waits, or ends at once for n = 0. */
    static final class Numbers extends RichParallelSourceFunction<Long> implements CheckpointListener {
        final long n;
        volatile boolean running = true;

        Numbers(long n) {
            this.n = n;
        }

        @Override
        public void run(SourceContext<Long> context) throws Exception {
            for (long i = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask(); i < n; i += PARALLELISM) {
                synchronized (context.getCheckpointLock()) {
                    context.collect(i);
                }
            }
            while (running && n > 0) {
                Thread.sleep(5);
            }
        }

        @Override
        public void notifyCheckpointComplete(long checkpoint) {
            CHECKPOINT.accumulateAndGet(checkpoint, Math::max);
        }

        @Override
        public void cancel() {
            running = false;
        }
    }

    static final class Fill extends KeyedProcessFunction<String, Long, Long> {
        transient ValueState<Long> state;

        @Override
        public void open(OpenContext context) {
            state = getRuntimeContext().getState(new ValueStateDescriptor<>("v", Types.LONG));
        }

        @Override
        public void processElement(Long value, Context context, Collector<Long> out) throws Exception {
            state.update(value);
            FILLED.incrementAndGet();
        }
    }

    /** An amount and a text beside the number. */
    static final class FillWide extends KeyedProcessFunction<String, Long, Long> {
        transient ValueState<Long> state;
        transient ValueState<BigDecimal> amount;
        transient ValueState<String> item;

        @Override
        public void open(OpenContext context) {
            state = getRuntimeContext().getState(new ValueStateDescriptor<>("v", Types.LONG));
            amount = getRuntimeContext().getState(new ValueStateDescriptor<>("amount", Types.BIG_DEC));
            item = getRuntimeContext().getState(new ValueStateDescriptor<>("item", Types.STRING));
        }

        @Override
        public void processElement(Long value, Context context, Collector<Long> out) throws Exception {
            state.update(value);
            amount.update(BigDecimal.valueOf(100 * value / 7, 2));
            item.update("item number " + value % 1000);
            FILLED.incrementAndGet();
        }
    }

    /** Reads every key once it is open; the restore is over by then. */
    static final class Read extends AbstractStreamOperator<Long> implements OneInputStreamOperator<Long, Long> {
        Read() {
            STARTED.accumulateAndGet(System.nanoTime(), Math::min);
        }

        private void readObject(java.io.ObjectInputStream in) throws java.io.IOException, ClassNotFoundException {
            in.defaultReadObject();
            // The task makes its operator right before it restores the state.
            STARTED.accumulateAndGet(System.nanoTime(), Math::min);
        }

        @Override
        public void open() throws Exception {
            super.open();
            KeyedStateBackend<String> backend = getKeyedStateBackend();
            ValueState<Long> state = backend.getPartitionedState(
                    VoidNamespace.INSTANCE, VoidNamespaceSerializer.INSTANCE, new ValueStateDescriptor<>("v", Types.LONG));
            long sum = 0;
            long keys = 0;
            try (Stream<String> stream = backend.getKeys("v", VoidNamespace.INSTANCE)) {
                for (Iterator<String> each = stream.iterator(); each.hasNext(); keys++) {
                    backend.setCurrentKey(each.next());
                    sum += state.value();
                }
            }
            KEYS.addAndGet(keys + (sum == Long.MIN_VALUE ? 1 : 0));
            ENDED.accumulateAndGet(System.nanoTime(), Math::max);
        }

        @Override
        public void processElement(StreamRecord<Long> element) {}
    }

    static StreamExecutionEnvironment environment(String form, String backend, String folder, String restore) {
        Configuration configuration = new Configuration();
        configuration.setString(
                "execution.checkpointing.snapshot-compression", String.valueOf(form.equals("compressed")));
        configuration.setString("rest.bind-port", "0");
        configuration.setString("state.backend.type", backend);
        configuration.setString("execution.checkpointing.storage", "filesystem");
        configuration.setString("execution.checkpointing.dir", folder);
        if (form.equals("incremental")) {
            configuration.setString("execution.checkpointing.incremental", "true");
            configuration.setString("execution.checkpointing.interval", "2 s");
            configuration.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        }
        if (restore != null) {
            configuration.setString("execution.state-recovery.path", restore);
        }
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(PARALLELISM, configuration);
        environment.setMaxParallelism(128);
        return environment;
    }

    private static void write(long n, String folder, String form, int rounds) throws Exception {
        boolean incremental = form.equals("incremental");
        boolean isNative = form.equals("native") || form.equals("wide");
        String backend = incremental || isNative ? "rocksdb" : "hashmap";
        String path = null;
        StringBuilder seconds = new StringBuilder();
        StringBuilder cpuSeconds = new StringBuilder();
        for (int round = 0; round < rounds; round++) {
            FILLED.set(0);
            CHECKPOINT.set(0);
            StreamExecutionEnvironment environment =
                    environment(form, backend, incremental ? folder : CHECKPOINTS, null);
            environment.addSource(new Numbers(n)).keyBy(i -> "key-" + i, Types.STRING)
                    .process(form.equals("wide") ? new FillWide() : new Fill()).uid("bench")
                    .returns(Types.LONG).sinkTo(new DiscardingSink<>());
            long start = 0;
            long cpu = 0;
            JobClient client = environment.executeAsync();
            while (FILLED.get() < n) {
                if (start == 0 && FILLED.get() > 0) {
                    start = System.nanoTime();
                    cpu = cpu();
                }
                Thread.sleep(1);
            }
            if (incremental) {
                // The next one may have begun before the last key; the one after it has all.
                for (long seen = CHECKPOINT.get(); CHECKPOINT.get() < seen + 2; ) {
                    Thread.sleep(1);
                }
                path = folder + "/" + client.getJobID() + "/chk-" + CHECKPOINT.get();
            } else {
                SavepointFormatType type = isNative ? SavepointFormatType.NATIVE : SavepointFormatType.CANONICAL;
                path = client.triggerSavepoint(folder, type).get();
            }
            seconds.append(round == 0 ? "" : ", ").append(String.format("%.3f", (System.nanoTime() - start) / 1e9));
            cpuSeconds.append(round == 0 ? "" : ", ").append(String.format("%.2f", (cpu() - cpu) / 1e9));
            client.cancel().get();
            if (incremental) {
                path = newest(Paths.get(java.net.URI.create(path)).getParent()).toUri().toString();
            }
        }
        System.out.printf("{\"path\": \"%s\", \"seconds\": [%s], \"cpu_seconds\": [%s]}%n", path, seconds, cpuSeconds);
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    /** The last checkpoint: another one may have completed before the job ended. */
    private static Path newest(Path job) throws Exception {
        try (Stream<Path> found = Files.list(job)) {
            return found.filter(each -> each.getFileName().toString().startsWith("chk-"))
                    .filter(each -> Files.exists(each.resolve("_metadata")))
                    .max(Comparator.comparingLong(each -> Long.parseLong(each.getFileName().toString().substring(4))))
                    .get();
        }
    }

    private static void read(long n, String path, int rounds, String backend) throws Exception {
        StringBuilder seconds = new StringBuilder();
        for (int round = 0; round < rounds; round++) {
            KEYS.set(0);
            STARTED.set(Long.MAX_VALUE);
            StreamExecutionEnvironment environment = environment("plain", backend, CHECKPOINTS, path);
            environment.addSource(new Numbers(0)).keyBy(i -> "key-" + i, Types.STRING)
                    .transform("read", Types.LONG, new Read()).uid("bench").sinkTo(new DiscardingSink<>());
            // Making the graph copies the operator; only the copies of the tasks count.
            environment.getStreamGraph(false);
            STARTED.set(Long.MAX_VALUE);
            environment.execute();
            if (KEYS.get() != n) {
                throw new IllegalStateException("read " + KEYS.get() + " of " + n + " keys");
            }
            seconds.append(round == 0 ? "" : ", ").append(String.format("%.3f", (ENDED.get() - STARTED.get()) / 1e9));
        }
        System.out.printf("{\"seconds\": [%s]}%n", seconds);
    }

    public static void main(String[] arguments) throws Exception {
        long n = Long.parseLong(arguments[1]);
        if (arguments[0].equals("write")) {
            write(n, arguments[2], arguments[3], Integer.parseInt(arguments[4]));
        } else {
            read(n, arguments[2], Integer.parseInt(arguments[3]), arguments[4]);
        }
        System.exit(0);
    }
}
