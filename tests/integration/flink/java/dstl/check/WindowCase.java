package dstl.check;

import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.datastream.WindowedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.GlobalWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingProcessingTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.evictors.CountEvictor;
import org.apache.flink.streaming.api.windowing.triggers.CountTrigger;
import org.apache.flink.streaming.api.windowing.triggers.PurgingTrigger;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.streaming.api.windowing.windows.Window;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.util.Collector;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;

/**
 * A job with one of Flink's own window operators (uid "w", keys String, elements Tuple2 of String and Long), restored
 * from a snapshot. It gets elements and a watermark, reports what its windows give, and takes a savepoint.
 */
final class WindowCase {
    private static final TypeInformation<Tuple2<String, Long>> ELEMENT = Types.TUPLE(Types.STRING, Types.LONG);
    private static final TypeInformation<Tuple2<Long, Long>> ACCUMULATOR = Types.TUPLE(Types.LONG, Types.LONG);

    private final Cluster cluster;
    private final JsonNode request;
    private final JsonNode window;
    private final String caseId = UUID.randomUUID().toString();

    WindowCase(Cluster cluster, JsonNode request) {
        this.cluster = cluster;
        this.request = request;
        this.window = request.get("window");
    }

    ObjectNode run() throws Exception {
        try (Report report = new Report(caseId, 1, 1);
                Cluster.Job job = cluster.submit(jobGraph(), request.get("timeout_s").asInt())) {
            job.await("the elements", report.emitted.reached);
            job.await("the watermark", report.advanced.reached);
            // Timers of the clock fire by themselves.
            long deadline = System.nanoTime() + Duration.ofSeconds(request.get("timeout_s").asInt()).toNanos();
            while (report.fired.size() < request.get("expected").asInt() && System.nanoTime() < deadline) {
                Thread.sleep(5);
            }
            ObjectNode answer = Json.object();
            answer.put("savepoint", job.savepoint(request.get("savepoint_to").asText(), SavepointFormatType.CANONICAL));
            answer.putArray("fired").addAll(report.fired);
            return answer;
        }
    }

    private JobGraph jobGraph() {
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.type", request.get("backend").asText());
        configuration.setString("state.changelog.enabled", request.get("changelog").asText());
        configuration.setString("restart-strategy.type", "none");
        StreamExecutionEnvironment environment = new StreamExecutionEnvironment(configuration);
        Elements source = new Elements(caseId, request.get("elements").toString(), request.get("watermark").asLong());
        KeyedStream<Tuple2<String, Long>, String> stream = environment
                .addSource(source, "elements", ELEMENT)
                .setParallelism(1)
                .keyBy((KeySelector<Tuple2<String, Long>, String>) element -> element.f0, Types.STRING);
        boolean isGlobal = window.get("assigner").asText().equals("global");
        SingleOutputStreamOperator<String> windows =
                isGlobal ? windows(stream.window(GlobalWindows.create())) : windows(stream.window(assigner()));
        windows.uid("w").setMaxParallelism(128).setParallelism(request.get("parallelism").asInt());
        windows.transform("report", Types.STRING, new Reporter(caseId)).setParallelism(1);
        JobGraph graph = environment.getStreamGraph().getJobGraph();
        graph.setSavepointRestoreSettings(SavepointRestoreSettings.forPath(request.get("snapshot").asText(), false));
        return graph;
    }

    private WindowAssigner<Object, TimeWindow> assigner() {
        Duration size = Duration.ofMillis(window.path("size").asLong());
        return switch (window.get("assigner").asText()) {
            case "tumbling" -> TumblingEventTimeWindows.of(size);
            case "processing" -> TumblingProcessingTimeWindows.of(size);
            case "sliding" -> SlidingEventTimeWindows.of(size, Duration.ofMillis(window.get("slide").asLong()));
            case "session" -> EventTimeSessionWindows.withGap(size);
            default -> throw new IllegalArgumentException("no assigner: " + window);
        };
    }

