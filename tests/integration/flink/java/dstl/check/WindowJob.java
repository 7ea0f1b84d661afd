package dstl.check;

import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.ReduceFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
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
import org.apache.flink.streaming.api.windowing.triggers.ContinuousEventTimeTrigger;
import org.apache.flink.streaming.api.windowing.triggers.CountTrigger;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.streaming.api.windowing.windows.Window;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.util.Collector;

import java.time.Duration;

/**
 * A real window operator over elements (key, number, time). Every window that fires is reported as a fired entry with
 * its contents.
 */
final class WindowJob {
    private static final TypeInformation<Tuple3<String, Long, Long>> ELEMENT =
            Types.TUPLE(Types.STRING, Types.LONG, Types.LONG);

    private final String caseId;
    private final String name;
    private final JsonNode spec;

    WindowJob(String caseId, String name, JsonNode spec) {
        this.caseId = caseId;
        this.name = name;
        this.spec = spec;
    }

    /** Adds the operator behind a source of updates; what it emits has still to be given a uid. */
    SingleOutputStreamOperator<String> add(DataStream<String> updates, int parallelism) {
        KeyedStream<Tuple3<String, Long, Long>, String> elements = updates.transform(
                        "elements of " + name, ELEMENT, new Elements())
                .setParallelism(1)
                .keyBy(element -> element.f0, Types.STRING);
        SingleOutputStreamOperator<String> windows;
        if (spec.get("assigner").asText().equals("count")) {
            windows = fired(elements.countWindow(spec.get("size").asLong()));
        } else {
            WindowedStream<Tuple3<String, Long, Long>, String, TimeWindow> timed = elements.window(assigner());
            switch (Json.text(spec, "trigger", "default")) {
                case "count" -> timed.trigger(CountTrigger.of(spec.get("every").asLong()));
                case "continuous" -> timed.trigger(
                        ContinuousEventTimeTrigger.of(Duration.ofMillis(spec.get("every").asLong())));
                default -> { }
            }
            if (spec.hasNonNull("evictor")) {
                timed.evictor(CountEvictor.of(spec.get("evictor").asLong()));
            }
            windows = fired(timed);
        }
        windows.setParallelism(parallelism);
        windows.transform("end of " + name, Types.STRING, new End(caseId)).setParallelism(parallelism);
        return windows;
    }

    private WindowAssigner<Object, TimeWindow> assigner() {
        Duration size = Duration.ofMillis(spec.get("size").asLong());
        return switch (spec.get("assigner").asText()) {
            case "tumbling" -> TumblingEventTimeWindows.of(size);
            case "sliding" -> SlidingEventTimeWindows.of(size, Duration.ofMillis(spec.get("slide").asLong()));
            case "session" -> session(size);
            default -> throw new IllegalArgumentException("unknown assigner: " + spec);
        };
    }

    private static WindowAssigner<Object, TimeWindow> session(Duration gap) {
        return EventTimeSessionWindows.withGap(gap);
    }

    private <W extends Window> SingleOutputStreamOperator<String> fired(
            WindowedStream<Tuple3<String, Long, Long>, String, W> windows) {
        return switch (spec.get("function").asText()) {
            case "reduce" -> windows.reduce(new SumOf(), new Told<>(caseId, name, false), Types.STRING);
            case "aggregate" -> windows.aggregate(
                    new Average(), new Told<>(caseId, name, false), Types.TUPLE(Types.LONG, Types.LONG), Types.DOUBLE,
                    Types.STRING);
            case "process" -> windows.process(new Told<>(caseId, name, false), Types.STRING);
            case "process with state" -> windows.process(new Told<>(caseId, name, true), Types.STRING);
            default -> throw new IllegalArgumentException("unknown function: " + spec);
        };
    }

    private static final class SumOf implements ReduceFunction<Tuple3<String, Long, Long>> {
        @Override
        public Tuple3<String, Long, Long> reduce(Tuple3<String, Long, Long> a, Tuple3<String, Long, Long> b) {
            return Tuple3.of(a.f0, a.f1 + b.f1, Math.max(a.f2, b.f2));
        }
    }

    private static final class Average
            implements AggregateFunction<Tuple3<String, Long, Long>, Tuple2<Long, Long>, Double> {
        @Override
        public Tuple2<Long, Long> createAccumulator() {
            return Tuple2.of(0L, 0L);
        }

        @Override
        public Tuple2<Long, Long> add(Tuple3<String, Long, Long> element, Tuple2<Long, Long> sum) {
            return Tuple2.of(sum.f0 + element.f1, sum.f1 + 1);
        }

        @Override
        public Double getResult(Tuple2<Long, Long> sum) {
            return (double) sum.f0 / sum.f1;
        }

        @Override
        public Tuple2<Long, Long> merge(Tuple2<Long, Long> a, Tuple2<Long, Long> b) {
            return Tuple2.of(a.f0 + b.f0, a.f1 + b.f1);
        }
    }

    /** Reports key, window and contents; with state, also how often the window and the key fired. */
    private static final class Told<T, W extends Window> extends ProcessWindowFunction<T, String, String, W> {
        private final String caseId;
        private final String name;
        private final boolean withState;

        Told(String caseId, String name, boolean withState) {
            this.caseId = caseId;
            this.name = name;
            this.withState = withState;
        }

        @Override
        public void process(String key, Context context, Iterable<T> contents, Collector<String> out)
                throws Exception {
            ObjectNode entry = Json.object().put("op", name).put("kind", "window").put("key", key);
            if (context.window() instanceof TimeWindow window) {
                entry.putArray("ns").add(window.getStart()).add(window.getEnd());
            }
            for (T each : contents) {
                entry.withArray("value").add(String.valueOf(each));
            }
            if (withState) {
                entry.put("of window", next(context.windowState().getState(
                        new ValueStateDescriptor<>("per-window", Types.LONG))));
                entry.put("of key", next(context.globalState().getState(
                        new ValueStateDescriptor<>("per-key", Types.LONG))));
            }
            Report.of(caseId).fired.add(entry);
        }

        private static long next(ValueState<Long> count) throws Exception {
            long next = count.value() == null ? 1 : count.value() + 1;
            count.update(next);
            return next;
        }
    }

    /** Updates as elements with their time. */
    private static final class Elements extends AbstractStreamOperator<Tuple3<String, Long, Long>>
            implements OneInputStreamOperator<String, Tuple3<String, Long, Long>> {
        private static final long serialVersionUID = 1;

        @Override
        public void processElement(StreamRecord<String> record) {
            JsonNode update = Json.parse(record.getValue());
            long time = update.get("ts").asLong();
            var element = Tuple3.of(update.get("key").asText(), update.get("value").asLong(), time);
            output.collect(new StreamRecord<>(element, time));
        }
    }

    /** Tells that a subtask runs, and that the watermark has passed it. */
    private static final class End extends AbstractStreamOperator<String>
            implements OneInputStreamOperator<String, String> {
        private static final long serialVersionUID = 1;

        private final String caseId;

        End(String caseId) {
            this.caseId = caseId;
        }

        @Override
        public void open() throws Exception {
            super.open();
            Report.of(caseId).restored.arrive();
        }

        @Override
        public void processElement(StreamRecord<String> record) {}

        @Override
        public void processWatermark(Watermark watermark) throws Exception {
            super.processWatermark(watermark);
            Report.of(caseId).advanced.arrive();
        }
    }
}
