package dstl.check;

import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
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
import org.apache.flink.streaming.api.windowing.assigners.GlobalWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingProcessingTimeWindows;
import org.apache.flink.streaming.api.windowing.evictors.CountEvictor;
import org.apache.flink.streaming.api.windowing.triggers.ContinuousEventTimeTrigger;
import org.apache.flink.streaming.api.windowing.triggers.CountTrigger;
import org.apache.flink.streaming.api.windowing.triggers.PurgingTrigger;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.streaming.api.windowing.windows.Window;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;

import java.time.Duration;
import java.util.function.BinaryOperator;

/** Flink's own window operator, as users build it, over elements (key, number, time). What fires is reported. */
final class Windows {
    private static final ValueType ELEMENT = ValueType.parse("tuple<string,long,long>");
    private static final ValueType ACCUMULATOR = ValueType.parse("tuple<long,long>");

    @SuppressWarnings("unchecked")
    private static final TypeInformation<Object> ROW =
            (TypeInformation<Object>) (TypeInformation<?>) Types.ROW(Types.LONG, Types.LONG, Types.LONG);

    private Windows() {}

    static void add(DataStream<String> updates, String caseId, JsonNode operator, int parallelism) {
        String name = CheckOperator.nameOf(operator);
        JsonNode spec = operator.get("windows");
        KeyedStream<Object, String> elements = updates.transform(
                        "elements of " + name, ELEMENT.information, new Elements())
                .setParallelism(1)
                .keyBy(element -> ((Tuple) element).getField(0), Types.STRING);
        finish(assign(elements, spec), spec, caseId, name)
                .uid(name)
                .setParallelism(parallelism)
                .transform("end of " + name, Types.STRING, new End(caseId))
                .setParallelism(parallelism);
    }

    private static WindowedStream<Object, String, ? extends Window> assign(
            KeyedStream<Object, String> elements, JsonNode spec) {
        long size = spec.get("size").asLong();
        Duration time = Duration.ofMillis(size);
        return switch (spec.get("assigner").asText()) {
            case "tumbling" -> elements.window(TumblingEventTimeWindows.of(time));
            case "processing" -> elements.window(TumblingProcessingTimeWindows.of(time));
            case "sliding" -> elements.window(
                    SlidingEventTimeWindows.of(time, Duration.ofMillis(spec.get("slide").asLong())));
            case "session" -> elements.window(EventTimeSessionWindows.withGap(time));
            case "count" -> elements.countWindow(size);
            case "global" -> elements.window(GlobalWindows.create());
            default -> throw new IllegalArgumentException("unknown assigner: " + spec);
        };
    }

    private static <W extends Window> SingleOutputStreamOperator<String> finish(
            WindowedStream<Object, String, W> windows, JsonNode spec, String caseId, String name) {
        windows.allowedLateness(Duration.ofMillis(spec.get("lateness").asLong()));
        long every = spec.get("every").asLong();
        switch (Json.text(spec, "trigger", "default")) {
            case "default" -> { }
            case "count" -> windows.trigger(CountTrigger.of(every));
            case "purging" -> windows.trigger(PurgingTrigger.of(CountTrigger.of(every)));
            case "continuous" -> windows.trigger(ContinuousEventTimeTrigger.of(Duration.ofMillis(every)));
            default -> throw new IllegalArgumentException("unknown trigger: " + spec);
        }
        if (spec.hasNonNull("keep")) {
            windows.evictor(CountEvictor.of(spec.get("keep").asLong()));
        }
        Tell<W> tell = new Tell<>(caseId, name, spec.get("with_state").asBoolean());
        return switch (spec.get("function").asText()) {
            case "reduce" -> windows.reduce(Windows::reduce, tell, Types.STRING);
            case "aggregate" -> windows.aggregate(
                    new SumAndCount(), tell, ACCUMULATOR.information, ACCUMULATOR.information, Types.STRING);
            case "row" -> windows.aggregate(new CountSumSmallest(), tell, ROW, ROW, Types.STRING);
            case "process" -> windows.process(tell, Types.STRING);
            default -> throw new IllegalArgumentException("unknown function: " + spec);
        };
    }

