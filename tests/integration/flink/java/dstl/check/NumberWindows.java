package dstl.check;

import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.datastream.WindowedStream;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.evictors.CountEvictor;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.streaming.api.windowing.windows.Window;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;

import java.time.Duration;

/**
 * A window operator as users build it, over numbers whose key is {@code key-<n % 5>}. Elements are JSON with {@code
 * value} and {@code ts}; what windows give is reported as fired.
 */
final class NumberWindows {
    private NumberWindows() {}

    static SingleOutputStreamOperator<String> add(DataStream<String> elements, JsonNode spec) {
        KeyedStream<Long, String> keyed = elements.transform("stamp", Types.LONG, new Stamp())
                .setParallelism(1)
                .keyBy(number -> "key-" + number % 5, Types.STRING);
        if (spec.get("assigner").asText().equals("count")) {
            return end(keyed.countWindow(spec.get("size").asLong()), spec);
        }
        return end(keyed.window(assigner(spec)), spec);
    }

    @SuppressWarnings("unchecked")
    private static WindowAssigner<Object, TimeWindow> assigner(JsonNode spec) {
        Duration size = Duration.ofMillis(spec.get("size").asLong());
        Object assigner = switch (spec.get("assigner").asText()) {
            case "tumbling" -> TumblingEventTimeWindows.of(size);
            case "sliding" -> SlidingEventTimeWindows.of(size, Duration.ofMillis(spec.get("slide").asLong()));
            case "session" -> EventTimeSessionWindows.withGap(size);
            default -> throw new IllegalArgumentException("unknown assigner " + spec);
        };
        return (WindowAssigner<Object, TimeWindow>) assigner;
    }

    private static <W extends Window> SingleOutputStreamOperator<String> end(
            WindowedStream<Long, String, W> windows, JsonNode spec) {
        if (spec.hasNonNull("keep")) {
            windows = windows.evictor(CountEvictor.of(spec.get("keep").asLong()));
        }
        return switch (spec.get("kind").asText()) {
            case "reducing" -> windows.reduce(Long::sum, new Emit<W>(), Types.STRING);
            case "aggregating" -> windows.aggregate(
                    new SumAndCount(),
                    new Emit<W>(),
                    Types.TUPLE(Types.LONG, Types.LONG),
                    Types.LONG,
                    Types.STRING);
            case "list" -> windows.process(new Emit<W>(), Types.STRING);
            default -> throw new IllegalArgumentException("unknown kind " + spec);
        };
    }

    /** Numbers with the event time that their JSON names. */
    private static final class Stamp extends AbstractStreamOperator<Long> implements OneInputStreamOperator<String, Long> {
        private static final long serialVersionUID = 1;

        @Override
        public void processElement(StreamRecord<String> record) {
            JsonNode element = Json.parse(record.getValue());
            output.collect(new StreamRecord<>(element.get("value").asLong(), element.get("ts").asLong()));
        }
    }

    private static final class SumAndCount implements AggregateFunction<Long, Tuple2<Long, Long>, Long> {
        private static final long serialVersionUID = 1;

        @Override
        public Tuple2<Long, Long> createAccumulator() {
            return Tuple2.of(0L, 0L);
        }

        @Override
        public Tuple2<Long, Long> add(Long value, Tuple2<Long, Long> sum) {
            return Tuple2.of(sum.f0 + value, sum.f1 + 1);
        }

        @Override
        public Long getResult(Tuple2<Long, Long> sum) {
            return sum.f0;
        }

        @Override
        public Tuple2<Long, Long> merge(Tuple2<Long, Long> a, Tuple2<Long, Long> b) {
            return Tuple2.of(a.f0 + b.f0, a.f1 + b.f1);
        }
    }

    private static final class Emit<W extends Window> extends ProcessWindowFunction<Long, String, String, W> {
        private static final long serialVersionUID = 1;

        @Override
        public void process(
                String key, Context context, Iterable<Long> elements, org.apache.flink.util.Collector<String> out) {
            ObjectNode node = Json.object().put("key", key);
            if (context.window() instanceof TimeWindow window) {
                node.putArray("ns").add(window.getStart()).add(window.getEnd());
            } else {
                node.put("ns", "global");
            }
            ArrayNode values = node.putArray("value");
            elements.forEach(values::add);
            out.collect(Json.text(node));
        }
    }

    /** Reports what windows give. */
    static final class Sink extends AbstractStreamOperator<String> implements OneInputStreamOperator<String, String> {
        private static final long serialVersionUID = 1;

        private final String caseId;
        private final String name;

        Sink(String caseId, String name) {
            this.caseId = caseId;
            this.name = name;
        }

        @Override
        public void open() throws Exception {
            super.open();
            Report.of(caseId).restored.arrive();
        }

        @Override
        public void processElement(StreamRecord<String> record) {
            Report.of(caseId).fired.add(((ObjectNode) Json.parse(record.getValue())).put("op", name));
        }

        @Override
        public void processWatermark(Watermark watermark) throws Exception {
            super.processWatermark(watermark);
            Report.of(caseId).advanced.arrive();
        }
    }
}
