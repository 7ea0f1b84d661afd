package dstl.rest;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.execution.ExecutionState;
import org.apache.flink.runtime.executiongraph.AccessExecutionJobVertex;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.util.Collector;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Path;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * A mini cluster with its REST endpoint, driven by lines. Prints its URL; then for each line
 * {@code start <name> <uid> <max parallelism> <elements> <snapshot or ->} submits a job that counts per key, and prints
 * its id once all elements are counted.
 */
public final class RestCluster {
    private static final ConcurrentHashMap<String, CountDownLatch> COUNTED = new ConcurrentHashMap<>();
    private static final long PATIENCE_SECONDS = 60;

    public static void main(String[] arguments) throws Exception {
        Path work = Path.of(arguments[0]);
        Configuration configuration = new Configuration();
        configuration.setString("rest.bind-port", "0");
        configuration.setString("rest.address", "localhost");
        configuration.setString("rest.bind-address", "127.0.0.1");
        configuration.setString("io.tmp.dirs", work.resolve("tmp").toString());
        configuration.setString("taskmanager.memory.managed.size", "64m");
        configuration.setString("taskmanager.memory.network.min", "32m");
        configuration.setString("taskmanager.memory.network.max", "32m");
        MiniClusterConfiguration cluster = new MiniClusterConfiguration.Builder()
                .setConfiguration(configuration)
                .setNumTaskManagers(1)
                .setNumSlotsPerTaskManager(12)
                .build();
        try (MiniCluster mini = new MiniCluster(cluster);
                BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
            mini.start();
            System.out.println(mini.getRestAddress().get());
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                System.out.println(start(mini, line.split(" ")));
            }
        }
    }

    private static String start(MiniCluster mini, String[] words) throws Exception {
        String name = words[1];
        int elements = Integer.parseInt(words[4]);
        CountDownLatch counted = new CountDownLatch(elements);
        COUNTED.put(name, counted);
        StreamExecutionEnvironment environment = new StreamExecutionEnvironment(new Configuration());
        environment.addSource(new Elements(elements), "elements", Types.STRING).setParallelism(1).uid("elements")
                .keyBy(key -> key, Types.STRING)
                .process(new Counter(name), Types.STRING).setParallelism(2)
                .setMaxParallelism(Integer.parseInt(words[3])).uid(words[2])
                .sinkTo(new DiscardingSink<>()).uid("sink");
        StreamGraph stream = environment.getStreamGraph();
        stream.setJobName(name);
        JobGraph graph = stream.getJobGraph();
        if (!words[5].equals("-")) {
            graph.setSavepointRestoreSettings(SavepointRestoreSettings.forPath(words[5], false));
        }
        mini.submitJob(graph).get(PATIENCE_SECONDS, TimeUnit.SECONDS);
        var ended = mini.requestJobResult(graph.getJobID());
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (!counted.await(10, TimeUnit.MILLISECONDS)) {
            if (ended.isDone()) {
                ended.get().toJobExecutionResult(RestCluster.class.getClassLoader());
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("The job did not count its elements in time.");
            }
        }
        awaitRunning(mini, graph);
        return graph.getJobID().toString();
    }

    private static void awaitRunning(MiniCluster mini, JobGraph graph) throws Exception {
        while (true) {
            boolean running = true;
            var execution = mini.getExecutionGraph(graph.getJobID()).get();
            for (AccessExecutionJobVertex vertex : execution.getVerticesTopologically()) {
                running &= vertex.getAggregateState() == ExecutionState.RUNNING;
            }
            if (running) {
                return;
            }
            Thread.sleep(5);
        }
    }

    /** Emits key-0 .. key-9 in turn, then stays until the job ends. */
    private static final class Elements implements SourceFunction<String> {
        private static final long serialVersionUID = 1;
        private final int count;
        private volatile boolean cancelled;

        private Elements(int count) {
            this.count = count;
        }

        @Override
        public void run(SourceContext<String> context) throws InterruptedException {
            for (int i = 0; i < count; i++) {
                synchronized (context.getCheckpointLock()) {
                    context.collect("key-" + i % 10);
                }
            }
            synchronized (this) {
                while (!cancelled) {
                    wait();
                }
            }
        }

        @Override
        public synchronized void cancel() {
            cancelled = true;
            notifyAll();
        }
    }

    /** Counts the elements of each key. */
    private static final class Counter extends KeyedProcessFunction<String, String, String> {
        private static final long serialVersionUID = 1;
        private final String job;
        private transient ValueState<Long> count;

        private Counter(String job) {
            this.job = job;
        }

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(String key, Context context, Collector<String> out) throws Exception {
            Long held = count.value();
            count.update(held == null ? 1L : held + 1);
            COUNTED.get(job).countDown();
        }
    }
}