    private <W extends Window> SingleOutputStreamOperator<String> windows(
            WindowedStream<Tuple2<String, Long>, String, W> windows) {
        if (window.has("lateness")) {
            windows = windows.allowedLateness(Duration.ofMillis(window.get("lateness").asLong()));
        }
        if (window.has("count")) {
            windows = windows.trigger(PurgingTrigger.of(CountTrigger.of(window.get("count").asLong())));
        }
        if (window.has("evict")) {
            windows = windows.evictor(CountEvictor.of(window.get("evict").asLong()));
        }
        return switch (window.get("function").asText()) {
            case "reduce" -> windows.reduce(
                    (left, right) -> Tuple2.of(left.f0, left.f1 + right.f1),
                    new Show<Tuple2<String, Long>, W>(),
                    Types.STRING);
            case "aggregate" -> windows.aggregate(
                    new SumAndCount(), new Show<Long, W>(), ACCUMULATOR, Types.LONG, Types.STRING);
            case "process" -> windows.process(new Show<Tuple2<String, Long>, W>(), Types.STRING);
            default -> throw new IllegalArgumentException("no function: " + window);
        };
    }

    /** Emits the elements, then the watermark; then stays until the job is cancelled. */
    private static final class Elements implements SourceFunction<Tuple2<String, Long>> {
        private static final long serialVersionUID = 1;

        private final String caseId;
        private final String elements;
        private final long watermark;
        private volatile boolean cancelled;

        Elements(String caseId, String elements, long watermark) {
            this.caseId = caseId;
            this.elements = elements;
            this.watermark = watermark;
        }

        @Override
        public void run(SourceContext<Tuple2<String, Long>> context) throws InterruptedException {
            synchronized (context.getCheckpointLock()) {
                for (JsonNode each : Json.parse(elements)) {
                    Tuple2<String, Long> element = Tuple2.of(each.get(0).asText(), each.get(1).asLong());
                    context.collectWithTimestamp(element, each.get(2).asLong());
                }
                context.emitWatermark(new Watermark(watermark));
            }
            Report.of(caseId).emitted.arrive();
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

    /** Sum and number of elements; the result is the sum. */
    private static final class SumAndCount implements AggregateFunction<Tuple2<String, Long>, Tuple2<Long, Long>, Long> {
        private static final long serialVersionUID = 1;

        @Override
        public Tuple2<Long, Long> createAccumulator() {
            return Tuple2.of(0L, 0L);
        }

        @Override
        public Tuple2<Long, Long> add(Tuple2<String, Long> value, Tuple2<Long, Long> sum) {
            return Tuple2.of(sum.f0 + value.f1, sum.f1 + 1);
        }

        @Override
        public Long getResult(Tuple2<Long, Long> sum) {
            return sum.f0;
        }

        @Override
        public Tuple2<Long, Long> merge(Tuple2<Long, Long> left, Tuple2<Long, Long> right) {
            return Tuple2.of(left.f0 + right.f0, left.f1 + right.f1);
        }
    }

    /** Key, window (null for the global one) and elements as JSON. */
    private static final class Show<I, W extends Window> extends ProcessWindowFunction<I, String, String, W> {
        private static final long serialVersionUID = 1;

        @Override
        public void process(String key, Context context, Iterable<I> elements, Collector<String> out) {
            List<Long> values = new ArrayList<>();
            for (I element : elements) {
                values.add(element instanceof Tuple2<?, ?> pair ? (Long) pair.f1 : (Long) element);
            }
            values.sort(null);
            ObjectNode line = Json.object().put("key", key);
            ArrayNode place = line.putArray("window");
            if (context.window() instanceof TimeWindow time) {
                place.add(time.getStart()).add(time.getEnd());
            }
            values.forEach(line.putArray("elements")::add);
            out.collect(Json.text(line));
        }
    }

    /** Tells what comes, and when the watermark has passed all windows. */
    private static final class Reporter extends AbstractStreamOperator<String>
            implements OneInputStreamOperator<String, String> {
        private static final long serialVersionUID = 1;

        private final String caseId;

        Reporter(String caseId) {
            this.caseId = caseId;
        }

        @Override
        public void processElement(StreamRecord<String> record) {
            Report.of(caseId).fired.add((ObjectNode) Json.parse(record.getValue()));
        }

        @Override
        public void processWatermark(Watermark watermark) throws Exception {
            super.processWatermark(watermark);
            Report.of(caseId).advanced.arrive();
        }
    }
}
