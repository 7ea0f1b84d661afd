package dstl.bench;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

import java.nio.file.Paths;
import java.util.concurrent.atomic.AtomicLong;

/**
 * {@code old N FOLDER}: a job fills {@code "%d"} to Integer and takes a canonical savepoint. {@code new N FOLDER}: the same job after its
 * change, Long to Long, fills its state from nothing; N = 0 gives its template. One line of JSON each.
 */
public final class MigrationBench {
    static final AtomicLong FILLED = new AtomicLong();

    static final class Fill<K, V> extends KeyedProcessFunction<K, Long, Long> {
        final TypeInformation<V> type;
        final boolean isLong;
        transient ValueState<V> state;

        Fill(TypeInformation<V> type) {
            this.type = type;
            isLong = type.equals(Types.LONG);
        }

        @Override
        public void open(OpenContext context) {
            state = getRuntimeContext().getState(new ValueStateDescriptor<>("v", type));
        }

        @Override
        @SuppressWarnings("unchecked")
        public void processElement(Long value, Context context, Collector<Long> out) throws Exception {
            Object converted = isLong ? (Object) value : (Object) value.intValue();
            state.update((V) converted);
            FILLED.incrementAndGet();
        }
    }

    public static void main(String[] arguments) throws Exception {
        long n = Long.parseLong(arguments[1]);
        String checkpoints = Paths.get("checkpoints").toAbsolutePath().toUri().toString();
        StreamExecutionEnvironment environment = SavepointBench.environment("plain", "hashmap", checkpoints, null);
        // A template has to run until it is saved, so it gets one number that no key takes.
        var numbers = environment.addSource(new SavepointBench.Numbers(Math.max(n, 1))).filter(i -> i < n);
        if (arguments[0].equals("old")) {
            numbers.keyBy(i -> Long.toString(i), Types.STRING).process(new Fill<String, Integer>(Types.INT)).uid("bench")
                    .returns(Types.LONG).sinkTo(new DiscardingSink<>());
        } else {
            numbers.keyBy(i -> i, Types.LONG).process(new Fill<Long, Long>(Types.LONG)).uid("bench")
                    .returns(Types.LONG).sinkTo(new DiscardingSink<>());
        }
        long start = n == 0 ? System.nanoTime() : 0;
        JobClient client = environment.executeAsync();
        while (FILLED.get() < n || client.getJobStatus().get() != org.apache.flink.api.common.JobStatus.RUNNING) {
            if (start == 0 && FILLED.get() > 0) {
                start = System.nanoTime();
            }
            Thread.sleep(1);
        }
        String path = null;
        while (path == null) {
            try {
                path = client.triggerSavepoint(arguments[2], SavepointFormatType.CANONICAL).get();
            } catch (java.util.concurrent.ExecutionException notYet) {
                if (n > 0) {
                    throw notYet;
                }
                Thread.sleep(20); // the tasks of a template are still being deployed
            }
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        client.cancel().get();
        System.out.printf("{\"path\": \"%s\", \"seconds\": %.3f}%n", path, seconds);
        System.exit(0);
    }
}
