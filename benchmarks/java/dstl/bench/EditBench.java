package dstl.bench;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;
import org.apache.flink.util.Collector;

import java.lang.management.ManagementFactory;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A job with RocksDB: a text of some 190 characters, a counter and a timer for each key. {@code fill KEYS FOLDER UID STATE}
 * fills it, takes two incremental checkpoints and prints the last one. {@code restore KEYS FOLDER UID STATE SNAPSHOT}
 * restores it, and compares every thousandth key; SNAPSHOT is {@code none} for a job that starts empty. The last line is
 * JSON. Properties: {@code parallelism}, {@code maxParallelism}, {@code doubles} for a counter of another type, and
 * {@code ids} for one more state, a UUID, which is a value of Kryo.
 */
public final class EditBench {
    private static final int PARALLELISM = Integer.getInteger("parallelism", 2);
    private static final boolean DOUBLES = Boolean.getBoolean("doubles");
    private static final boolean IDS = Boolean.getBoolean("ids");
    private static final AtomicLong OPENED = new AtomicLong();
    private static final AtomicLong SEEN = new AtomicLong();
    private static final AtomicLong WRONG = new AtomicLong();
    private static volatile boolean ended;

    private EditBench() {}

    public static void main(String[] arguments) throws Exception {
        boolean fills = arguments[0].equals("fill");
        boolean isEmpty = !fills && arguments[5].equals("none");
        long keys = Long.parseLong(arguments[1]);
        String folder = arguments[2];
        long step = fills ? 1 : 1000;
        Configuration settings = new Configuration();
        settings.setString("rest.bind-port", "0");
        settings.setString("rest.address", "localhost");
        settings.setString("io.tmp.dirs", folder + "/tmp");
        settings.setString("taskmanager.memory.managed.size", "512m");
        settings.setString("execution.checkpointing.dir", "file:" + folder + "/checkpoints");
        MiniClusterConfiguration.Builder cluster = new MiniClusterConfiguration.Builder();
        cluster.setConfiguration(settings).setNumTaskManagers(1).setNumSlotsPerTaskManager(PARALLELISM);
        try (MiniCluster flink = new MiniCluster(cluster.build())) {
            flink.start();
            JobGraph graph = graph(keys, step, arguments[3], arguments[4], fills);
            if (!fills && !isEmpty) {
                graph.setSavepointRestoreSettings(SavepointRestoreSettings.forPath(arguments[5], false));
            }
            long start = System.nanoTime();
            long cpu = cpu();
            flink.submitJob(graph).get();
            while (OPENED.get() < PARALLELISM) {
                if (flink.getJobStatus(graph.getJobID()).get().isTerminalState()) {
                    flink.requestJobResult(graph.getJobID()).get().toJobExecutionResult(EditBench.class.getClassLoader());
                }
                Thread.sleep(10);
            }
            double seconds = (System.nanoTime() - start) / 1e9;
            double cpuSeconds = (cpu() - cpu) / 1e9;
            while (SEEN.get() < (keys + step - 1) / step) {
                Thread.sleep(10);
            }
            String path = flink.triggerCheckpoint(graph.getJobID()).get();
            if (fills) {
                path = flink.triggerCheckpoint(graph.getJobID()).get();
            }
            flink.cancelJob(graph.getJobID()).get();
            flink.requestJobResult(graph.getJobID()).get();
            System.out.printf(
                    "{\"checkpoint\": \"%s\", \"open_seconds\": %.2f, \"open_cpu_seconds\": %.2f, \"wrong\": %d}%n",
                    path, seconds, cpuSeconds, isEmpty ? 0 : WRONG.get());
        }
        System.exit(0);
    }

    private static JobGraph graph(long keys, long step, String uid, String state, boolean fills) {
        Configuration job = new Configuration();
        job.setString("state.backend.type", "rocksdb");
        job.setString("execution.checkpointing.incremental", "true");
        job.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        job.setString("restart-strategy.type", "none");
        StreamExecutionEnvironment environment = new StreamExecutionEnvironment(job);
        environment.setParallelism(PARALLELISM);
        environment.setMaxParallelism(Integer.getInteger("maxParallelism", 128));
        environment
                .addSource(new Numbers(keys, step), Types.LONG)
                .uid("numbers")
                .keyBy(number -> number, Types.LONG)
                .process(new Texts(state, fills))
                .uid(uid);
        return environment.getStreamGraph().getJobGraph();
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    @SuppressWarnings("unchecked")
    private static TypeInformation<Number> countType() {
        return (TypeInformation<Number>) (TypeInformation<?>) (DOUBLES ? Types.DOUBLE : Types.LONG);
    }

    private static Number count(long number) {
        return DOUBLES ? (Number) Double.valueOf(number) : (Number) Long.valueOf(number);
    }

    private static UUID id(long number) {
        return new UUID(number * 0x9E3779B97F4A7C15L, number);
    }

    /** Random digits, so that they do not compress to nothing. */
    private static String text(long number) {
        StringBuilder text = new StringBuilder();
        long bits = number * 0x9E3779B97F4A7C15L + 1;
        for (int part = 0; part < 12; part++) {
            bits ^= bits << 13;
            bits ^= bits >>> 7;
            bits ^= bits << 17;
            text.append(Long.toHexString(bits));
        }
        return text.toString();
    }

    private static final class Numbers extends RichParallelSourceFunction<Long> {
        private final long end;
        private final long step;

        private Numbers(long end, long step) {
            this.end = end;
            this.step = step;
        }

        @Override
        public void run(SourceContext<Long> context) throws Exception {
            long own = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask() * step;
            for (long number = own; number < end && !ended; number += PARALLELISM * step) {
                synchronized (context.getCheckpointLock()) {
                    context.collect(number);
                }
            }
            while (!ended) {
                Thread.sleep(20);
            }
        }

        @Override
        public void cancel() {
            ended = true;
        }
    }

    private static final class Texts extends KeyedProcessFunction<Long, Long, Long> {
        private final String name;
        private final boolean fills;
        private transient ValueState<String> text;
        private transient ValueState<Number> count;
        private transient ValueState<UUID> id;

        private Texts(String name, boolean fills) {
            this.name = name;
            this.fills = fills;
        }

        @Override
        public void open(OpenContext context) {
            text = getRuntimeContext().getState(new ValueStateDescriptor<>(name, Types.STRING));
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", countType()));
            if (IDS) {
                id = getRuntimeContext().getState(new ValueStateDescriptor<>("id", TypeInformation.of(UUID.class)));
            }
            OPENED.incrementAndGet();
        }

        @Override
        public void processElement(Long number, Context context, Collector<Long> out) throws Exception {
            if (fills) {
                text.update(text(number));
                count.update(count(number));
                if (IDS) {
                    id.update(id(number));
                }
                context.timerService().registerEventTimeTimer(number);
            } else if (!text(number).equals(text.value())
                    || !count(number).equals(count.value())
                    || IDS && !id(number).equals(id.value())) {
                WRONG.incrementAndGet();
            }
            SEEN.incrementAndGet();
        }
    }
}
