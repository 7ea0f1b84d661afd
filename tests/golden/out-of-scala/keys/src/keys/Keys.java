package keys;

import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.types.Either;
import org.apache.flink.util.Collector;

/** The job of {@code scala-jobs/keys} in Java, for Flink 2.x, without its key of an Option. */
public class Keys {
    /** Lets the numbers of the old job pass, then holds. */
    public static class Feed implements FlatMapFunction<Long, Long> {
        public void flatMap(Long n, Collector<Long> out) throws Exception {
            if (n < 18) out.collect(n);
            else Thread.sleep(10);
        }
    }

    static Visit visit(long number) {
        int i = (int) number;
        Visit visit = new Visit();
        visit.place = new Place("r\u00e9gion-" + i % 3, i % 4 - 1);
        visit.id = new Id(5000000000L * (i % 5) - 7, (short) (i % 3), i % 2 == 0);
        visit.kind = i % 2 == 0 ? Either.Left(i % 3) : Either.Right("r" + i % 3);
        visit.n = i;
        return visit;
    }

    public static class Count<K> extends KeyedProcessFunction<K, Long, Long> {
        ValueState<Long> n;
        ValueState<Visit> last;

        @Override
        public void open(OpenContext context) throws Exception {
            n = getRuntimeContext().getState(new ValueStateDescriptor<>("n", Types.LONG));
            last = getRuntimeContext().getState(new ValueStateDescriptor<>("last", Visit.class));
        }

        @Override
        public void processElement(Long number, Context context, Collector<Long> out) throws Exception {
            Visit visit = visit(number);
            n.update((n.value() == null ? 0 : n.value()) + visit.n + 1);
            last.update(visit);
            context.timerService().registerProcessingTimeTimer(4000000000000L + visit.n % 4);
        }
    }

    static <K> void count(DataStream<Long> numbers, KeySelector<Long, K> key, TypeInformation<K> type, String uid) {
        numbers.keyBy(key, type).process(new Count<K>()).returns(Types.LONG).uid(uid).sinkTo(new DiscardingSink<>());
    }

    public static void build(StreamExecutionEnvironment env) {
        DataStream<Long> numbers = env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("source")
                .flatMap(new Feed()).returns(Types.LONG).setParallelism(1).uid("feed");
        count(numbers, v -> Tuple2.of(visit(v).place.region(), visit(v).place.shelf()), Types.TUPLE(Types.STRING, Types.INT), "by-place");
        count(numbers, v -> Tuple2.of(visit(v).place.region(), visit(v).id.value()), Types.TUPLE(Types.STRING, Types.LONG), "by-pair");
        count(numbers, v -> Tuple3.of(visit(v).id.value(), visit(v).id.part(), visit(v).id.live()), Types.TUPLE(Types.LONG, Types.SHORT, Types.BOOLEAN), "by-id");
        count(numbers, v -> Tuple3.of(Tuple2.of(visit(v).place.region(), visit(v).place.shelf()), v % 2 == 0, (int) (v % 3)), Types.TUPLE(Types.TUPLE(Types.STRING, Types.INT), Types.BOOLEAN, Types.INT), "by-triple");
        count(numbers, v -> (int) (v % 5), Types.INT, "by-int");
    }

    public static void main(String[] args) throws Exception {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        build(env);
        env.execute("keys");
    }
}