    /** The sum of the numbers, at the later time. */
    @SuppressWarnings("unchecked")
    private static Object reduce(Object left, Object right) {
        var a = (Tuple3<String, Long, Long>) left;
        var b = (Tuple3<String, Long, Long>) right;
        return Tuple3.of(a.f0, a.f1 + b.f1, Math.max(a.f2, b.f2));
    }

    /** The accumulator is the result. */
    private static final class SumAndCount implements AggregateFunction<Object, Object, Object> {
        private static final long serialVersionUID = 1;
        private static final Sum SUM = new Sum();

        @Override
        public Object createAccumulator() {
            return Tuple2.of(0L, 0L);
        }

        @Override
        public Object add(Object element, Object accumulator) {
            return merge(accumulator, Tuple2.of(((Tuple) element).getField(1), 1L));
        }

        @Override
        public Object getResult(Object accumulator) {
            return accumulator;
        }

        @Override
        public Object merge(Object left, Object right) {
            return SUM.reduce(left, right);
        }
    }

    /** Count, sum and smallest number, of which the last two are null without a number: declared aggregates. */
    private static final class CountSumSmallest implements AggregateFunction<Object, Object, Object> {
        private static final long serialVersionUID = 1;

        @Override
        public Object createAccumulator() {
            return Row.of(0L, null, null);
        }

        @Override
        public Object add(Object element, Object accumulator) {
            Object number = ((Tuple) element).getField(1);
            return merge(accumulator, Row.of(1L, number, number));
        }

        @Override
        public Object getResult(Object accumulator) {
            return accumulator;
        }

        @Override
        public Object merge(Object left, Object right) {
            return Row.of(
                    field(left, right, 0, Long::sum),
                    field(left, right, 1, Long::sum),
                    field(left, right, 2, Math::min));
        }

        private static Long field(Object left, Object right, int index, BinaryOperator<Long> both) {
            Long one = (Long) ((Row) left).getField(index);
            Long other = (Long) ((Row) right).getField(index);
            return one == null ? other : other == null ? one : both.apply(one, other);
        }
    }

    /** Reports key, window and contents; with state, also how often the window and the key fired. */
    private static final class Tell<W extends Window> extends ProcessWindowFunction<Object, String, String, W> {
        private static final long serialVersionUID = 1;

        private final String caseId;
        private final String name;
        private final boolean withState;

        Tell(String caseId, String name, boolean withState) {
            this.caseId = caseId;
            this.name = name;
            this.withState = withState;
        }

        @Override
        public void process(String key, Context context, Iterable<Object> contents, Collector<String> out)
                throws Exception {
            ObjectNode entry = Json.object().put("op", name).put("key", key);
            if (context.window() instanceof TimeWindow window) {
                entry.putArray("ns").add(window.getStart()).add(window.getEnd());
            } else {
                entry.put("ns", "global");
            }
            ArrayNode values = entry.putArray("value");
            for (Object each : contents) {
                if (each instanceof Row row) {
                    ArrayNode fields = values.addArray();
                    for (int index = 0; index < row.getArity(); index++) {
                        fields.add((Long) row.getField(index));
                    }
                    continue;
                }
                values.add((each instanceof Tuple2 ? ACCUMULATOR : ELEMENT).toJson(each));
            }
            if (withState) {
                entry.put("of window", next(context.windowState().getState(
                        new ValueStateDescriptor<>("per-window", Types.LONG))));
                entry.put("of key", next(context.globalState().getState(
                        new ValueStateDescriptor<>("per-key", Types.LONG))));
            }
            Report.of(caseId).fire(entry);
        }

        private static long next(ValueState<Long> count) throws Exception {
            long next = count.value() == null ? 1 : count.value() + 1;
            count.update(next);
            return next;
        }
    }

    /** Updates as elements with their time. */
    private static final class Elements extends AbstractStreamOperator<Object>
            implements OneInputStreamOperator<String, Object> {
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
